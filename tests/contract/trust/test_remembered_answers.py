"""An answer that a person approved to be remembered holds for who was answered then."""

import pytest

from guard.runtime.wiring import assemble
from lab.trust.harness import world_of

POLICIES = ("default.yaml", "services/zendesk.yaml")
ANA, EVIL = "ana@fjordworks.test", "drop@evil.test"
ANSWER = {"ticket_id": 4711, "comment": "A new pallet is on its way.", "public": True}


def ticket(requester, number=4711):
    """Return what the service tells of a ticket."""
    who = {} if requester is None else {"requester": {"name": "Ana", "email": requester}}
    return {"ticket": {"id": number, "subject": "Pallet", "description": "It broke.", **who}}


async def approved(world):
    """Have a person approve an answer to the ticket, and the next ones."""
    agent = world.agent(session="first")
    await agent.call("get_ticket", {"ticket_id": 4711}, ticket(ANA))
    asked = await agent.call("create_ticket_comment", ANSWER)
    assert asked.verdict == "ask"
    await world.approve(asked.decision_id, remember=True)
    assert (await agent.call("create_ticket_comment", ANSWER, {"ok": True})).verdict == "allow"


@pytest.mark.parametrize(
    ("principal", "requester", "changed", "verdict"),
    [
        ("alice", ANA, {"comment": "It left today."}, "allow"),
        ("bob", ANA, {}, "ask"),
        ("alice", EVIL, {}, "ask"),
        ("alice", None, {}, "ask"),
        ("alice", ANA, {"ticket_id": 4712}, "ask"),
    ],
)
async def test_an_answer_is_remembered_for_who_wrote(
    world_redis, principal, requester, changed, verdict
):
    """The same ticket of the same person; not one whose requester is another or is not told."""
    async with world_of(assemble, world_redis, POLICIES) as world:
        await approved(world)
        agent = world.agent(principal, "second")
        number = changed.get("ticket_id", 4711)
        await agent.call("get_ticket", {"ticket_id": number}, ticket(requester, number))
        again = await agent.call("create_ticket_comment", {**ANSWER, **changed}, {"ok": True})
        assert again.verdict == verdict


async def test_the_last_that_the_service_told_counts(world_redis):
    """A ticket that was handed to somebody else within the session."""
    async with world_of(assemble, world_redis, POLICIES) as world:
        await approved(world)
        agent = world.agent(session="second")
        for requester in (ANA, EVIL):
            await agent.call("get_ticket", {"ticket_id": 4711}, ticket(requester))
        assert (await agent.call("create_ticket_comment", ANSWER)).verdict == "ask"
