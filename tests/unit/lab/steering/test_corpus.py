"""What the reader of steering text is trained on can be drawn again, and kept apart."""

from guard.lab.steering.corpus import (
    Unit,
    earlier_cases,
    generated,
    known_servers,
    of_cases,
    read_phrases,
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


def test_every_slot_has_a_bank_and_known_servers_are_honest():
    """A template with a slot that nobody fills would be text of no kind."""
    phrases = read_phrases()

    assert all(phrases.banks.values())
    assert all(isinstance(one, Unit) and not one.attack for one in known_servers())
