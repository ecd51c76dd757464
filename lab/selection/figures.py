"""Figures of many questions as checks, with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from guard.replay.reports import Check
from lab.judged_runs import fraction, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

RESAMPLES: Final = 2000


def clustered(rows: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Return the mean of one figure per question and its 95 % percentile bootstrap interval."""
    values = np.asarray(rows, dtype=np.float64)
    rng = np.random.default_rng(0)
    means = [values[rng.integers(0, len(values), len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(values.mean()), (float(low), float(high))


def mean(
    name: str, rows: Sequence[float], target: str | None = None, unit: str = "fraction"
) -> Check:
    """Return the mean of one figure per question, with its interval."""
    if not len(rows):
        return Check(id=name, value=None, unit=unit, reason="no data", target=target)
    value, interval = clustered(rows)
    if set(rows) <= {0.0} or set(rows) <= {1.0}:
        # Rows that are all alike say nothing of their spread when they are drawn again.
        interval = wilson(round(value * len(rows)), len(rows))
    return Check(id=name, value=value, unit=unit, n=len(rows), interval=interval, target=target)


def share(name: str, rows: Sequence[bool], target: str) -> Check:
    """Return the share of trials for which something is so, with its interval."""
    return fraction(name, sum(rows), len(rows), target, "no data")
