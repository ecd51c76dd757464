"""Every metric family the guard exports: name, help text, labels, buckets.

``docs/metrics.md`` describes each of them; :mod:`guard.adapters.metrics.prometheus` counts.
"""

from __future__ import annotations

from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
)

from guard import __version__
from guard.adapters.metrics.labels import CALL_BUCKETS, RUN_BUCKETS, SCORE_BUCKETS, TIME_BUCKETS
from guard.adapters.metrics.tallies import TalliedCounter, TalliedHistogram

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
