"""A world is a guard: what is refused reaches no upstream, and what is approved does, once."""

from __future__ import annotations

import json

import pytest

from guard.runtime.wiring import assemble
from lab.eval_trust import play
from lab.trust.attacks import Attempt
from lab.trust.harness import world_of

MAIL = "email_send_email"
STRANGER = "drop@elsewhere.test"


async def test_what_is_allowed_reaches_the_upstream_and_its_answer_the_agent(world_redis):
    """The upstream gets the bytes without the guard's own headers; the agent its answer."""
    async with world_of(assemble, world_redis, "default.yaml") as world:
        agent = world.agent()
        outcome = await agent.call(MAIL, {"to": "team@example.com", "body": "hi"}, "sent")
        assert outcome.verdict == "allow"
        assert [r.body for r in world.received] == [outcome.released.body]
        assert json.loads(outcome.reply)["result"]["content"][0]["text"] == "sent"
        names = {name for name, _ in world.received[0].headers}
        assert not names & {"proxy-authorization", "x-guard-session"}


async def test_an_approved_call_goes_out_once(world_redis):
    """Nothing is forwarded before the approval, nor after the grant was used."""
    async with world_of(assemble, world_redis, "default.yaml") as world:
        agent = world.agent()
        mail = {"to": STRANGER, "body": "hi"}
        asked = await agent.call(MAIL, mail)
        assert (asked.verdict, asked.forwarded) == ("ask", False)
        assert asked.codes
        await world.approve(asked.decision_id)
        assert (await agent.call(MAIL, mail)).verdict == "allow"
        assert (await agent.call(MAIL, mail)).verdict == "ask"
        assert len(world.received) == 1


@pytest.mark.parametrize("through", [True, False])
async def test_an_attempt_tells_whether_it_got_through(world_redis, through):
    """Forwarded unapproved is through; refused is stopped."""

    async def attempt(world):
        receiver = "team@example.com" if through else STRANGER
        return (await world.agent().call(MAIL, {"to": receiver, "body": "b"})).forwarded

    played = await play(assemble, world_redis, Attempt("mail", attempt))
    assert played.stopped is not through
    assert not played.error


async def test_an_attempt_that_cannot_be_played_counts_as_not_stopped(world_redis):
    """An error proves nothing about the guard."""

    async def broken(_):
        raise LookupError("no such tool")

    played = await play(assemble, world_redis, Attempt("broken", broken))
    assert not played.stopped
    assert "no such tool" in played.error
