"""Records of a graph memory's answers: marks on their values, and explanations of refusals."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from guard.core.errors import AuditError
from guard.core.labels import Channel
from guard.core.metrics import ERRORS, SELECTIONS
from guard.provenance.label_sets import label_sets
from guard.provenance.ladder import SELECTED_WHY
from guard.provenance.selected_values import (
    explanation_lookup,
    explanation_write,
    read_explanation,
    selected_writes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.calls import ToolResult, TracedCall
    from guard.core.labels import LabelWrite
    from guard.core.model import Json
    from guard.core.policy import Policy, Reason, Verdict
    from guard.core.ports import SessionStore
    from guard.pipeline.decision_log import Records
    from guard.provenance.seal import Seal


class SelectionRecords:
    """Writer and reader of these records.

    Args:
        store: of labels.
        seal: the deployment's key.
        records: audit log and metrics.
    """

    def __init__(self, store: SessionStore, seal: Seal, records: Records) -> None:
        self._store, self._seal = store, seal
        self._audit, self._metrics = records.audit, records.metrics

    def marks(
        self,
        policy: Policy,
        result: ToolResult,
        items: Sequence[Json],
        report: dict[str, Json],
        *,
        replayed: bool,
    ) -> tuple[LabelWrite, ...]:
        """Return the marks on the items that the selection does not vouch for."""
        if not items:
            return ()
        sets, seconds = label_sets(policy.limits), policy.limits.session_idle
        channel = Channel.SELECTION if replayed else Channel.UNREPLAYED
        marks = selected_writes(self._seal, sets, result, items, channel, seconds)
        return (*marks, explanation_write(self._seal, sets, result, report))

    async def explained(self, policy: Policy, traced: TracedCall, verdict: Verdict) -> Verdict:
        """Return a refusal with both orders of the answer that a value in it came from.

        One more round trip, and only where a selection is why.  Never raises: what cannot be told
        changes no verdict.
        """
        try:
            reasons = [
                await self._explained(policy, traced, reason)
                if reason.code in SELECTED_WHY.values()
                else reason
                for reason in verdict.reasons
            ]
        except Exception:  # noqa: BLE001  (the refusal stands, told or not)
            self._metrics.count(ERRORS, "state")
            return verdict
        return dataclasses.replace(verdict, reasons=tuple(reasons))

    async def _explained(self, policy: Policy, traced: TracedCall, reason: Reason) -> Reason:
        for target in (*traced.targets, *traced.guarded):
            attested = target.attestation
            if attested is None or attested.record is None or attested.why != reason.code:
                continue
            record, identity = attested.record, traced.call.identity
            lookup = explanation_lookup(label_sets(policy.limits), identity.tenant, record)
            [raw] = await self._store.look_up(identity, lookup)
            found = read_explanation(self._seal, lookup.area, raw)
            if found is not None:
                return dataclasses.replace(reason, data={**reason.data, "selection": found})
        return reason

    def report(self, result: ToolResult, reason: str, report: dict[str, Json]) -> None:
        """Count an answer, and write a line about one that does not stand as it was served.

        What cannot be written changes nothing: the values are marked whatever the log says.
        """
        self._metrics.count(SELECTIONS, reason)
        if reason == "stands":
            return
        call = result.call.call
        fields: dict[str, Json] = {
            "tool": call.tool,
            "call_id": call.id,
            "principal": call.identity.principal,
            **report,
        }
        try:
            self._audit.event("selection", fields)
        except AuditError:
            self._metrics.count(ERRORS, "audit")
