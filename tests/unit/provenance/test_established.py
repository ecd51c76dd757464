"""Whom the user named once, this principal may send to again with the same tool, for a while."""

from dataclasses import replace

import pytest

from guard.core.calls import ToolResult
from guard.core.model import ToolCall
from guard.pipeline.outcome import JudgeRequest
from guard.provenance.approvals import Grant, Scope
from tests.unit.provenance.agents import SERIAL, play, rung, why
from tests.unit.provenance.test_altered_records import fields_of

DAY = 86400
PAT = "pat@partner.test"
MAIL = {"to": PAT, "body": "b"}


async def named(agent, to=PAT, **more):
    """Have the user name a receiver and the agent send to it."""
    await agent.say(f"Please send the report to {to}")
    verdict = await agent.call("send", {"to": to, "body": "b"}, "sent", **more)
    assert rung(verdict) == "prompted"


async def approved(agent, operator, remember=0, scope=Scope.PRINCIPAL):
    """Have a send asked about, approved and repeated."""
    call, verdict = await agent.ask("send", MAIL)
    assert verdict.action.label == "ask"
    grant = Grant(scope, agent.at + remember) if remember else Grant()
    await operator.approve(call.call.id, agent.at, grant)
    assert rung(await agent.call("send", MAIL, "sent")) == "granted"


async def over(agent, server, arguments=MAIL):
    """Send by another listener and return the verdict."""
    call = ToolCall(
        f"over-{next(SERIAL)}", agent.identity, "send", arguments, "test", agent.at, server=server
    )
    [(_, verdict)] = await agent.guard.judge(JudgeRequest([call]))
    return verdict


NAMED = [("say", f"Please send the report to {PAT}"), ("send", PAT, "prompted"), ("in", "two")]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [("read", {}, f"write to {PAT}"), ("send", PAT, "allow established prompted_before")],
            id="whom the user named once may be sent to in a later session that reads of him",
        ),
        pytest.param(
            [
                ("send", PAT, "established"),
                ("say", f"Never write to {PAT} again."),
                ("send", PAT, "unknown"),
                ("say", f"Fine, send the report to {PAT}."),
                ("send", PAT, "prompted"),
            ],
            id="a refusal of the user beats what is established",
        ),
    ],
)
async def test_whom_the_user_named_is_established_until_a_no(agent, steps):
    """For the principal, in its later sessions."""
    await play(agent, [*NAMED, *steps])


async def test_it_is_this_principal_this_tool_this_listener_and_this_receiver(agent):
    """Nothing that differs is established with it."""
    await named(agent)
    later = agent.in_session("two")
    others = {
        "receiver": await later.send("pat2@partner.test"),
        "principal": await agent.as_principal("bob").in_session("two").send(PAT),
        "tool": await later.call("invite", {"guests": [PAT]}, "ok"),
        "listener": await over(later, "127.0.0.1:9"),
    }
    rungs = {what: rung(verdict) for what, verdict in others.items()}
    assert "established" not in rungs.values(), rungs
    assert rung(await later.send(PAT)) == "established"


async def test_of_several_receivers_those_that_the_user_named_are_established(agent, operator):
    """A grant for the whole call adds none."""
    both = {"to": [PAT, "eve@other.test"], "body": "b"}
    await agent.say(f"Mail it to {PAT}")
    call, _ = await agent.ask("send", both)
    await operator.approve(call.call.id, agent.at)
    await agent.call("send", both, "sent")

    later = agent.in_session("two")
    assert rung(await later.send(PAT)) == "established"
    assert rung(await later.send("eve@other.test")) == "unknown"


async def test_a_plain_grant_establishes_nobody(agent, operator):
    """It is for one very call."""
    await approved(agent, operator)
    assert rung(await agent.send(PAT)) == "unknown"


async def test_an_approval_to_be_remembered_ends_when_it_says(agent, operator):
    """Or with the policy's period, whichever is first."""
    await approved(agent, operator, remember=2 * DAY)

    later = replace(agent.in_session("two"), at=agent.at + DAY)
    verdict = await later.send(PAT)
    assert (rung(verdict), why(verdict)["why"]) == ("established", "approved_before")
    assert rung(await replace(later, at=agent.at + 2 * DAY + 1).send(PAT)) == "unknown"


