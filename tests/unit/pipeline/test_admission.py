"""A bounded number of requests is judged at once; others wait, in turns, or are refused in time."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from guard.core.errors import MessageError
from guard.pep.message_budget import COUNT
from guard.pipeline.admission import (
    LONGEST_RETRY,
    RETRIES_PER_SECOND,
    Admission,
    Limits,
    _Waiter,
)
from guard.settings import Settings

LONG = 3600.0
"""Seconds of patience that no test waits for."""


def admission(judged: int = 4, waiting: int = 8, forwarded: int = 0) -> Admission:
    """Return one whose waiting requests never run out of patience."""
    return Admission(Limits(judged, waiting, LONG, forwarded), now=lambda: 100.0)


def waiting(gate: Admission, principal: str, count: int = 1) -> list[_Waiter]:
    """Have requests of a principal wait, and return them."""
    found = [gate.enter(principal) for _ in range(count)]
    assert all(isinstance(one, _Waiter) for one in found)
    return [one for one in found if isinstance(one, _Waiter)]


def has_turn(waiter: _Waiter) -> bool:
    """Return whether a request that waited goes on."""
    return waiter.turn.done() and waiter.turn.result() is None


def refused(outcome: object) -> MessageError:
    """Return why a request is refused that must be."""
    assert isinstance(outcome, MessageError)
    return outcome


async def test_a_free_place_is_taken_without_waiting() -> None:
    """Requests of two principals fill the places; the next one waits until one is given back."""
    gate = admission(judged=4)
    assert [gate.enter(who) for who in ("a", "a", "b", "b")] == [None] * 4
    [waiter] = waiting(gate, "c")

    assert not waiter.turn.done()
    gate.leave("a")
    assert has_turn(waiter)
    assert gate.waiting == 0


@pytest.mark.parametrize(("places", "left"), [(2, 1), (4, 1), (16, 2), (32, 4)])
async def test_one_principal_leaves_an_eighth_of_the_places(places: int, left: int) -> None:
    """At least one is free for whoever comes, however many of its requests wait."""
    gate = admission(judged=places)
    assert [gate.enter("a") for _ in range(places - left)] == [None] * (places - left)
    waiters = waiting(gate, "a", 3)

    assert [gate.enter("b") for _ in range(left)] == [None] * left
    gate.leave("b")
    assert not any(one.turn.done() for one in waiters)
    gate.leave("a")
    assert [one.turn.done() for one in waiters] == [True, False, False]


async def test_who_comes_second_has_as_many_turns_as_who_has_nearly_all_places() -> None:
    """Of the places that one with a long queue gives back, every other is the newcomer's."""
    gate = admission(judged=8, waiting=40)
    assert [gate.enter("loud") for _ in range(7)] == [None] * 7
    loud = waiting(gate, "loud", 20)
    assert gate.enter("quiet") is None
    quiet = waiting(gate, "quiet", 4)

    for _ in range(6):
        gate.leave("loud")
    assert sum(map(has_turn, quiet)) == 3
    assert sum(map(has_turn, loud)) == 3


async def test_principals_take_turns_whoever_waits_with_more() -> None:
    """Six requests of one principal that came first keep one of another waiting for one turn."""
    gate = admission(judged=2)
    assert [gate.enter("loud"), gate.enter("other")] == [None, None]
    loud = waiting(gate, "loud", 6)
    [quiet] = waiting(gate, "quiet")

    gate.leave("other")
    assert has_turn(quiet)
    assert not loud[0].turn.done()  # Its principal has its half.
    gate.leave("loud")
    assert has_turn(loud[0])
    gate.leave("quiet")
    assert not loud[1].turn.done()


async def test_a_full_queue_lets_the_longest_one_lose_its_last() -> None:
    """Who has queued all the places loses one to who has none; a newcomer of its own is refused."""
    gate = admission(judged=2, waiting=3)
    assert [gate.enter("loud"), gate.enter("other")] == [None, None]
    loud = waiting(gate, "loud", 3)

    error = refused(gate.enter("loud"))
    assert (error.code, error.status) == ("overloaded", 503)
    [quiet] = waiting(gate, "quiet")
    assert refused(loud[2].turn.result()).code == "overloaded"
    assert gate.waiting == 3
    gate.leave("other")
    assert has_turn(quiet)


def test_a_full_queue_refuses_before_unfinished_messages_are_too_many() -> None:
    """Who is refused by the queue is told when to retry, and keeps its connection."""
    assert Settings.model_fields["queue"].default == Limits().waiting < COUNT


