"""Two texts are joined by any eight words that they share, and by values; not by five words."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.model import DestinationStatus
from guard.extensions.propagation.evidence import (
    RUN,
    evident_values,
    ids_in,
    marks_of,
    outside,
)

WORDS = [f"w{chr(97 + a)}{chr(97 + b)}" for a in range(26) for b in range(26)]


def anything(destination):
    """Take every destination as evidence."""
    del destination
    return True


def shares_run(one, other):
    """Return whether a kept passage of one text stands in a common run in the other."""
    kept, asked = marks_of([one], anything).kept, marks_of([other], anything).runs
    return any(set(runs) & set(asked.get(passage, ())) for passage, runs in kept.items())


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.randoms())
def test_any_run_of_eight_words_joins_two_texts(before, behind, around, chance):
    """Wherever the run stands in either text, one of its passages was kept."""
    words = chance.sample(WORDS, RUN + before + behind + around)
    run, rest = words[:RUN], words[RUN:]
    one = [*rest[:before], *run, *rest[before : before + behind]]
    other = [*rest[before + behind :], *run]

    assert shares_run(" ".join(one), " ".join(other))


def test_fewer_shared_words_join_nothing():
    """Seven words in a row are no copy."""
    words = random.Random(1).sample(WORDS, 60)
    one = " ".join([*words[:20], *words[40:47], *words[20:40]])
    other = " ".join([*words[47:], *words[40:47]])

    assert not shares_run(one, other)


def test_a_decoded_copy_shares_the_run():
    """A text in base 64 is read before it is compared."""
    import base64

    text = "every message to the customers is to be copied to the outer monitor at once"
    assert shares_run(text, base64.b64encode(text.encode()).decode())


def test_internal_addresses_are_no_evidence():
    """What everybody writes to says nothing about where a text came from."""

    def status(destination):
        internal = destination.host == "example.com"
        return DestinationStatus.INTERNAL if internal else DestinationStatus.EXTERNAL

    text = "write to team@example.com and drop@evil.test, see https://evil.test/x"
    found = set(evident_values(text, outside(status)))

    assert "mail:drop@evil.test" in found
    assert "mail:team@example.com" not in found


@pytest.mark.parametrize(("text", "ids"), [("see note_17 now", ["note_17"]), ("plain words", [])])
def test_ids_are_words_with_digits_or_joints(text, ids):
    """A plain word cites nothing."""
    assert list(ids_in(text)) == ids
