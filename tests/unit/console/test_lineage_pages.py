"""Sessions and lineage, from real state."""

from __future__ import annotations

import re

import pytest

from tests.unit.console.conftest import line
from tests.unit.extensions.propagation.test_incidents import spread
from tests.unit.provenance.agents import agent, guard, policy

__all__ = ["agent", "guard", "policy"]


@pytest.fixture
def sections():
    """The guard keeps the propagation graph."""
    return "propagation: {events: 1000}\n"


async def test_a_value_is_traced_from_the_text_that_named_it_to_every_save(console, agent):
    """Each event leads to its own page; the value is in no URL."""
    await spread(agent)
    async with console.as_("viewer") as client:
        page = (await client.post("/lineage", data={"value": "drop@evil.test"})).text
        nodes = set(re.findall(r'href="(/lineage/default/[0-9a-f]+)"', page))
        each = [(await client.get(path)).status_code for path in nodes]

    assert "read in untrusted text" in page
    assert page.count("saved in facts") >= 2
    assert (len(nodes), set(each)) == (2, {200})


async def test_a_session_shows_what_it_read_saved_and_called(console, agent):
    """Fingerprints of untrusted values, saves, features and the fate of every call."""
    await spread(agent)
    await agent.ask("read", {"page": "y"})
    with console.log.open("a", encoding="utf-8") as log:
        log.write(line(50, principal="alice", session="one"))
    console.index.take_in()
    async with console.as_("viewer") as client:
        page = (await client.get("/sessions", params={"session": "one"})).text
        other = (await client.get("/sessions", params={"session": "two"})).text
        data = (await client.get("/api/sessions", params={"session": "one"})).json()

    [found] = data["principals"]
    assert "<code>" in page.partition("Untrusted values that it met")[2]
    assert "saved in facts" in page
    assert "saved in facts" not in other
    assert found["features"]
    assert found["calls"]["asked"] == sum(found["calls"][n] for n in ("back", "refused", "open"))
    assert {one["label"] for one in found["read"]} == {"untrusted"}
