"""Counters and histograms that cost the path of a call next to nothing.

The library's own take a lock per increment and look through their buckets one by one: a decision
would spend several times as long on its metrics as on its verdict.  Here one thread, the event
loop's, writes plain numbers, and the scrape's thread copies them; each copy is one operation of
the interpreter, so no increment is lost or counted twice.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import CollectorRegistry


class TalliedCounter(Collector):
    """A counter with labels.  Only one thread may call :meth:`inc`.

    Args:
        name: ends in ``_total``.
        documentation: the help text.
        labels: names of the labels, in the order in which their values are given.
        registry: where it is shown.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = tuple(labels)
        self._tally: dict[tuple[str, ...], int] = {}
        registry.register(self)

    def inc(self, *values: str) -> None:
        """Count one event under these label values."""
        self._tally[values] = self._tally.get(values, 0) + 1

    def begin(self, *values: str) -> None:
        """Show a series before its first event."""
        self._tally.setdefault(values, 0)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the family as it is now."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, count in self._tally.copy().items():
            family.add_metric(values, count)
        yield family


class TalliedHistogram(Collector):
    """A histogram without labels.  Only one thread may call :meth:`observe`.

    Args:
        name: without suffix.
        documentation: the help text.
        buckets: upper bounds, ascending; the last one, infinity, is added.
        registry: where it is shown.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = tuple(float(bound) for bound in buckets)
        self._labels = [
            floatToGoString(bound)  # type: ignore[no-untyped-call]
            for bound in (*self._bounds, float("inf"))
        ]
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        """Count a value in the first bucket whose bound it does not exceed."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the family as it is now."""
        counts, total = self._counts.copy(), self._sum
        buckets, below = [], 0
        for label, count in zip(self._labels, counts, strict=True):
            below += count
            buckets.append((label, float(below)))
        family = HistogramMetricFamily(self._name, self._documentation)
        family.add_metric((), buckets, total)
        yield family


class RecentShare:
    """How many of the last ``OBSERVED`` observations were true, as a share."""

    OBSERVED: Final = 100

    def __init__(self) -> None:
        self._bits = 0
        self._count = 0

    def add(self, *, reached: bool) -> None:
        """Take one observation; the oldest is forgotten."""
        self._bits = (self._bits << 1 | reached) & ((1 << self.OBSERVED) - 1)
        self._count = min(self._count + 1, self.OBSERVED)

    def share(self) -> float:
        """Return the share, 0 before the first observation."""
        return self._bits.bit_count() / self._count if self._count else 0.0
