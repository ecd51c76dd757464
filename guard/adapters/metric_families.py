"""Every metric family the guard exports: name, help text, labels, buckets.

``docs/metrics.md`` describes each of them; :mod:`guard.adapters.prometheus` counts.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
)

from guard import __version__
from guard.adapters.metric_labels import CALL_BUCKETS, RUN_BUCKETS, SCORE_BUCKETS, TIME_BUCKETS
from guard.adapters.metric_tallies import TalliedCounter, TalliedHistogram

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
        self.decisions = TalliedCounter(
            "guard_decisions_total",
            "Calls judged, by action, role of the tool, deciding rule and mode.",
            ("action", "role", "rule", "mode"),
            registry=registry,
        )
        self.would = TalliedCounter(
            "guard_would_have_blocked_total",
            "Calls that monitor mode let through and enforce mode would have refused.",
            ("role", "rule"),
            registry=registry,
        )
        self.tool_decisions = TalliedCounter(
            "guard_tool_decisions_total",
            "Calls judged, by the name or pattern under which the policy maps the tool.",
            ("tool", "action"),
            registry=registry,
        )
        self.reasons = TalliedCounter(
            "guard_reasons_total",
            "Decisions that had a reason of this code, by the action it asked for.",
            ("code", "action"),
            registry=registry,
        )
        self.findings = TalliedCounter(
            "guard_findings_total",
            "What was found in texts that came in and in tool definitions, by code.",
            ("code", "source"),
            registry=registry,
        )
        self.errors = TalliedCounter(
            "guard_errors_total",
            "Errors, by the part that failed; each is a block.",
            ("stage",),
            registry=registry,
        )
        self.memory_writes = TalliedCounter(
            "guard_memory_writes_total",
            "Memory writes by what became of them, the first reason, and the class.",
            ("outcome", "reason", "class"),
            registry=registry,
        )
        self.memory_drift = Counter(
            "guard_memory_drift_total",
            "Subjects that a principal's committed memory was found to push.",
            registry=registry,
        )
        self.refusals = TalliedCounter(
            "guard_refusals_total",
            "Messages refused before they were calls, by code.",
            ("code",),
            registry=registry,
        )
        self.policy_reloads = Counter(
            "guard_policy_reloads_total",
            "Attempts to put changed policy files in force, by outcome.",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("swapped", "kept"):
            self.policy_reloads.labels(outcome)

    def _make_histograms(self, registry: CollectorRegistry) -> None:
        self.decision_seconds = TalliedHistogram(
            "guard_decision_seconds",
            "From the parsed call to the verdict, the session store included.",
            buckets=TIME_BUCKETS,
            registry=registry,
        )
        self.redis_seconds = TalliedHistogram(
            "guard_redis_seconds",
            "One round trip to the session store.",
            buckets=TIME_BUCKETS,
            registry=registry,
        )
        self.upstream_seconds = TalliedHistogram(
            "guard_upstream_seconds",
            "From forwarding a request to the head of its answer.",
            buckets=(*TIME_BUCKETS, 2.5, 5.0, 10.0, 30.0),
            registry=registry,
        )
        self.score = TalliedHistogram(
            "guard_prefix_score",
            "Scores of the prefix classifier, in [0, 1].",
            buckets=SCORE_BUCKETS,
            registry=registry,
        )
        self.session_calls = TalliedHistogram(
            "guard_session_calls",
            "Which call of its session each call judged was; 1 is the first.",
            buckets=CALL_BUCKETS,
            registry=registry,
        )
        self.refused_in_a_row = TalliedHistogram(
            "guard_refused_in_a_row",
            "Refusals of the session directly before each call judged.",
            buckets=RUN_BUCKETS,
            registry=registry,
        )

    def _make_gauges(self, registry: CollectorRegistry) -> None:
        self.closed = Gauge(
            "guard_fail_closed",
            "1 while a part is failing and calls are blocked for it.",
            ("stage",),
            registry=registry,
        )
        self.policy = Gauge(
            "guard_policy_info",
            "The policy in force; always 1.",
            ("digest", "name"),
            registry=registry,
        )
        self.policy_stale = Gauge(
            "guard_policy_stale",
            "1 while the policy files have a problem and an earlier policy is in force.",
            registry=registry,
        )
        self.models = Gauge(
            "guard_model_info",
            "The models loaded; always 1.",
            ("model", "digest"),
            registry=registry,
        )
        self.score_expected = Gauge(
            "guard_prefix_score_expected",
            "Share of the training data's scores up to this bound, from the model's card.",
            ("le",),
            registry=registry,
        )
        self.saturation = Gauge(
            "guard_label_saturation",
            "Share of the last hundred looks at a bound of labels that found it reached.",
            ("bound",),
            registry=registry,
        )
        self.labels_incomplete = Gauge(
            "guard_labels_incomplete",
            "1 while labels that the store lost may be missing.",
            registry=registry,
        )
        self.unlabelled = Gauge(
            "guard_unlabelled_marks",
            "Results released while the store could not be told, and not written since.",
            registry=registry,
        )
        self.awaited = Gauge(
            "guard_calls_awaited",
            "Calls forwarded whose result has not come back.",
            registry=registry,
        )
        self.restarts = Gauge(
            "guard_worker_restarts",
            "Times the supervisor has started this worker anew.",
            registry=registry,
        )
        build = Gauge("guard_build_info", "The version; always 1.", ("version",), registry=registry)
        build.labels(__version__).set(1)