async def test_an_approval_for_the_session_ends_with_it(agent, operator):
    """Another session of the same principal is asked about again."""
    await approved(agent, operator, remember=2 * DAY, scope=Scope.SESSION)

    assert rung(await agent.send(PAT)) == "established"
    assert rung(await agent.in_session("two").send(PAT)) == "unknown"


@pytest.mark.parametrize("remember", [0, 400 * DAY])
async def test_it_ends_after_the_period_of_the_policy(agent, operator, policy, remember):
    """A send on this rung prolongs nothing, and a shorter period counts at once."""
    if remember:
        await approved(agent, operator, remember=remember)
    else:
        await named(agent)
    later = replace(agent.in_session("two"), at=agent.at + 89 * DAY)
    assert rung(await later.send(PAT)) == "established"
    late = replace(agent.in_session("three"), at=agent.at + 90 * DAY + 1)
    assert rung(await late.send(PAT)) != "established"

    shorter = replace(policy, limits=replace(policy.limits, established=DAY))
    agent.guard.swap_policy(shorter)
    assert rung(await replace(later, at=agent.at + 2 * DAY).send(PAT)) != "established"


async def test_a_send_that_did_not_succeed_establishes_nobody(agent):
    """Refused, failed by its tool's word, or without an answer."""
    await agent.say(f"Mail it to {PAT}")
    assert (await agent.send([PAT, "drop@denied.test"])).action.label == "block"
    said = {"content": [{"type": "text", "text": "no such mailbox"}], "isError": True}
    for outcome in (
        {"content": "no such mailbox", "is_error": True},
        {"content": "no such mailbox", "is_lost": True},
        {"content": said},
    ):
        call, verdict = await agent.ask("send", MAIL)
        assert verdict.enforced.forwards
        await agent.guard.observe(ToolResult(call, at=agent.at, **outcome))

    later = replace(agent.in_session("two"), at=agent.at + 1)
    assert rung(await later.send(PAT)) != "established"


@pytest.mark.parametrize("vouched", ["listed", "reply", "remembered"])
async def test_no_other_rung_establishes(agent, operator, vouched):
    """What a list, a message or a field vouches for stays as it is: the next send asks again."""
    to = "colleague@inside.test" if vouched == "listed" else PAT
    if vouched == "reply":
        await agent.call("inbox", {}, [{"id": "7", "from": PAT, "subject": "Your order of May"}])
        await agent.say("Answer the mail 'Your order of May'")
        assert rung(await agent.call("answer", {"to": PAT, "message": "7", "body": "b"}, "ok"))
    elif vouched == "remembered":
        await agent.call("directory", {}, [{"name": "Pat", "mail": PAT}])
    await agent.send(to)
    assert await operator.established() == []


async def test_an_operator_sees_who_is_established_and_revokes_it(agent, operator, store):
    """In Redis it is enciphered; what the operator is shown says who, what, whom and until when."""
    await named(agent)
    [one] = await operator.established()

    assert (one.principal, one.tool, one.kind, one.receiver) == ("alice", "send", "mail", PAT)
    assert (one.record.channel, one.record.until) == ("prompt", agent.at + 90 * DAY)
    async for _, _, raw in fields_of(store, "e"):
        assert b"partner" not in raw

    assert await operator.revoke(one.mark)
    assert not await operator.revoke(one.mark)
    assert await operator.established() == []
    assert rung(await agent.in_session("two").send(PAT)) != "established"


@pytest.mark.parametrize("place", range(0, 56, 5))
async def test_an_altered_record_establishes_nobody(agent, operator, store, place):
    """Nor one that was copied to another receiver."""
    await named(agent)
    await named(agent, to="kim@partner.test")
    fields = [(k, f, r) async for k, f, r in fields_of(store, "e") if f.endswith(b"E")]
    (key, field, first), (other_key, other, _) = fields
    await store.client.execute("HSET", other_key, other, first)
    broken = bytearray(first)
    broken[place % len(broken)] ^= 1
    await store.client.execute("HSET", key, field, bytes(broken))

    later = agent.in_session("two")
    assert rung(await later.send(PAT)) != "established"
    assert rung(await later.send("kim@partner.test")) != "established"
    assert await operator.established() == []
