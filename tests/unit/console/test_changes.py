"""What changed since yesterday, in sentences."""

from __future__ import annotations

import json

import pytest

from guard.console.changes import happened
from tests.unit.console.conftest import NOW, line


def event(name, **detail):
    """Return an audit line as the index has it."""
    return {"event": name, "at": NOW, "detail": detail}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            event("guard.policy_reload", outcome="swapped", policy_name="mail"),
            "policy mail was put",
        ),
        (event("guard.policy_reload", outcome="kept"), "policy files with a problem"),
        (event("guard.policy_change", act="committed", by="pat"), "policy committed by pat"),
        (event("guard.policy_change", act="step", by="pat", share=0.1), "for 10 % of the"),
        (event("guard.policy_trial", act="stepped_back", why="a jump"), "stepped back: a jump"),
        (event("guard.incident", act="contain", by="pat", incident="inc-1"), "inc-1: contain by"),
        (event("guard.worker_lost", exit_code=-9), "a worker ended"),
        (event("guard.labels_incomplete"), "lost labels"),
    ],
    ids=lambda one: one["event"] if isinstance(one, dict) else "",
)
def test_an_event_is_a_sentence(given, text):
    """Who did what, or what broke."""
    [found] = happened([given])
    assert text in found


def test_like_events_are_one_line_and_others_none():
    """Nobody reads fifty restarts; drafts and sign-ins are no news."""
    lost = [event("guard.worker_lost")] * 3
    other = [event("guard.console_sign_in"), event("guard.policy_change", act="commit", by="pat")]
    assert happened([*lost, *other]) == ["a worker ended and was started again (3 times)"]


async def test_now_shows_what_is_new_since_yesterday(console):
    """New principals, servers and policies, a reload and a step back, on the first page."""
    old = {"event": "guard.worker_lost", "at": "2023-11-12T22:00:00.000+00:00"}
    fresh = {
        "event": "guard.policy_trial",
        "at": "2023-11-14T22:05:00.000+00:00",
        "act": "stepped_back",
        "why": "asks or blocks jumped: 4 of 4 calls",
    }
    with console.log.open("a", encoding="utf-8") as log:
        log.write(line(80, principal="mallory", server="127.0.0.1:9", policy="abcdef0123456789"))
        log.writelines(json.dumps(one) + "\n" for one in (old, fresh))
    console.index.take_in()
    async with console.as_("viewer") as client:
        page = (await client.get("/")).text

    for text in ("new principal mallory", "new server 127.0.0.1:9", "new policy abcdef012345"):
        assert text in page
    assert "trial of a policy stepped back: asks or blocks jumped" in page
    assert "a worker ended" not in page
