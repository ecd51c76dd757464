"""Tells people that labels were lost: an audit line, a line on stderr, a gauge."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from guard.core.errors import AuditError
from guard.provenance.store_continuity import Loss

if TYPE_CHECKING:
    from guard.adapters.metrics.prometheus import PrometheusMetrics
    from guard.adapters.redis.birth import Sighting
    from guard.core.ports import AuditLog

EVENT_INCOMPLETE: Final = "guard.labels_incomplete"
EVENT_COMPLETE: Final = "guard.labels_complete"
EARLIER: Final = "earlier"
"""Stands for a loss that was found by an earlier run, or by another guard."""
_WHAT: Final = {
    Loss.EMPTY: "the label store is empty, and was not",
    Loss.REPLACED: "the label store is another one than before",
    Loss.ROLLED_BACK: "the label store went back to an earlier state",
    Loss.ALTERED: "the label store's birth record was altered, or made with another label key",
}
_ASKED: Final = "until {until} unknown destinations are asked about even where a policy allows them"
_KEPT: Final = (
    "label what memories hold with `guard memory import`, then declare the loss over with "
    "`guard memory accept-loss`; a guard of another deployment needs a `label_key` of its own"
)
_EMBEDDED: Final = "the embedded redis forgets at every stop"
_KEEP: Final = "keep labels with --redis URL"


class LossReport:
    """Is told of every look at the label store's birth, and says what has changed.

    Args:
        audit: one line where labels were found lost, and one where they count as complete again.
        metrics: has the gauge.
        kept: whether the store is meant to outlive the guard.
    """

    def __init__(self, audit: AuditLog, metrics: PrometheusMetrics, *, kept: bool) -> None:
        self._audit = audit
        self._metrics = metrics
        self._kept = kept
        self._incomplete: bool | None = None
        self._noted = True

    def __call__(self, seen: Sighting) -> None:
        """Report one look.  Never raises: what was found holds, on record or not."""
        before, self._incomplete = self._incomplete, seen.incomplete
        self._metrics.labels_incomplete(active=seen.incomplete)
        if seen.loss is not Loss.NONE or (seen.incomplete and before is None):
            self._lost(seen)
        elif before and not seen.incomplete:
            accepted = not seen.birth.incomplete_until
            self._line(EVENT_COMPLETE, {"why": "accepted" if accepted else "expired"})
            _say("the labels count as complete again")
        if self._noted and not seen.noted:
            _say(
                "no note of the label store can be written beside the label key; a loss while no "
                "guard runs would go unnoticed"
            )
        self._noted = seen.noted

    def _lost(self, seen: Sighting) -> None:
        found = EARLIER if seen.loss is Loss.NONE else seen.loss.value
        until = datetime.fromtimestamp(seen.birth.incomplete_until, UTC).isoformat()
        kind = "redis" if self._kept else "embedded"
        self._line(EVENT_INCOMPLETE, {"loss": found, "store": kind, "until": until})
        what = _WHAT.get(seen.loss, "labels were lost earlier") if self._kept else _EMBEDDED
        advice = _KEPT if self._kept else _KEEP
        _say(f"{what}: {_ASKED.format(until=until[:10])}; {advice}")

    def _line(self, event: str, fields: dict[str, str]) -> None:
        try:
            self._audit.event(event, dict(fields))
        except AuditError:
            self._metrics.error("audit")


def _say(words: str) -> None:
    sys.stderr.write(f"guard: {words}\n")
    sys.stderr.flush()
