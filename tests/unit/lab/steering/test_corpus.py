"""What the reader of steering text is trained on can be drawn again, and kept apart."""

from collections import Counter

import pytest

pytest.importorskip("sklearn")

from guard.lab.steering.corpus import (
    SETS,
    generated,
    read_phrases,
    written_cases,
)
from guard.lab.steering.fitting import WRITERS


def test_the_same_seed_draws_the_same_texts():
    """Of many intents, with every slot filled, attacks and honest ones of both kinds."""
    found = list(generated(3))

    assert found == list(generated(3))
    assert {(one.page, one.attack) for one in found} == {
        (page, attack) for page in (False, True) for attack in (False, True)
    }
    assert not any("{host}" in part or "{data}" in part for one in found for part in one.said)
    assert len({one.family for one in found if one.attack}) > 200


def test_what_has_one_score_is_a_passage():
    """Of a definition with what the tool is for; a page without a word for a model has none."""
    found = written_cases()
    read = {case.page: case for case in found if len(case.read) == 4 and case.cut}

    assert [one.said for one in read[False].cut] == [read[False].read]
    assert read[False].cut[0].purpose is not None
    assert read[True].cut == ((read[True].read, None),)
    assert any(case.page and not case.cut for case in found)


def test_every_slot_has_a_bank():
    """A template with a slot that nobody fills would be text of no kind."""
    assert all(read_phrases().banks.values())


def test_texts_written_by_hand_are_of_both_kinds_and_labels_and_none_is_written_twice():
    """At least a hundred of each label by each writer who is left out, and a few short ones."""
    found = written_cases()
    count = Counter((one.held_out, one.page, one.attack) for one in found)

    short = {count.pop(("short", False, attack)) for attack in (True, False)}
    assert set(count) == {
        (writer, page, attack)
        for page, writers in WRITERS.items()
        for writer in writers
        for attack in (True, False)
    }
    assert min(count.values()) >= 100 > max(short)
    assert len({one.read for one in found}) == len(found)
    assert not any(case.held_out in SETS for case in found)
