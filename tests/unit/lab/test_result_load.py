"""The texts that are measured with, and the figures made of what was measured."""

import pytest

from guard.destinations.values import find_values
from lab import result_load
from lab.result_load import (
    HUGE,
    LARGE,
    MEDIUM,
    SMALL,
    SmallCallTimes,
    Spent,
    page,
    result_checks,
)


@pytest.mark.parametrize("size", [SMALL, MEDIUM, LARGE, HUGE])
def test_a_page_has_its_size_and_is_another_for_another_number(size):
    """So a guard sees each for the first time, and both revisions see the same."""
    assert len(page(size, 1)) == size
    assert page(size, 1) == page(size, 1)
    assert page(size, 1) != page(size, 2)


def test_a_page_names_receivers_now_and_then():
    """Prose alone would be cheaper to read than what tools give back."""
    found = find_values(page(MEDIUM, 3)).plain

    assert any(value.startswith("mail:") for value in found)
    assert any(value.startswith("url:") for value in found)


def test_ratios_are_those_of_rounds_and_absent_without_a_base(monkeypatch, tmp_path):
    """The median of each round's ratio; what was not measured says why."""
    monkeypatch.setattr(
        result_load,
        "_small_beside_huge",
        lambda *_: SmallCallTimes([1.0] * 100, [2.5] * 100, [9.0]),
    )
    monkeypatch.setattr(
        result_load,
        "_first_sight",
        lambda *_: {
            size: [(Spent(cpu, 1.0), Spent(100.0, 1.0)) for cpu in (10.0, 20.0, 60.0)]
            for size in (SMALL, MEDIUM, LARGE)
        },
    )
    monkeypatch.setattr(result_load, "_same_calls", lambda *_: [(5.0, 10.0), (4.0, 10.0)])
    told = []

    with_base, _ = result_checks(tmp_path, tmp_path, rounds=3, progress=told.append)
    without, _ = result_checks(tmp_path, None, rounds=3, progress=told.append)

    assert [check.value for check in with_base] == [0.45, 0.2, 0.2, 0.2, 2.5]
    assert [check.value for check in without] == [None, None, None, None, 2.5]
    assert all(check.reason for check in without[:4])
    assert with_base[0].interval == (0.4, 0.5)
