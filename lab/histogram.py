"""Scores counted in the buckets of the live metric, and how far two such counts are apart.

Pure: no I/O.  Needs nothing beyond numpy, so that an operator's machine can compare.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.metrics import PREFIX_SCORE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.model import Json

EDGES: Final = PREFIX_SCORE.buckets
"""Upper edges, inclusive, of the metric ``guard_prefix_score``."""
_HALF_A_SCORE: Final = 0.5
"""Added to every bucket, so that an empty one does not make the index infinite."""
_KOLMOGOROV_05: Final = 1.358
"""Critical value at 5 %; conservative on buckets, where distances can only be smaller."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Scores by bucket."""

    counts: tuple[float, ...]
    """Per bucket of :data:`EDGES`, not cumulative."""

    @property
    def total(self) -> float:
        """How many scores."""
        return sum(self.counts)

    def shares(self) -> tuple[float, ...]:
        """Return each bucket's share, with half a score added to each."""
        whole = self.total + _HALF_A_SCORE * len(self.counts)
        return tuple((count + _HALF_A_SCORE) / whole for count in self.counts)

    def share_above(self, threshold: float) -> float:
        """Return the share of scores above the bucket edge nearest to a threshold."""
        cut = min(range(len(EDGES)), key=lambda index: abs(EDGES[index] - threshold))
        return sum(self.counts[cut + 1 :]) / self.total

    def to_json(self) -> dict[str, Json]:
        """Return it as a card holds it."""
        return {"le": list(EDGES), "counts": [int(count) for count in self.counts]}


def count(scores: Iterable[float]) -> Histogram:
    """Return how many scores fall in each bucket; an edge belongs to the bucket below it."""
    counts = [0.0] * len(EDGES)
    for score in scores:
        # Scores are float32: 0.8 is stored as 0.800000012 and still counts as 0.8.
        counts[min(bisect_left(EDGES, round(float(score), 6)), len(EDGES) - 1)] += 1
    return Histogram(tuple(counts))


def population_stability(expected: Histogram, found: Histogram) -> float:
    """Return the population stability index: 0 for equal shares, symmetric, unbounded."""
    return sum(
        (new - old) * math.log(new / old)
        for old, new in zip(expected.shares(), found.shares(), strict=True)
    )


def kolmogorov_smirnov(expected: Histogram, found: Histogram) -> float:
    """Return the largest distance of the two cumulative distributions, from 0 to 1."""
    largest = old = new = 0.0
    for left, right in zip(expected.counts, found.counts, strict=True):
        old += left / expected.total
        new += right / found.total
        largest = max(largest, abs(old - new))
    return largest


def critical_distance(expected: Histogram, found: Histogram) -> float:
    """Return the distance that two samples of one distribution exceed in 5 % of cases."""
    n, m = expected.total, found.total
    return _KOLMOGOROV_05 * math.sqrt((n + m) / (n * m))
