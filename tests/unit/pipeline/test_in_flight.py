"""Calls in flight are bounded by bytes, age and principal, and found without a scan."""

import random
from itertools import count

import pytest

from guard.core.metrics import CALLS_FORGOTTEN
from guard.pipeline.in_flight import OVERHEAD, InFlight
from tests.guards import Counts

MIB = 1024 * 1024


def key(correlation, principal="p", session="s", kind="message"):
    """Return the key of a call."""
    return (kind, "server", principal, session, str(correlation))


@pytest.mark.parametrize(
    ("principals", "limit", "kept", "why"), [(1, 16, 4, "principal"), (64, 8, 8, "bytes")]
)
def test_a_principal_holds_no_more_than_its_share_of_the_bytes(principals, limit, kept, why):
    """Its own oldest entries are removed, not those of others; all together hold the limit."""
    counts = Counts()
    held = InFlight(limit=limit * MIB, metrics=counts)
    held.add(key(0, "other"), "small", 10)
    for number in range(200):
        held.add(key(number, f"loud{number % principals}"), "large", MIB)
    assert held.size <= kept * MIB + OVERHEAD + 100
    assert held.holds(key(0, "other")) is (principals == 1)
    assert held.holds(key(199, f"loud{199 % principals}"))
    assert not held.holds(key(0, "loud0"))
    held.add(key(1), "huge", limit * MIB)
    assert held.take(key(1)) is None
    assert (CALLS_FORGOTTEN, why) in counts.counted


@pytest.mark.parametrize("kind", ["message", "task", "model"])
def test_an_old_entry_is_removed_without_an_answer(kind):
    """A call in a model's answer whose result is never reported does not stay."""
    counts, times = Counts(), iter([0.0, 59.0, 60.0, 60.0])
    held = InFlight(seconds=60.0, now=times.__next__, metrics=counts)
    held.add(key(1, kind=kind), "old", 10)
    assert held.holds(key(1, kind=kind))
    assert held.take(key(1, kind=kind)) is None
    assert (held.size, len(held)) == (0, 0)
    assert counts.counted == [(CALLS_FORGOTTEN, "age")]


def test_every_index_agrees_with_the_entries():
    """Entries are added, taken and removed in any order, and the sums stay right."""
    draw = random.Random(11)
    held = InFlight(limit=200_000, seconds=50.0, now=count(step=0.5).__next__)
    for _ in range(5000):
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
