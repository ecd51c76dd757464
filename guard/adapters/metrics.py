"""Metrics in the Prometheus text format: families, closed label sets, counts.

No session, principal or destination is ever a label, and of tools only the names and patterns that
the policy itself writes: clients choose the rest, and each new value would be a new time series
for good.  A label never takes a value from outside the sets in this file and the policy's own
names; what is not among them counts as ``other``.  Whoever adds a code adds it here: the house
test says which is missing.  ``docs/metrics.md`` describes every family.

The library's own counters take a lock per increment and look through their buckets one by one: a
decision would spend several times as long on its metrics as on its verdict.  Here one thread, the
event loop's, writes plain numbers, and the scrape's thread copies them; each copy is one operation
of the interpreter, so no increment is lost or counted twice.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from guard import __version__
from guard.content.leak_patterns import CODES, INJECTION
from guard.core.declarations import CHANGED
from guard.core.declarations import CODES as DEFINITION_CODES
from guard.core.memory import GATE_REASONS, Fate, MemoryClass
from guard.core.model import Role
from guard.core.policy import MEMO_LIMIT, Action, Mode
from guard.core.ports import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from guard.core.policy import Policy, Verdict
    from guard.core.ports import DecisionRecord
    from guard.core.trajectory import Window


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


FINDING_CODES: Final = frozenset({INJECTION, *DEFINITION_CODES})
"""What can be found in a text that comes in."""
FINDING_SOURCES: Final = frozenset({"result", "definition", "listing", "request"})
"""What it was found in."""
STAGES: Final = (
    "parse",
    "state",
    "detector",
    "rule",
    "provenance",
    "model",
    "audit",
    "policy",
    "memory",
    "hook",
    "upstream",
    "tls",
    "other",
)
"""Parts that can fail; the last stands for any name that is not among them."""
DECIDED_WITHOUT_RULE: Final = frozenset(
    {"no_policy", "guard_error", "no_rule_matched", "audit_error", "batch_refused"}
    | {"redaction_failed", *GATE_REASONS}
)
"""Reason codes of verdicts that no rule decided; they stand in the ``rule`` label."""
REFUSAL_CODES: Final = frozenset(
    {
        "ambiguous_key",
        "ambiguous_path",
        "bad_answer",
        "bad_call",
        "bad_content_encoding",
        "bad_content_type",
        "bad_credential",
        "bad_fields",
        "bad_host",
        "bad_http",
        "bad_http_method",
        "bad_json",
        "bad_jsonrpc",
        "bad_model_request",
        "bad_session_id",
        "bad_transfer_encoding",
        "body_too_large",
        "call_without_id",
        "call_without_name",
        "connect",
        "definitions_unchecked",
        "dns",
        "duplicate_header",
        "duplicate_key",
        "guard_error",
        "header_mismatch",
        "host_mismatch",
        "port",
        "redaction_failed",
        "private_address",
        "raw_tcp",
        "raw_udp",
        "result_withheld",
        "trailers",
        "two_protocols",
        "unexpected_body",
        "unreadable_frame",
        "unknown_method",
        "upgrade",
        "write_credential",
    }
)
"""Refusals of what was never a call: the codes of :class:`guard.core.errors.MessageError`."""
REASON_CODES: Final = frozenset(
    {
        *CODES,
        "too_large_to_inspect",
        "injection_in_result",
        "result_too_large",
        "audit_error",
        "batch_refused",
        "redaction_failed",
        "argument",
        "argument_missing",
        "expression",
        "rate_exceeded",
        "integrity_low",
        "session_rung_low",
        "principal_rung_low",
        "deny_loop",
        "destination_allowed",
        "destination_denied",
        "destination_external",
        "destination_internal",
        "destination_malformed",
        "destination_missing",
        "granted",
        "guard_error",
        "no_policy",
        "no_rule_matched",
        "prefix_score",
        "private_in_body",
        "provenance_claimed",
        "provenance_denied",
        "provenance_established",
        "provenance_granted",
        "provenance_listed",
        "provenance_prompted",
        "provenance_remembered",
        "provenance_reply",
        "provenance_saturated",
        "provenance_tainted",
        "provenance_unknown",
        "recall_before_send",
        "rule_error",
        "sequence",
        CHANGED,
        "tool_role",
        "tool_unmapped",
        *GATE_REASONS,
    }
)
"""Why calls get the verdict they get: the codes of :class:`guard.core.policy.Reason`."""
RECOVERED: Final = "recovered"
"""Stands in the ``reason`` label of a write whose fate was found out afterwards."""
OUTCOMES: Final = frozenset({"refused", "proposal_refused", *(fate.value for fate in Fate)})
"""What can become of a memory write."""
BOUNDS: Final = ("result", "source")
"""Bounds of labels: of one result; of a source or set, by which its principal is marked full."""
UNMAPPED: Final = "unmapped"
"""Stands in the ``tool`` label for every tool that no mapping claims."""
OTHER: Final = "other"
NONE: Final = "none"
TIME_BUCKETS: Final = (
    0.00005,
    0.0001,
    0.0002,
    0.0004,
    0.0007,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
)
"""Seconds."""
SCORE_BUCKETS: Final = tuple(step / 10 for step in range(1, 11))
RUN_BUCKETS: Final = (0, 1, 2, 3, 5, 10, 20, 50)
"""Refusals in a row."""
CALL_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Calls of one session."""


