"""Counters of the metrics of :mod:`guard.core.metrics`, in the Prometheus text format.

Counting costs the path of a call next to nothing.  The library's own counters take a lock per
increment and look through their buckets one by one: a decision would spend several times as long
on its metrics as on its verdict.  Here one thread, the event loop's, writes plain numbers, and the
scrape's thread copies them; each copy is one operation of the interpreter, so no increment is lost
or counted twice.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, product
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from guard.core import VERSION, declarations, metrics
from guard.core.metrics import (
    DECIDED_WITHOUT_RULE,
    FINDING_CODE,
    NONE,
    OTHER,
    OWN_REASONS,
    REASON_CODE,
    RULE,
    TOOL,
    UNMAPPED,
    Counter,
    Gauge,
    Histogram,
    Label,
    Metric,
    Metrics,
    Share,
)
from guard.core.model import Role
from guard.core.policy import MEMO_LIMIT, Action, Mode, Policy
from guard.detectors import discover_detectors
from guard.policy.rules import discover_rule_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from guard.core.ports import DecisionRecord
    from guard.core.trajectory import Snapshot

_ACTIONS: Final = {action: action.label for action in Action}


_CODE_AND_ACTION: Final = attrgetter("code", "action")
_Series: TypeAlias = "tuple[dict[tuple[str, ...], int], tuple[str, ...]]"
_TOOL_CHARACTERS: Final = 256
"""Maximum characters of a tool's name for which the series of its decisions are remembered."""


