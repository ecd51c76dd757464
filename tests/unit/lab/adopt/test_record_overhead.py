"""What a recording costs: the interval of the ratio."""

import numpy as np

from lab.adopt.record_overhead import ROUNDS, median_interval


def test_the_interval_of_a_median_holds_it_as_often_as_it_says():
    """Drawn from a distribution whose median is known, with the number of rounds that is used."""
    draws = np.sort(np.random.default_rng(1).exponential(size=(4000, ROUNDS)), axis=1)
    held = [low <= np.log(2) <= high for low, high in map(median_interval, draws)]

    assert 0.95 <= np.mean(held) <= 0.99


def test_few_rounds_have_all_their_values_as_interval():
    """Two of five say nothing."""
    assert median_interval([1.0, 1.1, 1.2]) == (1.0, 1.2)
