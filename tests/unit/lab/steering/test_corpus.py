"""What the reader of steering text is trained on can be drawn again, and kept apart."""

from collections import Counter

from guard.content.steering_reader import windows
from guard.lab.steering.corpus import (
    SETS,
    earlier_cases,
    generated,
    of_cases,
    read_phrases,
    written_cases,
)


def test_the_same_seed_draws_the_same_texts():
    """Of many intents, with every slot filled, attacks and honest ones of both kinds."""
    found = list(generated(3))

    assert found == list(generated(3))
    assert {(one.page, one.attack) for one in found} == {
        (page, attack) for page in (False, True) for attack in (False, True)
    }
    assert not any("{host}" in part or "{data}" in part for one in found for part in one.said)
    assert len({one.family for one in found if one.attack}) > 200


def test_templates_like_a_case_that_is_left_out_are_left_out():
    """So that a figure on it is about words that the fit has not had."""
    cases = [case for case in earlier_cases() if case.held_out == "d"]
    families = {one.family for one in generated(3) if one.attack}
    left = {one.family for one in generated(3, cases) if one.attack}

    assert left < families
    said = {part for one in generated(3, cases) for part in one.said}
    assert not any("returns stale copies since Tuesday" in part for part in said)


def test_an_attack_weighs_the_same_however_many_sentences_it_has():
    """Its windows share one weight."""
    cases = [case for case in earlier_cases() if case.attack]

    units = list(of_cases(cases))

    assert {
        round(sum(one.weight for one in units if one.family == family), 6)
        for family in {u.family for u in units}
    } == {3.0}


def test_what_has_one_score_is_a_window_of_a_definition_or_a_passage_of_a_page():
    """A page without a word for a model has none."""
    found = written_cases()
    read = {case.page: case for case in found if len(case.read) == 4 and case.cut}

    assert read[False].cut == tuple(windows(read[False].read))
    assert read[True].cut == (read[True].read,)
    assert any(case.page and not case.cut for case in found)


def test_every_slot_has_a_bank():
    """A template with a slot that nobody fills would be text of no kind."""
    assert all(read_phrases().banks.values())


def test_texts_written_by_hand_are_of_both_kinds_and_labels_and_none_is_written_twice():
    """At least a hundred of each kind and label by each of four writers."""
    found = written_cases()
    count = Counter((one.held_out, one.page, one.attack) for one in found)

    assert len({one.held_out for one in found}) == 4
    assert len(count) == 16
    assert min(count.values()) >= 100
    assert len({one.read for one in found}) == len(found)
    assert not any(case.held_out in SETS for case in found)