class Buckets:
    """The observations of a histogram, counted by bucket."""

    __slots__ = ("_bounds", "_counts", "_labels", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = tuple(float(bound) for bound in bounds)
        self._labels = [
            floatToGoString(bound)  # type: ignore[no-untyped-call]
            for bound in (*self._bounds, float("inf"))
        ]
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value in the first bucket whose bound it does not exceed."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, metric: Metric) -> HistogramMetricFamily:
        """Return the histogram as it is now."""
        counts, total = self._counts.copy(), self._sum
        buckets = list(zip(self._labels, map(float, accumulate(counts)), strict=True))
        family = HistogramMetricFamily(metric.name, metric.help)
        family.add_metric((), buckets, total)
        return family


class RecentShare:
    """Share of true observations among the last ``OBSERVED``."""

    OBSERVED: Final = 100

    def __init__(self) -> None:
        self._bits = 0
        self._count = 0

    def add(self, value: float) -> None:
        """Take one observation; the oldest is forgotten."""
        self._bits = (self._bits << 1 | bool(value)) & ((1 << self.OBSERVED) - 1)
        self._count = min(self._count + 1, self.OBSERVED)

    def __call__(self) -> float:
        """Return the share, 0 before the first observation."""
        return self._bits.bit_count() / self._count if self._count else 0.0


class PrometheusMetrics(Metrics, Collector):
    """Counts on a registry of its own.

    Args:
        policy: its rule ids and tool patterns are values that labels may take.
        models: digest of each model by name.
    """

    def __init__(
        self, policy: Policy | None = None, models: Mapping[str, str] | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        self._in_force: Policy | None = None
        self._tool_labels: dict[str, str] = {}
        self._decided: dict[object, list[_Series]] = {}
        """Series that are counted for decisions that are alike."""
        self._closed: dict[Label, frozenset[str]] = {
            REASON_CODE: reason_codes(),
            FINDING_CODE: finding_codes(),
        }
        # Each by its label values.
        self._counts: dict[Metric, dict[tuple[str, ...], int]] = {}
        self._gauges: dict[Metric, dict[tuple[str, ...], float | Callable[[], float]]] = {}
        self._shares: dict[Metric, dict[tuple[str, ...], RecentShare]] = {}
        self._buckets: dict[Metric, Buckets] = {}
        for metric in metrics.declared():
            self._begin(metric)
        self._closed[RULE] = DECIDED_WITHOUT_RULE | {NONE}
        self.registry.register(self)
        # Processor time, memory and open files of the worker, read when scraped (Linux).
        ProcessCollector(namespace="guard", registry=self.registry)
        self.set(metrics.BUILD_INFO, 1, VERSION)
        for name, digest in (models or {}).items():
            self.set(metrics.MODEL_INFO, 1, name, digest)
        if policy is not None:
            self.set_policy(policy)

    def _begin(self, metric: Metric) -> None:
        """Make a metric's series that exist before anything happens.

        A counter that appears with its first event hides that event from every rate, and an alert
        on a series that does not exist never fires.
        """
        if isinstance(metric, Histogram):
            self._buckets[metric] = Buckets(metric.buckets)
            return
        start = (
            (*self._closed[label], OTHER)
            if label is REASON_CODE
            else self._closed.get(label, label.start)
            for label in metric.labels
        )
        series = list(product(*start))
        if isinstance(metric, Counter):
            self._counts[metric] = dict.fromkeys(series, 0)
        elif isinstance(metric, Gauge):
            self._gauges[metric] = dict.fromkeys(series, 0)
        else:
            self._shares[metric] = {values: RecentShare() for values in series}
            self._gauges[metric] = dict(self._shares[metric])

    def count(self, metric: Counter, *labels: str) -> None:
        """Count one event."""
        series = self._counts[metric]
        if labels not in series:
            labels = self._closed_labels(metric, labels)
        series[labels] = series.get(labels, 0) + 1

    def observe(self, metric: Histogram | Share, value: float, *labels: str) -> None:
        """Take one observation."""
        if isinstance(metric, Histogram):
            self._buckets[metric].add(value)
        else:
            self._shares[metric][labels].add(value)

    def set(self, metric: Gauge, value: float | Callable[[], float], *labels: str) -> None:
        """Set a gauge; a function is asked at every scrape."""
        series = self._gauges[metric]
        series[labels if labels in series else self._closed_labels(metric, labels)] = value

    def _closed_labels(self, metric: Metric, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return label values, ``other`` for each that is not in its closed set."""
        closed: list[str] = []
        for label, value in zip(metric.labels, values, strict=True):
            is_open = label.values is None or value in self._closed.get(label, label.values)
            closed.append(value if is_open else OTHER)
        return tuple(closed)

    def collect(self) -> Iterator[Family]:
        """Yield every family as it is now."""
        for metric, counts in self._counts.items():
            counter = CounterMetricFamily(metric.name, metric.help, labels=metric.label_names)
            for values, count in counts.copy().items():
                counter.add_metric(values, count)
            yield counter
        for metric, numbers in self._gauges.items():
            gauge = GaugeMetricFamily(metric.name, metric.help, labels=metric.label_names)
            for values, number in numbers.copy().items():
                gauge.add_metric(values, number() if callable(number) else number)
            yield gauge
        for metric, buckets in self._buckets.items():
            yield buckets.family(metric)

    def failing(self) -> tuple[str, ...]:
        """Return the stages whose fail-closed gauge is set."""
        gauge = self._gauges[metrics.FAIL_CLOSED]
        return tuple(stage for (stage,), active in gauge.copy().items() if active)

    def set_policy(self, policy: Policy) -> None:
        """Take the rule ids, tool patterns, name and digest of a policy as those in force."""
        self._in_force = policy
        self._tool_labels.clear()
        self._decided.clear()
        rules = {rule.id for rule in policy.rules}
        tools = {pattern.text for mapping in policy.tools for pattern in mapping.declared.patterns}
        self._closed[RULE] = DECIDED_WITHOUT_RULE | rules | {NONE}
        self._closed[TOOL] = frozenset({*tools, UNMAPPED})
        # A scrape in between must not see a guard without a policy: one series replaces the other.
        self._gauges[metrics.POLICY_INFO] = {(policy.digest, policy.name): 1}
        for action in _ACTIONS.values():
            for role in Role:
                labels = (action, role.value, NONE, policy.mode.value)
                self._counts[metrics.DECISIONS].setdefault(labels, 0)
            for tool in self._closed[TOOL]:
                self._counts[metrics.TOOL_DECISIONS].setdefault((tool, action), 0)

    def attempted(self, seconds: float, before: Snapshot) -> None:
        """Count an attempt that the store has written, and what was in it before."""
        buckets, window = self._buckets, before.session
        buckets[metrics.REDIS_SECONDS].add(seconds)
        buckets[metrics.SESSION_CALLS].add(sum(window.attempted) + 1)
        buckets[metrics.REFUSED_IN_A_ROW].add(window.refused_in_a_row)
        self._shares[metrics.LABEL_SATURATION]["source",].add(before.full)
        self._gauges[metrics.FAIL_CLOSED]["state",] = 0

    def decision(self, record: DecisionRecord) -> None:
        """Count a decision that is on record, its time and its score."""
        verdict, call = record.verdict, record.call
        tool = UNMAPPED if call.mapping is None else call.call.tool
        codes = tuple(map(_CODE_AND_ACTION, verdict.reasons))
        kind = verdict.action, verdict.mode, call.role, tool, verdict.decided_by[:1], codes
        counted = self._decided.get(kind)
        if counted is None:
            counted = [*self._counted(record)]
            if len(self._decided) < MEMO_LIMIT and len(tool) <= _TOOL_CHARACTERS:
                self._decided[kind] = counted
        for series, labels in counted:
            series[labels] = series.get(labels, 0) + 1
        self._gauges[metrics.FAIL_CLOSED]["audit",] = 0
        self._buckets[metrics.DECISION_SECONDS].add(record.seconds)
        if verdict.score is not None:
            self._buckets[metrics.PREFIX_SCORE].add(verdict.score)

    def _counted(self, record: DecisionRecord) -> Iterator[_Series]:
        """Yield what is counted of a decision: the same for all that are alike."""
        verdict, call, closed = record.verdict, record.call, self._closed
        action, rule = _ACTIONS[verdict.action], NONE
        if verdict.decided_by:
            rule = verdict.decided_by[0]
        elif verdict.reasons:
            rule = verdict.reasons[0].code
        if rule not in closed[RULE]:
            rule = OTHER
        tool = self._tool_label(call.call.tool) if call.mapping is not None else UNMAPPED
        # Roles and modes are texts themselves; `.value` would cost more than the count.
        wanted: list[tuple[Counter, tuple[str, ...]]] = [
            (metrics.DECISIONS, (action, call.role, rule, verdict.mode)),
            (metrics.TOOL_DECISIONS, (tool, action)),
        ]
        # Each reason once per decision, however many rules gave it.
        codes = closed[REASON_CODE]
        counted: dict[tuple[str, str], None] = {}
        for reason in verdict.reasons:
            code = reason.code if reason.code in codes else OTHER
            counted[code, _ACTIONS[reason.action]] = None
        for given in counted:
            wanted.append((metrics.REASONS, given))
        if verdict.mode is Mode.MONITOR and verdict.would_have_blocked:
            wanted.append((metrics.WOULD_HAVE_BLOCKED, (call.role, rule)))
        for metric, labels in wanted:
            yield self._counts[metric], labels

    def _tool_label(self, tool: str) -> str:
        """Return the name or pattern by which the policy claims a tool."""
        try:
            return self._tool_labels[tool]
        except KeyError:
            # Whichever server's tool it is: the name is the same.
            tools = self._in_force.tools if self._in_force is not None else ()
            label = OTHER
            for mapping in tools:
                if mapping.matches(tool):
                    for pattern in mapping.declared.patterns:
                        if pattern.matches(tool) is True:
                            label = pattern.text
                            break
                    break
            if len(self._tool_labels) < MEMO_LIMIT:
                self._tool_labels[tool] = label
            return label


def reason_codes() -> frozenset[str]:
    """Return the codes of reasons: those that rule types declare, and the guard's own."""
    return OWN_REASONS.union(*(rule.codes for rule in discover_rule_types().values()))


def finding_codes() -> frozenset[str]:
    """Return the codes of what is found in texts that come in, and in tool definitions."""
    texts = (found for found in discover_detectors() if hasattr(found, "inspect_text"))
    return frozenset(declarations.CODES).union(*(found.codes for found in texts))
