"""A pause of a principal's asks, and a break-glass that two people open, on a real Redis."""

from dataclasses import replace

import pytest

from guard.core.errors import GuardError
from guard.core.model import Identity, ToolCall
from guard.pipeline.outcome import JudgeRequest
from guard.provenance.approvals import Approver
from guard.provenance.label_sets import bucket_of
from guard.provenance.principal_status import (
    ASKED_SECONDS,
    GLASS,
    PAUSE,
    BreakGlass,
    mark_of,
    principal_status_set,
)
from guard.provenance.seal import Seal
from guard.store.principal_status import PrincipalStatusOperator
from tests.guards import KEY, guard_on

NOW = 1_700_000_000.0
POLICY = """
version: 1
name: office
approvals: {approvals}
tools:
  - {{match: [send], role: send, destinations: ["$.to"], body: ["$.body"]}}
  - {{match: [pay], role: send, destinations: ["$.to"]}}
deny: [denied.test]
rules:
  - {{id: no, type: destination, effect: block, status: [denied]}}
  - {{id: ask, type: provenance, roles: [send], rungs: [claimed, unknown, tainted], effect: ask}}
  - {{id: ok, type: provenance, roles: [send], rungs: [granted, established], effect: allow}}
"""
ANN, BEA = (Approver(name, "https://issuer.test", name) for name in ("ann", "bea"))
WANTED = BreakGlass("", "alice", "", "mail is down", 600, 0.0, 0.0, "", "", "")


@pytest.fixture
def agent(store, policy_from):
    """Return a function: calls under a policy with some approvals section give verdicts."""

    def under(approvals):
        guard, number = (
            guard_on(store, policy_from(POLICY.format(approvals=approvals))),
            iter(range(10**6)),
        )

        async def send(to="drop@evil.test", *, at=NOW, tool="send", principal="alice", body=""):
            arguments = {"to": to, "body": body}
            who = Identity(principal, "s")
            call = ToolCall(f"c{next(number)}", who, tool, arguments, "test", at)
            [(_, verdict)] = await guard.judge(JudgeRequest([call]))
            return verdict.action.label, verdict.reasons[0].code

        return send

    return under


@pytest.fixture
def operator(store):
    """What people do."""
    return PrincipalStatusOperator(store, Seal(KEY), "default")


PAUSE_3 = "{pause: {asks: 3, within: 10m, lasts: 1h}}"


async def test_a_principal_that_asks_too_often_is_paused_and_others_are_not(agent, operator):
    """The third different ask pauses; then nobody is asked, and no request waits."""
    send = agent(PAUSE_3)
    asked = [(await send(body=str(n)))[0] for n in range(3)]
    assert asked == ["ask", "ask", "ask"]
    assert await send(body="4") == ("block", "asks_paused")
    assert (await send(principal="bob"))[0] == "ask"
    [pause], _ = await operator.in_force(NOW)
    assert (pause.principal, pause.asks) == ("alice", 3)
    assert (await send(body="5", at=NOW + 3601))[0] == "ask", "it ends by itself"


async def test_a_pause_holds_for_every_worker_and_people_end_it(store, agent, operator):
    """Another guard on the same Redis reads it; once it is ended, asks are asks again."""
    send = agent(PAUSE_3)
    for number in range(3):
        await send(body=str(number))
    other = agent(PAUSE_3)
    assert (await other(body="9"))[1] == "asks_paused"
    assert await operator.resume("alice")
    assert not await operator.resume("alice")
    assert (await other(body="9"))[0] == "ask"


async def test_asks_of_all_workers_count_together(agent, operator):
    """Three workers, one ask each; and what led to a pause counts towards no second one."""
    workers = [agent(PAUSE_3) for _ in range(3)]
    asked = [(await send(body=str(n)))[0] for n, send in enumerate(workers)]
    paused = [(await send(body="9"))[1] for send in workers]
    await operator.resume("alice")
    again = [(await send(body=f"again {n}", at=NOW + 1))[0] for n, send in enumerate(workers)]

    assert asked == ["ask"] * 3
    assert paused == ["asks_paused"] * 3
    assert again == ["ask"] * 3
    assert (await workers[0](body="more", at=NOW + 1))[1] == "asks_paused"


async def test_the_same_call_again_is_one_ask_and_asks_of_long_ago_are_none(agent):
    """A client that repeats its call until it is approved is not paused; nor is a slow one."""
    send = agent(PAUSE_3)
    assert {(await send(body="same"))[0] for _ in range(20)} == {"ask"}
    slow = [(await send(body=str(n), at=NOW + 1000 * n))[0] for n in range(1, 6)]
    assert slow == ["ask"] * 5


