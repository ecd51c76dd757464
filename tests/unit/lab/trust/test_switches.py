"""The suite needs each rule of the model: with any one off, some attempt gets through."""

from random import Random

import pytest

from guard.runtime.wiring import assemble
from lab.eval_trust import attempts_of, play
from lab.trust.attacks import Patch
from lab.trust.classes import discover_attacks
from lab.trust.hooks import HOOKS
from lab.trust.model import MODEL
from lab.trust.plots import attempts_in

ATTACKS = discover_attacks()
SWITCHES = [(attack, switch) for attack in ATTACKS for switch in attack.switches]
WITHIN = 400
"""Attempts of a class within which one must get through without a rule."""
SAMPLE = 6
"""Attempts of each class that are played here with everything on; `guard eval trust` plays all."""


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
def test_a_class_is_a_generator_and_says_which_rules_it_needs(attack):
    """Not a list of examples: as many attempts as the plan asks for, the same for the same seed."""
    names = [attempt.name for attempt in attempts_of(attack, "0")]

    assert len(names) >= 150
    assert names == [attempt.name for attempt in attempts_of(attack, "0")]
    assert attack.switches


def test_every_statement_of_the_model_has_a_switch_and_every_switch_a_statement():
    """So that a rule whose absence nothing would notice is seen here."""
    named = [switch for rule in MODEL.values() for some in rule.values() for switch in some]

    assert all(some for rule in MODEL.values() for some in rule.values())
    assert sorted(named) == sorted(f"{attack.id}: {switch.rule}" for attack, switch in SWITCHES)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
async def test_a_sample_of_every_class_is_stopped(world_redis, attack):
    """With every rule on nothing gets through."""
    found = attempts_of(attack, "1", SAMPLE)

    played = [await play(assemble, world_redis, attempt) for attempt in found]

    assert [one for one in played if not one.stopped] == []


@pytest.mark.parametrize(
    "attempt",
    [*attempts_in("locations", Random(0), HOOKS, "honest_plots")],
    ids=lambda attempt: attempt.name,
)
async def test_a_named_location_supplies_what_the_user_means(world_redis, attempt):
    """The loosening is there: without it, the attempts on it would prove nothing."""
    assert (await play(assemble, world_redis, attempt)).got_through


@pytest.mark.parametrize(
    ("attack", "switch"), SWITCHES, ids=[f"{a.id}: {s.rule}" for a, s in SWITCHES]
)
async def test_with_a_rule_switched_off_an_attempt_gets_through(world_redis, attack, switch):
    """Otherwise the rule is not what stops the class, or the class does not try it."""
    with Patch() as patch:
        switch.off(patch)
        found = [one for one in attempts_of(attack, "0") if switch.among in one.name]
        for attempt in found[:WITHIN]:
            if (await play(assemble, world_redis, attempt)).got_through:
                return
    pytest.fail(f"nothing got through without `{switch.rule}`")