# A second series beside each counter and histogram, which no query of ours asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]


class MetricFamilies:
    """The families, registered."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._make_counters(registry)
        self._make_histograms(registry)
        self._make_gauges(registry)
        # Processor time, memory and open files of the worker, read when scraped (Linux).
        ProcessCollector(namespace="guard", registry=registry)

    def _make_counters(self, registry: CollectorRegistry) -> None:
        counter = partial(TalliedCounter, registry=registry)
        # Counted too seldom to be tallied first.
        plain = partial(Counter, registry=registry)
        self.decisions = counter(
            "guard_decisions_total",
            "Calls judged, by action, role of the tool, deciding rule and mode.",
            ("action", "role", "rule", "mode"),
        )
        self.would = counter(
            "guard_would_have_blocked_total",
            "Calls that monitor mode let through and enforce mode would have refused.",
            ("role", "rule"),
        )
        self.tool_decisions = counter(
            "guard_tool_decisions_total",
            "Calls judged, by the name or pattern under which the policy maps the tool.",
            ("tool", "action"),
        )
        self.reasons = counter(
            "guard_reasons_total",
            "Decisions that had a reason of this code, by the action it asked for.",
            ("code", "action"),
        )
        self.findings = counter(
            "guard_findings_total",
            "What was found in texts that came in and in tool definitions, by code.",
            ("code", "source"),
        )
        self.errors = counter(
            "guard_errors_total", "Errors, by the part that failed; each is a block.", ("stage",)
        )
        self.memory_writes = counter(
            "guard_memory_writes_total",
            "Memory writes by what became of them, the first reason, and the class.",
            ("outcome", "reason", "class"),
        )
        self.memory_drift = plain(
            "guard_memory_drift_total",
            "Subjects that a principal's committed memory was found to push.",
        )
        self.refusals = counter(
            "guard_refusals_total", "Messages refused before they were calls, by code.", ("code",)
        )
        self.policy_reloads = plain(
            "guard_policy_reloads_total",
            "Attempts to put changed policy files in force, by outcome.",
            ("outcome",),
        )
        for outcome in ("swapped", "kept"):
            self.policy_reloads.labels(outcome)

    def _make_histograms(self, registry: CollectorRegistry) -> None:
        histogram = partial(TalliedHistogram, registry=registry)
        self.decision_seconds = histogram(
            "guard_decision_seconds",
            "From the parsed call to the verdict, the session store included.",
            buckets=TIME_BUCKETS,
        )
        self.redis_seconds = histogram(
            "guard_redis_seconds", "One round trip to the session store.", buckets=TIME_BUCKETS
        )
        self.upstream_seconds = histogram(
            "guard_upstream_seconds",
            "From forwarding a request to the head of its answer.",
            buckets=(*TIME_BUCKETS, 2.5, 5.0, 10.0, 30.0),
        )
        self.score = histogram(
            "guard_prefix_score",
            "Scores of the prefix classifier, in [0, 1].",
            buckets=SCORE_BUCKETS,
        )
        self.session_calls = histogram(
            "guard_session_calls",
            "Which call of its session each call judged was; 1 is the first.",
            buckets=CALL_BUCKETS,
        )
        self.refused_in_a_row = histogram(
            "guard_refused_in_a_row",
            "Refusals of the session directly before each call judged.",
            buckets=RUN_BUCKETS,
        )

    def _make_gauges(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self.closed = gauge(
            "guard_fail_closed",
            "1 while a part is failing and calls are blocked for it.",
            ("stage",),
        )
        self.policy = gauge(
            "guard_policy_info", "The policy in force; always 1.", ("digest", "name")
        )
        self.policy_stale = gauge(
            "guard_policy_stale",
            "1 while the policy files have a problem and an earlier policy is in force.",
        )
        self.models = gauge("guard_model_info", "The models loaded; always 1.", ("model", "digest"))
        self.score_expected = gauge(
            "guard_prefix_score_expected",
            "Share of the training data's scores up to this bound, from the model's card.",
            ("le",),
        )
        self.saturation = gauge(
            "guard_label_saturation",
            "Share of the last hundred looks at a bound of labels that found it reached.",
            ("bound",),
        )
        self.labels_incomplete = gauge(
            "guard_labels_incomplete", "1 while labels that the store lost may be missing."
        )
        self.unlabelled = gauge(
            "guard_unlabelled_marks",
            "Results released while the store could not be told, and not written since.",
        )
        self.awaited = gauge(
            "guard_calls_awaited", "Calls forwarded whose result has not come back."
        )
        self.restarts = gauge(
            "guard_worker_restarts", "Times the supervisor has started this worker anew."
        )
        build = gauge("guard_build_info", "The version; always 1.", ("version",))
        build.labels(__version__).set(1)


LABELS: Final = {action: action.label for action in Action}


class PrometheusMetrics(Metrics):
    """Counters and histograms on a registry of their own.

    Args:
        policy: its rule ids are the values the ``rule`` label may take.
        models: digest of each model by name.
        refusal_codes: the codes ``refusal`` may count; any other counts as ``other``.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        models: Mapping[str, str] | None = None,
        refusal_codes: Iterable[str] = REFUSAL_CODES,
    ) -> None:
        self.registry = CollectorRegistry()
        self._in_force: Policy | None = None
        self._policy_names: tuple[str, str] | None = None
        self._rules: frozenset[str] = frozenset()
        self._tool_labels: dict[str, str] = {}
        self._families = MetricFamilies(self.registry)
        self._saturation = self._shares()
        self._refusal_codes = frozenset(refusal_codes)
        for action in LABELS.values():
            for code in (*REASON_CODES, OTHER):
                self._families.reasons.begin(code, action)
        for code in (*self._refusal_codes, OTHER):
            self._families.refusals.begin(code)
        for code in FINDING_CODES:
            for source in FINDING_SOURCES:
                self._families.findings.begin(code, source)
        for stage in STAGES:
            self._families.errors.begin(stage)
        for outcome in OUTCOMES:
            self._families.memory_writes.begin(outcome, NONE, OTHER)
        self._closed_children = {stage: self._families.closed.labels(stage) for stage in STAGES}
        self._closed_now: dict[str, bool] = dict.fromkeys(STAGES, False)
        if policy is not None:
            self.set_policy(policy)
        for name, digest in (models or {}).items():
            self._families.models.labels(name, digest).set(1)

    def _shares(self) -> dict[str, RecentShare]:
        """Return what the gauge of label bounds shows, by bound."""
        shares = {bound: RecentShare() for bound in BOUNDS}
        for bound, recent in shares.items():
            self._families.saturation.labels(bound).set_function(recent.share)
        return shares

    def set_policy(self, policy: Policy) -> None:
        """Take the rule ids, tool patterns, name and digest of the policy in force."""
        self._in_force = policy
        self._rules = frozenset(rule.id for rule in policy.rules)
        self._tool_labels.clear()
        # The new series first: a scrape in between must not see a guard without a policy.
        names = (policy.digest, policy.name)
        self._families.policy.labels(*names).set(1)
        if self._policy_names not in {None, names}:
            self._families.policy.remove(*self._policy_names)
        self._policy_names = names
        self._begin_at_zero(policy)

    def policy_reload(self, outcome: str, policy: Policy) -> None:
        """Count a reload; ``policy`` is the one in force after it."""
        self._families.policy_reloads.labels(outcome).inc()
        self._families.policy_stale.set(0 if outcome == "swapped" else 1)
        self.set_policy(policy)

    def _begin_at_zero(self, policy: Policy) -> None:
        """Make the series that exist before anything happens.

        A counter that appears with its first event hides that event from every rate, and a share
        of nothing refused would be no share at all.
        """
        for action in LABELS.values():
            for role in Role:
                self._families.decisions.begin(action, role.value, NONE, policy.mode.value)
            for mapping in policy.tools:
                for pattern in mapping.patterns:
                    self._families.tool_decisions.begin(pattern.text, action)
            self._families.tool_decisions.begin(UNMAPPED, action)
        for role in Role:
            self._families.would.begin(role.value, NONE)

    def decision(self, record: DecisionRecord) -> None:
        """Count a decision, its time and its score."""
        verdict, call, families = record.verdict, record.call, self._families
        action, rule = LABELS[verdict.action], self._rule_label(verdict)
        # Roles and modes are texts themselves; `.value` would cost more than the count.
        families.decisions.inc(action, call.role, rule, verdict.mode)
        tool = self._tool_label(call.call.tool) if call.mapped else UNMAPPED
        families.tool_decisions.inc(tool, action)
        self._count_reasons(verdict)
        families.decision_seconds.observe(record.seconds)
        if verdict.score is not None:
            families.score.observe(verdict.score)
        if verdict.mode is Mode.MONITOR and verdict.would_have_blocked:
            families.would.inc(call.role, rule)

    def error(self, stage: str) -> None:
        """Count an error of a stage; an unknown stage counts as ``other``."""
        self._families.errors.inc(stage if stage in STAGES else OTHER)

    def fail_closed(self, stage: str, *, active: bool) -> None:
        """Set the gauge of a stage."""
        known = stage if stage in self._closed_children else OTHER
        if self._closed_now[known] is not active:
            self._closed_now[known] = active
            self._closed_children[known].set(1 if active else 0)

    def failing(self) -> tuple[str, ...]:
        """Return the stages whose fail-closed gauge is set."""
        return tuple(stage for stage, active in self._closed_now.items() if active)

    def redis_latency(self, seconds: float) -> None:
        """Observe one round trip to the session store."""
        self._families.redis_seconds.observe(seconds)

    def finding(self, code: str, source: str) -> None:
        """Count a finding; what is outside the closed sets counts as ``other``."""
        self._families.findings.inc(
            code if code in FINDING_CODES else OTHER,
            source if source in FINDING_SOURCES else OTHER,
        )

    def memory_drift(self) -> None:
        """Count a subject that committed items push."""
        self._families.memory_drift.inc()

    def memory_write(self, outcome: str, reason: str, target: str) -> None:
        """Count what became of a memory write; names outside the closed sets count as other."""
        self._families.memory_writes.inc(
            outcome if outcome in OUTCOMES else OTHER,
            reason if reason in GATE_REASONS or reason in {NONE, RECOVERED} else OTHER,
            target if target in MemoryClass.__members__ else OTHER,
        )

    def upstream_latency(self, seconds: float) -> None:
        """Observe the time an upstream took to begin its answer."""
        self._families.upstream_seconds.observe(seconds)

    def refusal(self, code: str) -> None:
        """Count a message refused before it was a call; an unknown code counts as ``other``."""
        self._families.refusals.inc(code if code in self._refusal_codes else OTHER)

    def session_seen(self, session: Window) -> None:
        """Observe the session of a call, as it was before the call."""
        self._families.session_calls.observe(sum(session.attempted) + 1)
        self._families.refused_in_a_row.observe(session.refused_in_a_row)

    def saturation(self, bound: str, *, reached: bool) -> None:
        """Take one more look at a bound into the share that its gauge shows."""
        self._saturation[bound].add(reached=reached)

    def labels_incomplete(self, *, active: bool) -> None:
        """Set whether labels that the store lost may be missing."""
        self._families.labels_incomplete.set(1 if active else 0)

    def unlabelled_marks(self, count: int) -> None:
        """Set how many results were released that the store could not be told of."""
        self._families.unlabelled.set(count)

    def show_awaited(self, count: Callable[[], int]) -> None:
        """Ask ``count`` on every scrape how many calls were forwarded and not answered yet."""
        self._families.awaited.set_function(count)

    def expect_scores(self, shares: Mapping[float, float]) -> None:
        """Show what share of the scores the model's card expects up to each bound."""
        for bound, share in shares.items():
            self._families.score_expected.labels(str(float(bound))).set(share)
        if shares:
            self._families.score_expected.labels("+Inf").set(1)

    def worker_restarts(self, count: int) -> None:
        """Set how often the supervisor has started this worker anew."""
        self._families.restarts.set(count)

    def _tool_label(self, tool: str) -> str:
        """Return the name or pattern by which the policy claims a tool."""
        try:
            return self._tool_labels[tool]
        except KeyError:
            mapping = self._in_force.mapping(tool) if self._in_force else None
            label = mapping.claimant(tool) if mapping else OTHER
            if len(self._tool_labels) < MEMO_LIMIT:
                self._tool_labels[tool] = label
            return label

    def _count_reasons(self, verdict: Verdict) -> None:
        """Count each reason once per decision, however many rules gave it."""
        counted: list[tuple[str, str]] = []
        for reason in verdict.reasons:
            code = reason.code if reason.code in REASON_CODES else OTHER
            labels = (code, LABELS[reason.action])
            if labels not in counted:
                counted.append(labels)
                self._families.reasons.inc(*labels)

    def _rule_label(self, verdict: Verdict) -> str:
        if verdict.decided_by:
            return verdict.decided_by[0] if verdict.decided_by[0] in self._rules else OTHER
        if not verdict.reasons:
            return NONE
        code = verdict.reasons[0].code
        return code if code in DECIDED_WITHOUT_RULE else OTHER
