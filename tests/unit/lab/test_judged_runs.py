"""Tests of the figures that an evaluation reports."""

import pytest

from lab.judged_runs import Tally, wilson


def test_the_interval_holds_the_rate_and_narrows_with_more_runs():
    """Ten times the runs say more."""
    low, high = wilson(9, 10)
    narrow = wilson(90, 100)

    assert low < 0.9 < high
    assert low < narrow[0] < 0.9 < narrow[1] < high


@pytest.mark.parametrize(("hits", "edge"), [(0, 0.0), (20, 1.0)])
def test_the_interval_stays_within_zero_and_one(hits, edge):
    """A rate cannot be better than perfect, and twenty runs do not prove perfection."""
    low, high = wilson(hits, 20)

    assert 0.0 <= low <= high <= 1.0
    assert edge in {round(low, 9), round(high, 9)}
    assert high - low > 0.1


def test_a_tally_counts_by_group_and_shows_the_exceptions():
    """The figure is where to begin, the example is where to look."""
    tally = Tally(wanted=True)
    tally.add("run:1", "a", hit=True)
    tally.add("run:2", "a", hit=False)
    tally.add("run:3", "b", hit=True)

    check = tally.rate("some_id", ">= 0.5")

    assert (check.value, check.n) == (pytest.approx(2 / 3), 3)
    assert tally.detail() == {
        "groups": {"a": {"n": 2, "hits": 1}, "b": {"n": 1, "hits": 1}},
        "examples": ["run:2"],
    }


def test_a_rate_over_nothing_is_null_with_a_reason():
    """Nothing measured is not zero."""
    check = Tally(wanted=True).rate("some_id", "= 1")

    assert check.value is None
    assert check.reason


def test_a_count_has_its_n_beside_it():
    """Zero of nothing and zero of a thousand are different things."""
    tally = Tally(wanted=False)
    tally.add("run:1", "a", hit=False)

    check = tally.count("some_id", "sends", "= 0")

    assert (check.value, check.n, check.unit) == (0, 1, "sends")
