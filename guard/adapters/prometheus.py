"""Metrics in the Prometheus text format, with closed label sets.

No session, principal, tool or destination is ever a label: clients choose them, and each new value
would be a new time series for good.  Label children are looked up once and kept; one decision
costs a few microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from guard import __version__
from guard.core.verdict import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from guard.core.policy import Policy
    from guard.core.ports import DecisionRecord, Metrics
    from guard.core.verdict import Verdict

STAGES: Final = (
    "parse",
    "state",
    "detector",
    "rule",
    "model",
    "audit",
    "hook",
    "upstream",
    "other",
)
"""Parts that can fail; the last stands for any name that is not among them."""
DECIDED_WITHOUT_RULE: Final = frozenset(
    {"no_policy", "guard_error", "no_rule_matched", "audit_error", "batch_refused"}
)
"""Reason codes of verdicts that no rule decided; they stand in the ``rule`` label."""
REFUSAL_CODES: Final = frozenset(
    {
        "ambiguous_key",
        "bad_call",
        "bad_content_encoding",
        "bad_content_type",
        "bad_credential",
        "bad_http",
        "bad_http_method",
        "bad_json",
        "bad_jsonrpc",
        "bad_session_id",
        "bad_transfer_encoding",
        "body_too_large",
        "call_without_id",
        "call_without_name",
        "connect",
        "dns",
        "duplicate_header",
        "duplicate_key",
        "guard_error",
        "raw_tcp",
        "raw_udp",
        "trailers",
        "two_protocols",
        "unexpected_body",
        "unknown_method",
        "upgrade",
    }
)
"""Refusals of what was never a call: the codes of :class:`guard.core.errors.MessageError`."""
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


class PrometheusMetrics:
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
        self._rules: frozenset[str] = frozenset()
        self._codes = frozenset(refusal_codes)
        self._make_counters()
        self._make_histograms()
        self._make_gauges()
        self._children: dict[tuple[object, ...], Counter] = {}
        self._error_children = {stage: self._errors.labels(stage) for stage in STAGES}
        self._closed_children = {stage: self._closed.labels(stage) for stage in STAGES}
        self._closed_now: dict[str, bool] = dict.fromkeys(STAGES, False)
        if policy is not None:
            self.set_policy(policy)
        for name, digest in (models or {}).items():
            self._models.labels(name, digest).set(1)

    def set_policy(self, policy: Policy) -> None:
        """Take the rule ids, name and digest of the policy in force."""
        self._rules = frozenset(rule.id for rule in policy.rules)
        self._children.clear()
        self._policy.clear()
        self._policy.labels(policy.digest, policy.name).set(1)

    def decision(self, record: DecisionRecord) -> None:
        """Count a decision, its time and its score."""
        verdict, role = record.verdict, record.call.role
        # The key holds the deciding names as they are: `_rule_label` runs once per key.
        first_code = "" if verdict.decided_by or not verdict.reasons else verdict.reasons[0].code
        rule = verdict.decided_by[0] if verdict.decided_by else ""
        key = (verdict.action, role, rule, first_code, verdict.mode)
        child = self._children.get(key)
        if child is None:
            child = self._decisions.labels(
                verdict.action.label, role.value, self._rule_label(verdict), verdict.mode.value
            )
            if rule in self._rules or first_code in DECIDED_WITHOUT_RULE:
                self._children[key] = child
        child.inc()
        self._decision_seconds.observe(record.seconds)
        if verdict.score is not None:
            self._score.observe(verdict.score)
        if verdict.mode is Mode.MONITOR and verdict.would_have_blocked:
            self._would.labels(role.value, self._rule_label(verdict)).inc()

    def error(self, stage: str) -> None:
        """Count an error of a stage; an unknown stage counts as ``other``."""
        self._error_children.get(stage, self._error_children[OTHER]).inc()

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
        self._redis_seconds.observe(seconds)

    def upstream_latency(self, seconds: float) -> None:
        """Observe the time an upstream took to begin its answer."""
        self._upstream_seconds.observe(seconds)

    def refusal(self, code: str) -> None:
        """Count a message refused before it was a call; an unknown code counts as ``other``."""
        self._refusals.labels(code if code in self._codes else OTHER).inc()

    def worker_restarts(self, count: int) -> None:
        """Set how often the supervisor has started this worker anew."""
        self._restarts.set(count)

    def _rule_label(self, verdict: Verdict) -> str:
        if verdict.decided_by:
            return verdict.decided_by[0] if verdict.decided_by[0] in self._rules else OTHER
        if not verdict.reasons:
            return NONE
        code = verdict.reasons[0].code
        return code if code in DECIDED_WITHOUT_RULE else OTHER

    def _make_counters(self) -> None:
        self._decisions = Counter(
            "guard_decisions_total",
            "Calls judged, by action, role of the tool, deciding rule and mode.",
            ("action", "role", "rule", "mode"),
            registry=self.registry,
        )
        self._would = Counter(
            "guard_would_have_blocked_total",
            "Calls that monitor mode let through and enforce mode would have refused.",
            ("role", "rule"),
            registry=self.registry,
        )
        self._errors = Counter(
            "guard_errors_total",
            "Errors, by the part that failed; each is a block.",
            ("stage",),
            registry=self.registry,
        )
        self._refusals = Counter(
            "guard_refusals_total",
            "Messages refused before they were calls, by code.",
            ("code",),
            registry=self.registry,
        )

    def _make_histograms(self) -> None:
        self._decision_seconds = Histogram(
            "guard_decision_seconds",
            "From the parsed call to the verdict, the session store included.",
            buckets=TIME_BUCKETS,
            registry=self.registry,
        )
        self._redis_seconds = Histogram(
            "guard_redis_seconds",
            "One round trip to the session store.",
            buckets=TIME_BUCKETS,
            registry=self.registry,
        )
        self._upstream_seconds = Histogram(
            "guard_upstream_seconds",
            "From forwarding a request to the head of its answer.",
            buckets=(*TIME_BUCKETS, 2.5, 5.0, 10.0, 30.0),
            registry=self.registry,
        )
        self._score = Histogram(
            "guard_prefix_score",
            "Scores of the prefix classifier, in [0, 1].",
            buckets=SCORE_BUCKETS,
            registry=self.registry,
        )

    def _make_gauges(self) -> None:
        self._closed = Gauge(
            "guard_fail_closed",
            "1 while a part is failing and calls are blocked for it.",
            ("stage",),
            registry=self.registry,
        )
        self._policy = Gauge(
            "guard_policy_info",
            "The policy in force; always 1.",
            ("digest", "name"),
            registry=self.registry,
        )
        self._models = Gauge(
            "guard_model_info",
            "The models loaded; always 1.",
            ("model", "digest"),
            registry=self.registry,
        )
        self._restarts = Gauge(
            "guard_worker_restarts",
            "Times the supervisor has started this worker anew.",
            registry=self.registry,
        )
        build = Gauge(
            "guard_build_info", "The version; always 1.", ("version",), registry=self.registry
        )
        build.labels(__version__).set(1)


if TYPE_CHECKING:
    _conforms: type[Metrics] = PrometheusMetrics
