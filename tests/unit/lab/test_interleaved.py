"""Turns of two sides, and the ratio that they come to."""

from __future__ import annotations

import math
import random

import pytest

from lab.interleaved import in_turns, ratio_of

LOSS = 0.97


def test_a_block_has_one_side_the_other_twice_and_the_first_again() -> None:
    """Who begins is drawn, from the seed."""
    order: list[str] = []

    def side(name: str) -> str:
        order.append(name)
        return name

    found = list(in_turns(40, lambda: side("a"), lambda: side("b"), seed=3))

    blocks = ["".join(order[at : at + 4]) for at in range(0, len(order), 4)]
    assert found == [(["a", "a"], ["b", "b"])] * 40
    assert set(blocks) == {"abba", "baab"}
    assert 10 < blocks.count("abba") < 30


@pytest.mark.parametrize("count", [12, 60])
def test_the_interval_has_the_true_ratio_as_often_as_it_says(count: int) -> None:
    """Of 300 intervals of blocks, a tenth of which are noisier, about 285 have it."""
    rng = random.Random(7)

    def holds() -> bool:
        drawn = [
            rng.gauss(math.log(LOSS), 0.3 if rng.random() < 0.1 else 0.05) for _ in range(count)
        ]
        found = ratio_of(drawn)
        return found.low <= LOSS <= found.high

    assert 275 <= sum(holds() for _ in range(300)) <= 298
