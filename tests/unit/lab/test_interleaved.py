"""Turns of two sides, and the ratio that they come to."""

from __future__ import annotations

import math
import random

import pytest

from lab.interleaved import ratio_of

LOSS = 0.97


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