async def test_who_has_waited_in_vain_is_refused_and_leaves_no_place_taken() -> None:
    """The refusal says when to come back; the places are as they were."""
    gate = Admission(Limits(judged=2, waiting=4, patience=0.001), now=lambda: 5.0)
    assert [gate.enter("a"), gate.enter("b")] == [None, None]
    [waiter] = waiting(gate, "a")

    assert refused(await gate.wait(waiter)).retry_after == 1
    assert gate.waiting == 0
    gate.leave("a")
    assert gate.enter("a") is None


async def test_nobody_is_refused_before_a_wait_has_ended_while_there_is_room() -> None:
    """However long others have waited: it would ask again at once."""
    gate = Admission(Limits(judged=2, waiting=4, patience=0.01), now=lambda: 0.0)
    assert gate.enter("a") is None
    [first] = waiting(gate, "a")
    await asyncio.sleep(0)
    ends = [first, *waiting(gate, "a", 3)]
    assert refused(gate.enter("a")).code == "overloaded", "there is no room"

    for one in ends:
        assert refused(await gate.wait(one)).code == "overloaded"
        assert asyncio.get_running_loop().time() >= one.ends
    assert gate.waiting == 0
    assert gate.enter("b") is None


async def test_whoever_came_first_goes_on_first_while_its_wait_lasts() -> None:
    """Also where the queue has been slow for long: the last one waits for its turn as the first."""
    gate = admission(judged=2)
    assert gate.enter("a") is None
    waiters = waiting(gate, "a", 5)
    for one in waiters:
        gate.leave("a")
        assert [has_turn(other) for other in waiters].count(True) == waiters.index(one) + 1
        assert has_turn(one)


async def test_what_is_refused_leaves_nothing_for_the_collector() -> None:
    """A refused request and all that it refers to is gone at once, whether or not it waited."""
    gate = Admission(Limits(judged=1, waiting=4, patience=0.001), now=lambda: 5.0)
    assert gate.enter("a") is None

    class Request:
        """What a waiting request holds."""

    async def one() -> weakref.ref[Request]:
        request = Request()
        turn = gate.enter("a")
        outcome = await gate.wait(turn) if isinstance(turn, _Waiter) else turn
        assert isinstance(outcome, MessageError)
        return weakref.ref(request)

    gc.disable()
    try:
        found = await asyncio.gather(*(one() for _ in range(8)))
        assert [one() for one in found] == [None] * 8
    finally:
        gc.enable()


async def test_refused_requests_are_asked_back_one_after_the_other() -> None:
    """So many a second of one principal, never later than the bound; another one's come first."""
    gate = admission(judged=1, waiting=0)
    assert gate.enter("a") is None
    told: list[int] = []
    for _ in range(RETRIES_PER_SECOND * (LONGEST_RETRY + 5)):
        told.append(refused(gate.enter("a")).retry_after)
    assert told == sorted(told)
    assert max(told) == LONGEST_RETRY
    assert abs(told.count(3) - RETRIES_PER_SECOND) <= 1
    assert refused(gate.enter("b")).retry_after == 1


@pytest.mark.parametrize("its_turn", ["before", "as it leaves", "after"])
async def test_a_client_that_leaves_while_it_waits_takes_nothing_with_it(its_turn: str) -> None:
    """Neither a place nor one in the queue, even where its turn comes at the same time."""
    gate = admission(judged=2)
    assert [gate.enter("a"), gate.enter("b")] == [None, None]
    [waiter] = waiting(gate, "c")
    task = asyncio.ensure_future(gate.wait(waiter))
    await asyncio.sleep(0)
    if its_turn == "before":
        gate.leave("a")
    task.cancel()
    if its_turn == "as it leaves":
        gate.leave("a")
    with pytest.raises(asyncio.CancelledError):
        await task
    if its_turn == "after":
        gate.leave("a")
    assert gate.waiting == 0
    assert gate.enter("d") is None
    waiting(gate, "e")


async def test_a_principal_whose_requests_are_not_answered_is_refused() -> None:
    """Other principals go on; so does it, once one is answered."""
    gate = admission(judged=4, forwarded=2)
    gate.sent("a")
    gate.sent("a")
    assert "unanswered" in str(refused(gate.enter("a")))
    assert gate.enter("b") is None
    gate.answered("a")
    assert gate.enter("a") is None


async def test_nobody_waits_beside_a_place_that_is_free() -> None:
    """Whatever the order of coming, going and leaving: the invariant of the class holds."""
    gate = admission(judged=4, waiting=6)
    inside: list[str] = []
    waiters: list[_Waiter] = []
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


async def test_without_a_limit_nobody_waits() -> None:
    """0 is the switch that turns it off."""
    gate = admission(judged=0)

    assert [gate.enter("a") for _ in range(1000)] == [None] * 1000
    gate.leave("a")
