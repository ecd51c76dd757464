"""Parts of one guard, and the audit line, recording and metrics of each verdict.

A verdict without a record is a block.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from guard.core.errors import AuditError
from guard.core.metrics import ERRORS, FAIL_CLOSED, Metrics
from guard.core.policy import Action, Reason, Verdict, blocked_for
from guard.core.ports import AuditLog, DecisionRecord, Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.calls import TracedCall
    from guard.core.model import Identity
    from guard.extensions.propagation.live import Containment
    from guard.memory.write_path import WritePath
    from guard.pipeline.large_work import OtherProcesses, Threads
    from guard.pipeline.selection import SelectionReplays
    from guard.pipeline.stores import Stores
    from guard.pipeline.trial import ActivePolicies
    from guard.provenance.seal import Seal


_REMEDY: Final = "retry later; if it stays so, the operator finds why in the guard's log"


@dataclass(frozen=True, slots=True)
class Records:
    """Destinations of decision records."""

    audit: AuditLog
    """Audit log, written before a call is forwarded."""
    metrics: Metrics
    """Metrics with closed label sets."""
    recorders: Sequence[Recorder] = ()
    """Recorders of whole exchanges."""
    model_digests: Mapping[str, str] = field(default_factory=dict)
    """Digests for audit lines, by model name."""


class DecisionLog:
    """Writer of decision records.

    Args:
        policies: say if a recording is required.
        records: destinations.
    """

    def __init__(self, policies: ActivePolicies, records: Records) -> None:
        self._policies = policies
        self._audit = records.audit
        self._metrics = records.metrics
        self._model_digests = records.model_digests
        self.recorders = tuple(records.recorders)
        """Recorders of whole exchanges."""

    def record(self, call: TracedCall, verdict: Verdict, seconds: float = 0.0) -> Verdict:
        """Write the audit line; return the verdict, or a block if it cannot be recorded."""
        # A candidate on trial requires a recording exactly if the policy in force does.
        policy = self._policies.policy
        if self.recorders or (policy is not None and policy.needs.requires_recording):
            verdict = self._recorded(call, verdict)
        record = DecisionRecord(call.classified, verdict, seconds, self._model_digests, call.action)
        try:
            self._audit.decision(record)
        except Exception:  # noqa: BLE001  (what is not on record must not go out)
            self._metrics.count(ERRORS, "audit")
            detail = "the decision could not be recorded"
            reason = Reason("audit_error", "", Action.BLOCK, detail, remedy=_REMEDY)
            verdict = verdict.blocked(reason, "audit")
            self._metrics.decision(replace(record, verdict=verdict))
            self._metrics.set(FAIL_CLOSED, 1, "audit")
        else:
            self._metrics.decision(record)
        return verdict

    def withheld(self, call: TracedCall, verdict: Verdict) -> Verdict | None:
        """Record the verdict on a result; return it if the result is withheld."""
        verdict = self.record(call, verdict)
        return None if verdict.enforced.forwards else verdict

    def failure(self, identity: Identity, error: Exception) -> Verdict:
        """Return the block for a call or result whose judgement failed."""
        detail = type(error).__name__
        reason = Reason("guard_error", "", Action.BLOCK, detail, remedy="retry later")
        policy = self._policies.policy_for(identity)
        return blocked_for(policy, reason, errors=(f"guard: {detail}",))

    def _recorded(self, call: TracedCall, verdict: Verdict) -> Verdict:
        """Record a whole call; return a block if a required recording fails."""
        policy = self._policies.policy
        required = policy is not None and policy.needs.requires_recording
        try:
            for recorder in self.recorders:
                recorder.call(call.call, verdict, required=required)
            if required and not any(recorder.keeps for recorder in self.recorders):
                raise AuditError("the policy requires a recording, and none is written")
        except Exception as error:  # noqa: BLE001  (likewise)
            self._metrics.count(ERRORS, "recording")
            self._metrics.set(FAIL_CLOSED, 1, "recording")
            detail = str(error) if isinstance(error, AuditError) else type(error).__name__
            reason = Reason("recording_error", "", Action.BLOCK, detail, remedy=_REMEDY)
            return verdict.blocked(reason, "recording")
        self._metrics.set(FAIL_CLOSED, 0, "recording")
        return verdict


@dataclass(frozen=True, slots=True)
class DecisionParts:
    """Parts of one guard."""

    policies: ActivePolicies
    stores: Stores
    seal: Seal
    """Key of the deployment for labels."""
    log: DecisionLog
    metrics: Metrics
    memory: WritePath | None
    """Memory gate; None if nothing is gated."""
    threads: Threads
    processes: OtherProcesses
    selections: SelectionReplays
    containment: Containment
