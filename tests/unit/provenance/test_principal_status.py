"""A pause of a principal's asks, and a break-glass that two people open, on a real Redis."""

from dataclasses import replace

import pytest

from guard.core.errors import GuardError
from guard.provenance.approvals import Approver
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
from tests.unit.provenance.agents import Agent, play

NOW = Agent.at
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
def under(store, policy_from):
    """Return a function that gives an agent of a new guard, under some approvals section."""

    def agent(section):
        return Agent(guard_on(store, policy_from(POLICY.format(approvals=section))))

    return agent


@pytest.fixture
def operator(store):
    """What people do."""
    return PrincipalStatusOperator(store, Seal(KEY), "default")


def send(expected, body="", to="drop@evil.test", tool="send"):
    """Return the step in which a call is made."""
    return "try", tool, {"to": to, "body": str(body)}, expected


def by_people(name, *arguments):
    """Return the step in which people do something."""

    async def deed(agent):
        operator = PrincipalStatusOperator(agent.guard._store, Seal(KEY), "default")
        assert await getattr(operator, name)(*arguments)

    return "do", deed


def opened(longest=1800, **fields):
    """Return the step in which two people open a break-glass."""

    async def deed(agent):
        operator = PrincipalStatusOperator(agent.guard._store, Seal(KEY), "default")
        asked = await operator.ask_glass(replace(WANTED, **fields), ANN, NOW)
        await operator.open_glass(asked.id, BEA, NOW, longest)

    return "do", deed


PAUSE_3, GLASS_30, NEITHER = (
    "{pause: {asks: 3, within: 10m, lasts: 1h}}",
    "{break_glass: 30m}",
    "{own: refuse}",
)
PAUSED, PAY = send("block asks_paused", "9"), opened(3600, tool="pay", seconds=3600)
SLOW = [step for n in range(5) for step in (("later", 1000), send("ask", n))]


@pytest.mark.parametrize(
    ("section", "steps"),
    [
        pytest.param(
            PAUSE_3,
            [
                *(send("ask", n) for n in range(3)),
                PAUSED,
                ("as", "bob"),
                send("ask"),
                ("as", "alice"),
                ("later", 3601),
                send("ask", "5"),
            ],
            id="a principal that asks too often is paused for a while, and others are not",
        ),
        pytest.param(
            PAUSE_3,
            [send("ask", "same")] * 20,
            id="the same call again is one ask",
        ),
        pytest.param(PAUSE_3, SLOW, id="asks of long ago are none"),
        pytest.param(NEITHER, [send("ask", n) for n in range(8)], id="switched off, asks go on"),
        pytest.param(
            GLASS_30,
            [by_people("ask_glass", WANTED, ANN, NOW), send("ask")],
            id="one person opens nothing",
        ),
        pytest.param(
            GLASS_30,
            [
                opened(),
                ("later", 1),
                send("allow break_glass"),
                send("block", to="x@denied.test"),
                ("as", "bob"),
                send("ask"),
                ("as", "alice"),
                ("later", -2),
                send("ask"),
                ("later", 601),
                send("ask"),
                ("later", -599),
                by_people("close_glass", "alice"),
                send("ask"),
            ],
            id="two people let a principal do what would be asked until it ends or is closed",
        ),
        pytest.param(
            "{break_glass: 1h}",
            [PAY, send("allow", tool="pay"), send("ask")],
            id="a break-glass is for its tool",
        ),
        pytest.param(GLASS_30, [PAY, send("ask", tool="pay")], id="a shorter policy closes it"),
        pytest.param(NEITHER, [PAY, send("ask", tool="pay")], id="a policy without it closes it"),
    ],
)
async def test_asks_are_paused_or_let_through_for_a_while(under, steps, section):
    """A clock that jumps back opens nothing."""
    await play(under(section), steps)


async def test_asks_of_all_workers_count_together(under, operator):
    """Three workers, one ask each; and what led to a pause counts towards no second one."""
    workers = [under(PAUSE_3) for _ in range(3)]
    for number, worker in enumerate(workers):
        await play(worker, [send("ask", number)])
    for worker in workers:
        await play(worker, [PAUSED])
    assert [await operator.resume("alice") for _ in range(2)] == [True, False]
    for number, worker in enumerate(workers):
        await play(worker, [("later", 1), send("ask", f"again {number}")])
    await play(workers[0], [("later", 1), PAUSED])


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
    asked = await operator.ask_glass(replace(WANTED, seconds=86400), ANN, NOW)
    opened = await operator.open_glass(asked.id, BEA, NOW, 1800)
    assert opened.until == NOW + 1800
    with pytest.raises(GuardError):
        await operator.open_glass(opened.id, BEA, NOW, 1800)
    late = await operator.ask_glass(WANTED, ANN, NOW)
    with pytest.raises(GuardError):
        await operator.open_glass(late.id, BEA, NOW + ASKED_SECONDS, 1800)
    for by in (Approver("root", "link", "root"), Approver("alice", "people", "alice")):
        with pytest.raises(GuardError):
            await operator.ask_glass(WANTED, by, NOW)


async def test_a_record_of_somebody_elses_is_no_break_glass(store, under):
    """Who writes to Redis can neither forge one nor move one from another principal."""
    agent = await play(under("{break_glass: 30m, pause: {asks: 1}}"), [opened()])
    alice, bob = (mark_of(Seal(KEY), name) for name in ("alice", "bob"))
    key, there = (
        store.key_of("default", principal_status_set("default", mark)) for mark in (alice, bob)
    )
    raw = await store.client.execute("HGET", key, alice + GLASS)
    await store.client.execute("HSET", there, bob + GLASS, raw)
    await play(agent, [("as", "bob"), send("ask")])
    await store.client.execute("HSET", there, bob + PAUSE, b"forged")
    await play(agent, [("later", 1), send("allow")])
