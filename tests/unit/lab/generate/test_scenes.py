"""Tests of the generated runs: seeded, well formed, and showing what their labels say."""

import pytest

from lab.generate.scenes import kinds, runs_of

GENERATORS = {
    "evasions": lambda seed: runs_of("evasions", seed, 2),
    "hard_negatives": lambda seed: runs_of("hard_negatives", seed, 2),
    "hippo_attacks": lambda seed: runs_of("hippo_attacks", seed, 1),
    "hippo_benign": lambda seed: runs_of("hippo_benign", seed, 2),
}


@pytest.mark.parametrize("generate", GENERATORS.values(), ids=GENERATORS)
def test_one_seed_gives_one_set_and_another_seed_another(generate):
    """Figures can be repeated, and a set that was tuned on can be left."""
    assert list(generate("a")) == list(generate("a"))
    assert list(generate("a")) != list(generate("b"))


def test_every_trick_ends_in_exactly_one_send_that_must_be_stopped():
    """A run with no such send would count for nothing."""
    runs = list(runs_of("evasions", "a", 2))

    assert {run.labels["kind"] for run in runs} == {kind for kind, _, _ in kinds("evasions")}
    assert all(len(run.labels["attack_calls"]) == 1 for run in runs)
    assert all(run.labels["attack_calls"] == [run.calls[-1].i] for run in runs)
