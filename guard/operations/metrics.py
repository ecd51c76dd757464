"""Metrics of the console in the Prometheus text format; a scrape needs the role ``viewer``."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

ANSWERS = ("granted", "approved", "denied", "failed", "revoked", "resumed")


class ConsoleMetrics:
    """The metrics of one console's process."""

    def __init__(self) -> None:
        # No second series for each, which nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # not annotated
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "guard_console_answers",
            "Answers of people, by what became of them.",
            ("answer",),
            registry=self.registry,
        )
        for answer in ANSWERS:
            self.answers.labels(answer)
        self.approval_seconds = Histogram(
            "guard_console_approval_seconds",
            "From a request to the approval that released it.",
            registry=self.registry,
            buckets=(2, 5, 15, 60, 300, 900, 3600),
        )
        self.waiting = Gauge(
            "guard_console_requests_waiting",
            "Requests that wait for an answer.",
            registry=self.registry,
        )
        self.paused = Gauge(
            "guard_console_principals_paused", "Principals that are paused.", registry=self.registry
        )
        self.open_glasses = Gauge(
            "guard_console_break_glasses_open",
            "Break-glasses that are open.",
            registry=self.registry,
        )
        self.errors = Counter(
            "guard_console_errors",
            "Errors of what keeps pages fresh, by part; each is tried again.",
            ("part",),
            registry=self.registry,
        )
        for part in ("feed", "state"):
            self.errors.labels(part)
        self.webhooks = Counter(
            "guard_console_webhooks",
            "Messages to webhooks, by what became of them.",
            ("outcome",),
            registry=self.registry,
        )
        for outcome in ("sent", "retried", "given_up"):
            self.webhooks.labels(outcome)

    def exposed(self) -> bytes:
        """Return the text of a scrape."""
        return generate_latest(self.registry)
