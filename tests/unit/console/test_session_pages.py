"""A session's page: calls, scores, untrusted values, memory, features; from real state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from guard.console.session_pages import timeline
from tests.unit.console.conftest import line
from tests.unit.propagation.test_incidents import spread
from tests.unit.provenance.agents import agent, guard, policy

__all__ = ["agent", "guard", "policy"]


@pytest.fixture
def sections():
    """The guard keeps the propagation graph."""
    return "propagation: {events: 1000}\n"


def _add(console, *lines):
    with console.log.open("a", encoding="utf-8") as log:
        log.writelines(lines)
    console.index.take_in()


async def test_what_a_session_met_and_remembered_is_shown(console, agent):
    """Alice read and saved poison: fingerprints of what she met, her save, her features."""
    await spread(agent)
    _add(console, line(50, principal="alice", session="one"))
    async with console.as_("viewer") as client:
        page = (await client.get("/sessions", params={"session": "one"})).text
        other = (await client.get("/sessions", params={"session": "two"})).text

    assert "<code>" in page.partition("Untrusted values that it met")[2]
    assert "saved in facts" in page
    assert "recall_count" in page or "recall" in page.partition("Features")[2]
    assert "saved in facts" not in other


async def test_results_stand_between_the_calls_by_time(console, agent):
    """A result that brought labels is in the timeline once, before what was called after it."""
    await spread(agent)
    _add(console, line(50, principal="alice", session="one", at="2100-01-01T00:00:00.000+00:00"))
    async with console.as_("viewer") as client:
        page = (await client.get("/sessions", params={"session": "one"})).text

    timeline = page.partition("<tbody>")[2].partition("</tbody>")[0]
    shown = timeline.split("<tr")[1:]
    assert "of that label" in shown[0]
    assert "/decisions/d50" in shown[-1]
    assert timeline.count("result of call 0") == 1


def test_a_result_stands_behind_the_call_of_its_second_that_it_may_be_of():
    """On record to the second, so the call's own time may be later within it."""
    calls = [{"at": at, "tool": tool} for at, tool in ((7.9, "ask"), (9.4, "get"), (9.8, "send"))]
    results = [{"at": 9, "source": "get"}, {"at": 7, "source": "other"}, {"at": 3, "source": "get"}]

    shown = timeline(calls, results)

    assert shown == [results[2], calls[0], results[1], calls[1], results[0], calls[2]]


async def test_what_became_of_every_call_is_said(console, agent):
    """Also of those whose result brought no label, and of those that were refused or are open."""
    await agent.call("read", {"page": "x"}, "ok")
    await agent.ask("read", {"page": "y"})
    await agent.call("no_such_tool", {})
    _add(console, line(50, principal="alice", session="one"))
    async with console.as_("viewer") as client:
        page = (await client.get("/sessions", params={"session": "one"})).text

    said = "3 calls: 1 came back with a result, 1 were refused, 1 have no result so far"
    assert said in page, page.partition("calls:")


async def test_scores_are_drawn_in_order(console):
    """The picture exists where something was scored, and is an image that runs nothing."""
    _add(console, *(line(60 + n, session="s9", score=n / 4) for n in range(5)))
    async with console.as_("viewer") as client:
        page = (await client.get("/sessions", params={"session": "s9"})).text
        plain = (await client.get("/sessions", params={"session": "s1"})).text
        picture = await client.get("/sessions/score.svg", params={"session": "s9"})

    assert "/sessions/score.svg?session=s9" in page
    assert "score.svg" not in plain
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.text.count('class="dot ') == 5
    assert "default-src 'none'" in picture.headers["content-security-policy"]


async def test_without_redis_the_decisions_are_shown_all_the_same(console, own_server):
    """What is in the log is shown; what is in the state is said to be out of reach."""
    from guard.adapters.redis.store import RedisSessionStore

    store = RedisSessionStore.at(own_server.url, timeout=0.5)
    own_server.stop()
    [pages] = [one for one in console.console._parts if type(one).__name__ == "SessionPages"]
    pages._sources = replace(pages._sources, store=store)
    async with console.as_("viewer") as client:
        page = await client.get("/sessions", params={"session": "s1"})
    await store.aclose()

    assert page.status_code == 200
    assert "The state cannot be read" in page.text
    assert "/decisions/d0" in page.text
