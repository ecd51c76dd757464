"""Drift of live scores: the score histogram against the one in the model's card.

An operating point does not travel: the same frozen forest flagged 30.6 % of one collection of
benign sessions and 0.7 % of the next (a factor of 44; the paper's own figures).  So the guard's
score metric is compared with the histogram in the model's card.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, ConfigDict, ValidationError

from guard.core.errors import InputError, ModelError
from guard.replay.reports import Check
from lab.histogram import (
    EDGES,
    Histogram,
    critical_distance,
    kolmogorov_smirnov,
    population_stability,
)

if TYPE_CHECKING:
    from guard.core.model import Json

METRIC: Final = "guard_prefix_score"
FEWEST: Final = 100
"""Live scores below which nothing is said."""
PSI_LIMIT: Final = 0.25
"""Above it the population has shifted, by the rule of thumb of credit scoring; 0.1 is a start."""
KS_LIMIT: Final = 0.1
"""A distance must be this large to matter, besides being significant."""
RATIO_LIMIT: Final = 2.0
"""The share flagged may at most double or halve."""


class MetricsError(InputError):
    """Metrics that hold no usable score histogram."""


class _Buckets(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    of: str = ""
    le: tuple[float, ...]
    counts: tuple[int, ...]


class _Threshold(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    value: float


class _Card(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    threshold: _Threshold
    score_histogram: _Buckets | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """What a card says of its model's scores."""

    scores: Histogram
    threshold: float
    of: str


def read_card(content: bytes) -> Reference:
    """Return the score distribution a card holds.

    Raises:
        ModelError: there is none, or it cannot be compared with the live metric.
    """
    try:
        card = _Card.model_validate_json(content)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        message = f"the card does not fit the format (at `{place}`), train the model again"
        raise ModelError(message) from error
    found = card.score_histogram
    if found is None:
        message = f"the card of `{card.name}` has no score histogram, train the model again"
        raise ModelError(message)
    if found.le != EDGES or len(found.counts) != len(EDGES) or not sum(found.counts):
        message = f"the card of `{card.name}` counts other buckets than the metric, train it again"
        raise ModelError(message)
    return Reference(Histogram(tuple(map(float, found.counts))), card.threshold.value, found.of)


def read_metrics(text: str) -> Histogram:
    """Return the score histogram in a scrape, summed over workers and labels.

    Raises:
        MetricsError: the text is not a scrape, or holds no such histogram in these buckets.
    """
    cumulative: dict[float, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == f"{METRIC}_bucket":
                    edge = float(sample.labels["le"])
                    cumulative[edge] = cumulative.get(edge, 0.0) + sample.value
    except (ValueError, KeyError) as error:
        message = "these are not metrics in the Prometheus text format, scrape /metrics of --admin"
        raise MetricsError(message) from error
    if not cumulative:
        message = f"the metrics hold no `{METRIC}`, scrape a guard that loads the model"
        raise MetricsError(message)
    if not set(EDGES) <= set(cumulative):
        message = f"`{METRIC}` has other buckets than the card, train the model again"
        raise MetricsError(message)
    levels = [0.0, *(cumulative[edge] for edge in EDGES)]
    return Histogram(tuple(b - a for a, b in pairwise(levels)))


def since(earlier: Histogram, now: Histogram) -> Histogram:
    """Return the scores between two scrapes.

    Raises:
        MetricsError: a count went down, so the guard was restarted in between.
    """
    counts = tuple(b - a for a, b in zip(earlier.counts, now.counts, strict=True))
    if min(counts) < 0:
        message = "the guard was restarted between the two scrapes, compare without --since"
        raise MetricsError(message)
    return Histogram(counts)


def drift_checks(reference: Reference, live: Histogram) -> tuple[list[Check], list[str]]:
    """Return the figures and, in words, each way in which they are beyond their limits."""
    count = int(live.total)
    if count < FEWEST:
        why = f"{count} live scores are too few to compare, wait for {FEWEST}"
        return [_unmeasured(name, unit, count, why) for name, unit in _UNITS.items()], []
    psi = population_stability(reference.scores, live)
    distance = kolmogorov_smirnov(reference.scores, live)
    critical = critical_distance(reference.scores, live)
    before = reference.scores.share_above(reference.threshold)
    now = live.share_above(reference.threshold)
    ratio = max(now, 0.5 / count) / max(before, 0.5 / reference.scores.total)
    values: dict[str, tuple[float, str | None]] = {
        "psi": (psi, f"<= {PSI_LIMIT}"),
        "ks_distance": (distance, f"<= {max(KS_LIMIT, critical):.3f}"),
        "flagged_share_card": (before, None),
        "flagged_share_live": (now, None),
        "flagged_ratio": (ratio, f"{1 / RATIO_LIMIT} to {RATIO_LIMIT}"),
    }
    found = [
        Check(id=name, value=round(value, 4), unit=_UNITS[name], n=count, target=target)
        for name, (value, target) in values.items()
    ]
    beyond = []
    if psi > PSI_LIMIT:
        beyond.append(f"the population stability index is {psi:.2f}, above {PSI_LIMIT}")
    if distance > max(KS_LIMIT, critical):
        beyond.append(f"the distributions are {distance:.2f} apart, above {KS_LIMIT} and chance")
    if not 1 / RATIO_LIMIT <= ratio <= RATIO_LIMIT:
        beyond.append(f"the share flagged moved from {before:.1%} to {now:.1%}")
    return found, beyond


_UNITS: Final = {
    "psi": "index",
    "ks_distance": "distance",
    "flagged_share_card": "share",
    "flagged_share_live": "share",
    "flagged_ratio": "ratio",
}


def _unmeasured(name: str, unit: str, count: int, why: str) -> Check:
    return Check(id=name, value=None, unit=unit, n=count, reason=why)


def drift_details(reference: Reference, live: Histogram, beyond: list[str]) -> dict[str, Json]:
    """Return both histograms and what is beyond its limit."""
    return {
        "threshold": reference.threshold,
        "card": {"of": reference.of, **reference.scores.to_json()},
        "live": live.to_json(),
        "drifted": beyond,
    }
