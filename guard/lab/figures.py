"""Figures over judged calls: rates with intervals, counts, and what was missed.  Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any

from guard.replay.reports import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from guard.lab.judged_runs import JudgedCall

_Z = 1.96
"""Standard deviations of a two-sided 95 % interval."""
_EXAMPLES = 12


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a rate; ``n`` is at least 1.

    Runs of one model at temperature 0 repeat each other, so for them it is too narrow.
    """
    rate = hits / n
    centre = (rate + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(slots=True)
class Tally:
    """Hits among things of one sort, by group, with examples of the exceptions.

    Attributes:
        wanted: what a thing should be; the examples are of things that are not.
    """

    wanted: bool
    hits: int = 0
    n: int = 0
    groups: dict[str, Counter[str]] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def add(self, name: str, group: str, *, hit: bool) -> None:
        """Count one thing."""
        self.n += 1
        self.hits += hit
        self.groups.setdefault(group, Counter()).update({"n": 1, "hits": int(hit)})
        if hit is not self.wanted and len(self.examples) < _EXAMPLES:
            self.examples.append(name)

    def rate(self, check: str, target: str) -> Check:
        """Return the figure as a fraction."""
        if not self.n:
            return Check(
                id=check, value=None, unit="fraction", n=0, target=target, reason="nothing to count"
            )
        interval = wilson(self.hits, self.n)
        return Check(
            id=check,
            value=self.hits / self.n,
            unit="fraction",
            n=self.n,
            interval=interval,
            target=target,
        )

    def count(self, check: str, unit: str, target: str | None) -> Check:
        """Return the figure as a count."""
        return Check(id=check, value=self.hits, unit=unit, n=self.n, target=target)

    def detail(self) -> dict[str, Any]:
        """Return the groups and the exceptions."""
        groups = {name: dict(counts) for name, counts in sorted(self.groups.items())}
        return {"groups": groups, "examples": self.examples}


def tally(
    calls: Iterable[JudgedCall],
    group: Callable[[JudgedCall], str],
    hit: Callable[[JudgedCall], bool],
    *,
    wanted: bool,
) -> Tally:
    """Return the count of calls for which ``hit`` holds."""
    result = Tally(wanted)
    for judged in calls:
        name = f"{judged.run.run_id}:{judged.call.i}"
        result.add(name, group(judged), hit=hit(judged))
    return result
