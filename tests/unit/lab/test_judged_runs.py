"""Tests of the figures that an evaluation reports."""

import pytest

from lab.judged_runs import Tally, wilson


@pytest.mark.parametrize(("hits", "edge"), [(0, 0.0), (20, 1.0)])
def test_the_interval_stays_within_zero_and_one(hits, edge):
    """A rate cannot be better than perfect, and twenty runs do not prove perfection."""
    low, high = wilson(hits, 20)

    assert 0.0 <= low <= high <= 1.0
    assert edge in {round(low, 9), round(high, 9)}
    assert high - low > 0.1


def test_a_rate_over_nothing_is_null_with_a_reason():
    """Nothing measured is not zero."""
    check = Tally(wanted=True).rate("some_id", "= 1")

    assert check.value is None
    assert check.reason
