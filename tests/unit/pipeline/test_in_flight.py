"""Calls in flight are bounded by bytes, age and principal, and found without a scan."""

import random

import pytest

from guard.core.metrics import CALLS_FORGOTTEN
from guard.pipeline.in_flight import OVERHEAD, InFlight
from tests.guards import Counts

MIB = 1024 * 1024


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self):
        """Return its time."""
        return self.now


def key(correlation, principal="p", session="s", kind="message"):
    """Return the key of a call."""
    return (kind, "server", principal, session, str(correlation))


def test_a_principal_holds_no_more_than_its_share_of_the_bytes():
    """Its own oldest entries are removed; those of others stay."""
    counts = Counts()
    held = InFlight(limit=16 * MIB, metrics=counts)
    held.add(key(0, "other"), "small", 10)
    for number in range(200):
        held.add(key(number, "loud"), "large", MIB)
    assert held.size <= 4 * MIB + OVERHEAD + 100
    assert held.holds(key(0, "other"))
    assert held.holds(key(199, "loud"))
    assert not held.holds(key(0, "loud"))
    assert set(counts.counted) == {(CALLS_FORGOTTEN, "principal")}


def test_all_principals_together_hold_no_more_than_the_limit():
    """The oldest entries are removed, whoever has them."""
    counts = Counts()
    held = InFlight(limit=8 * MIB, metrics=counts)
    for number in range(64):
        held.add(key(number, f"p{number}"), "large", MIB)
    assert held.size <= 8 * MIB
    assert (CALLS_FORGOTTEN, "bytes") in counts.counted


def test_an_entry_larger_than_a_share_is_not_kept():
    """Its result then answers no call that is known."""
    held = InFlight(limit=4 * MIB)
    held.add(key(1), "huge", 2 * MIB)
    assert held.take(key(1)) is None
    assert held.size == 0


@pytest.mark.parametrize("kind", ["message", "task", "model"])
def test_an_old_entry_is_removed_without_an_answer(kind):
    """A call in a model's answer whose result is never reported does not stay."""
    clock, counts = Clock(), Counts()
    held = InFlight(seconds=60.0, now=clock, metrics=counts)
    held.add(key(1, kind=kind), "old", 10)
    clock.now = 59.0
    assert held.holds(key(1, kind=kind))
    clock.now = 60.0
    assert held.take(key(1, kind=kind)) is None
    assert (held.size, len(held), held.awaited()) == (0, 0, 0)
    assert counts.counted == [(CALLS_FORGOTTEN, "age")]


def test_every_index_agrees_with_the_entries():
    """Entries are added, taken and removed in any order, and the sums stay right."""
    draw = random.Random(11)
    clock = Clock()
    held = InFlight(limit=200_000, seconds=50.0, now=clock)
    for _ in range(5000):
        clock.now += draw.random()
        one = key(draw.randrange(60), draw.choice("abc"), draw.choice("st"))
        if draw.random() < 0.6:
            held.add(one, "call", draw.randrange(4000))
        else:
            held.take(one)
        entries = held._entries
        assert held.size == sum(entry.size for entry in entries.values()) <= 200_000
        owned = [each for owner in held._owners.values() for each in owner.keys]
        indexed = [each for stream in held._streams.values() for each in stream]
        assert sorted(owned) == sorted(indexed) == sorted(entries)
        assert all(owner.size <= 50_000 for owner in held._owners.values())
