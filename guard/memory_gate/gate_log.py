"""What the gate puts on record of each candidate: audit lines and counts, never a text.  Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from guard.core.memory import Candidate, GateDecision, MemoryClass
    from guard.core.ports import AuditLog, Metrics

EVENT: Final = "guard.memory"
EVENT_DRIFT: Final = "guard.memory_drift"


class GateLog:
    """Writes lines and counts.

    Args:
        audit: one line per candidate, before it is committed.
        metrics: counts outcomes by reason and class.
    """

    def __init__(self, audit: AuditLog, metrics: Metrics) -> None:
        self._audit = audit
        self._metrics = metrics

    def record(
        self,
        candidate: Candidate,
        decision: GateDecision,
        receipt: str,
        reasons: tuple[str, ...],
    ) -> None:
        """Write the audit line of a candidate; without it nothing is committed.

        Raises:
            AuditError: it could not be written.
        """
        self._audit.event(
            EVENT,
            {
                "decision_id": candidate.id,
                "principal": candidate.identity.principal,
                "tool": candidate.tool,
                "store": candidate.store,
                "outcome": "refuse" if reasons else "commit",
                "memory_reasons": list(reasons),
                "memory_class": decision.target.name,
                "tainted": decision.tainted,
                "source_types": sorted(kind.value for kind in candidate.evidence.types),
                "receipt": receipt,
            },
        )

    def drift(self, candidate: Candidate, subject: str) -> None:
        """Raise a finding: the subject is a word of the content, so it goes out as a digest.

        Raises:
            AuditError: it could not be written.
        """
        self._metrics.memory_drift()
        fingerprint = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()
        self._audit.event(
            EVENT_DRIFT,
            {
                "decision_id": candidate.id,
                "principal": candidate.identity.principal,
                "store": candidate.store,
                "subject": fingerprint[:24],
            },
        )

    def count(self, outcome: str, reasons: tuple[str, ...], target: MemoryClass) -> None:
        """Count what became of a write, by its first reason and its class."""
        self._metrics.memory_write(outcome, reasons[0] if reasons else "none", target.name)

    def failed(self) -> None:
        """Count a failure of the gate itself."""
        self._metrics.error("memory")