async def test_without_the_section_nobody_is_paused(agent):
    """Switched off, the asks go on: the test of the tests above."""
    send = agent("{own: refuse}")
    assert {(await send(body=str(n)))[0] for n in range(8)} == {"ask"}


async def _opened(operator, *, at=NOW, longest=1800, **fields):
    asked = await operator.ask_glass(replace(WANTED, **fields), ANN, at)
    return await operator.open_glass(asked.id, BEA, at, longest)


async def test_two_people_let_a_principal_do_what_would_be_asked_for_a_while(agent, operator):
    """Until it ends or is closed; what is denied stays denied; others are asked about."""
    send = agent("{break_glass: 30m}")
    asked = await operator.ask_glass(WANTED, ANN, NOW)
    assert (await send())[0] == "ask", "one person opens nothing"
    await operator.open_glass(asked.id, BEA, NOW, 1800)

    assert await send(at=NOW + 1) == ("allow", "break_glass")
    assert (await send("x@denied.test", at=NOW + 1))[0] == "block"
    assert (await send(principal="bob", at=NOW + 1))[0] == "ask"
    assert (await send(at=NOW - 1))[0] == "ask", "a clock that jumps back opens nothing"
    assert (await send(at=NOW + 600))[0] == "ask", "it ends"
    assert await operator.close_glass("alice")
    assert (await send(at=NOW + 1))[0] == "ask"


async def test_a_break_glass_is_for_its_tool_and_within_the_policy(agent, operator):
    """Another tool is asked about; a policy that no longer has it, or a shorter one, closes it."""
    await _opened(operator, tool="pay", seconds=3600, longest=3600)
    assert (await agent("{break_glass: 1h}")(tool="pay"))[0] == "allow"
    assert (await agent("{break_glass: 1h}")())[0] == "ask"
    assert (await agent("{break_glass: 30m}")(tool="pay"))[0] == "ask"
    assert (await agent("{own: refuse}")(tool="pay"))[0] == "ask"


@pytest.mark.parametrize(
    "second",
    [
        ANN,
        Approver("Ann Other", ANN.realm, "ann"),
        Approver("bea", "people", "bea"),
        Approver("root", "link", "root"),
        Approver("alice", ANN.realm, "alice"),
    ],
    ids=["same", "renamed", "other-realm", "link", "own"],
)
async def test_one_person_opens_no_break_glass(operator, second):
    """Nor two of whom it is not known that they are two, nor the principal's own."""
    asked = await operator.ask_glass(WANTED, ANN, NOW)
    with pytest.raises(GuardError):
        await operator.open_glass(asked.id, second, NOW, 1800)
    assert await operator.in_force(NOW) == ([], [])


async def test_a_break_glass_is_opened_once_and_in_time(operator):
    """Neither twice, nor after the time for a second person, nor for longer than the policy has."""
    opened = await _opened(operator, seconds=86400)
    assert opened.until == NOW + 1800
    with pytest.raises(GuardError):
        await operator.open_glass(opened.id, BEA, NOW, 1800)
    late = await operator.ask_glass(WANTED, ANN, NOW)
    with pytest.raises(GuardError):
        await operator.open_glass(late.id, BEA, NOW + ASKED_SECONDS, 1800)
    for by in (Approver("root", "link", "root"), Approver("alice", "people", "alice")):
        with pytest.raises(GuardError):
            await operator.ask_glass(WANTED, by, NOW)


async def test_a_record_of_somebody_elses_is_no_break_glass(store, agent, operator):
    """Who writes to Redis can neither forge one nor move one from another principal."""
    await _opened(operator)
    seal = Seal(KEY)
    alice, bob = (mark_of(seal, name) for name in ("alice", "bob"))
    key = store.key_of("default", principal_status_set("default", alice))
    raw = await store.client.execute("HGET", key, alice + GLASS)
    there = store.key_of("default", principal_status_set("default", bob))
    await store.client.execute("HSET", there, bob + GLASS, raw)
    assert bucket_of(bob) == bob[0] % 64
    send = agent("{break_glass: 30m, pause: {asks: 1}}")
    assert (await send(principal="bob"))[0] == "ask"
    await store.client.execute("HSET", there, bob + PAUSE, b"forged")
    assert (await send(at=NOW + 1))[0] == "allow"
