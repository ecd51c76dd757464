"""A bounded number of requests is judged at once; others wait, in turns, or are refused in time."""

import asyncio

import pytest

from guard.core.errors import MessageError
from guard.pipeline.admission import (
    Admission,
    Limits,
    _Waiter,
)

LONG = 3600.0
"""Seconds of patience that no test waits for."""


def admission(judged=4, waiting=8, forwarded=0):
    """Return one whose waiting requests never run out of patience."""
    return Admission(Limits(judged, waiting, LONG, forwarded))


def waiting(gate, principal, count=1):
    """Have requests of a principal wait, and return them."""
    found = [gate.enter(principal) for _ in range(count)]
    assert all(isinstance(one, _Waiter) for one in found)
    return [one for one in found if isinstance(one, _Waiter)]


def has_turn(waiter):
    """Return whether a request that waited goes on."""
    return waiter.turn.done() and waiter.turn.result() is None


def refused(outcome):
    """Return why a request is refused that must be."""
    assert isinstance(outcome, MessageError)
    return outcome


@pytest.mark.parametrize(("places", "left"), [(2, 1), (4, 1), (16, 2), (32, 4)])
async def test_one_principal_leaves_an_eighth_of_the_places(places, left):
    """At least one is free for whoever comes, however many of its requests wait."""
    gate = admission(judged=places)
    assert [gate.enter("a") for _ in range(places - left)] == [None] * (places - left)
    waiters = waiting(gate, "a", 3)

    assert [gate.enter("b") for _ in range(left)] == [None] * left
    gate.leave("b")
    assert not any(one.turn.done() for one in waiters)
    gate.leave("a")
    assert [one.turn.done() for one in waiters] == [True, False, False]


async def test_a_full_queue_lets_the_longest_one_lose_its_last():
    """Who has queued all the places loses one to who has none, which then has the next turn."""
    gate = admission(judged=2, waiting=3)
    assert [gate.enter("loud"), gate.enter("other")] == [None, None]
    loud = waiting(gate, "loud", 3)

    assert (refused(gate.enter("loud")).code, gate.waiting) == ("overloaded", 3)
    [quiet] = waiting(gate, "quiet")
    assert refused(loud[2].turn.result()).code == "overloaded"
    gate.leave("other")
    assert has_turn(quiet)
    assert not loud[0].turn.done()  # Its principal has its half.
    gate.leave("loud")
    assert has_turn(loud[0])


async def test_a_principal_whose_requests_are_not_answered_is_refused():
    """Other principals go on; so does it, once one is answered."""
    gate = admission(judged=4, forwarded=2)
    gate.sent("a")
    gate.sent("a")
    assert "unanswered" in str(refused(gate.enter("a")))
    assert gate.enter("b") is None
    gate.answered("a")
    assert gate.enter("a") is None


async def test_nobody_waits_beside_a_place_that_is_free():
    """Whatever the order of coming, going and leaving: the invariant of the class holds."""
    gate = admission(judged=4, waiting=6)
    inside = []
    waiters = []
    state = 12345
    for _ in range(3000):
        state = (1103515245 * state + 12345) % 2**31
        who = "abc"[state % 7 % 3]
        if state // 7 % 3 and len(inside) + gate.waiting < 10:
            turn = gate.enter(who)
            if turn is None:
                inside.append(who)
            elif isinstance(turn, _Waiter):
                waiters.append(turn)
        elif inside:
            gate.leave(inside.pop(state // 11 % len(inside)))
        for one in [one for one in waiters if one.turn.done()]:
            waiters.remove(one)
            if has_turn(one):
                inside.append(one.principal)
        free = 4 - len(inside)
        assert free >= 0
        assert all(inside.count(one) <= 3 for one in "abc")
        blocked = all(inside.count(one.principal) == 3 for one in waiters)
        assert not free or blocked
        assert gate.waiting == len(waiters)


@pytest.mark.parametrize("fate", ["its turn came", "it was refused", "it waited"])
async def test_who_leaves_while_it_waits_leaves_no_place_taken(fate):
    """Even in the moment in which its turn comes, or in which it is refused."""
    gate = admission(judged=1, waiting=1)
    assert gate.enter("a") is None
    [waiter] = waiting(gate, "b")
    work = asyncio.ensure_future(gate.wait(waiter))
    await asyncio.sleep(0)
    if fate == "its turn came":
        gate.leave("a")
    elif fate == "it was refused":
        gate._refuse(waiter)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    if fate != "its turn came":
        gate.leave("a")
    assert (gate.waiting, gate.enter("c")) == (0, None)


async def test_each_is_refused_when_its_own_time_is_up(monkeypatch):
    """Of two that wait, the one whose patience ends; what is remembered of retries is bounded."""
    monkeypatch.setattr("guard.pipeline.admission._PRINCIPALS", 0)
    gate = Admission(Limits(judged=1, waiting=4, patience=0.001))
    assert gate.enter("a") is None
    [hasty] = waiting(gate, "b")
    gate.limits = Limits(judged=1, waiting=4, patience=LONG)
    [patient] = waiting(gate, "c")
    assert refused(await gate.wait(hasty)).retry_after == 1
    assert (gate.waiting, patient.turn.done()) == (1, False)
    assert refused(gate._refusal("d")).retry_after == 1
