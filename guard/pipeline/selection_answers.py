"""Answers of graph memories: namespaces kept apart, marks and explanations, and the release."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.errors import AuditError
from guard.core.labels import Channel, LabelWrite
from guard.core.metrics import ERRORS, SELECTIONS, Metrics
from guard.core.policy import Action, Policy, Reason, Verdict
from guard.extensions.graph_memory import namespaces as namespaces_of
from guard.extensions.graph_memory.answers import Ranked, annotated, read_ranked, reordered
from guard.extensions.graph_memory.comparison import Comparison, note_on
from guard.extensions.graph_memory.replay import UnreplayedError
from guard.pipeline.selection_replay import counts, writer_of
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
    from guard.core.mappings import Namespaces, RankedMapping, SelectionPolicy
    from guard.core.model import Json
    from guard.core.ports import AsksStore, AuditLog, SessionStore
    from guard.provenance.seal import Seal


DUAL: Final = "dual_query"
NAMESPACE: Final = "selection_namespace"
"""Reason code of a call that was given other namespaces, or that names none."""


def keep_apart(
    seal: Seal,
    selection: SelectionPolicy,
    namespaces: Namespaces,
    traced: TracedCall,
    verdict: Verdict,
) -> tuple[TracedCall, Verdict]:
    """Return a call that is let through, with the namespaces that it is to name.

    What does not count is written into an untrusted namespace, and a read reads both.  Where a
    write cannot be kept apart, a person is asked.
    """
    call = traced.call
    try:
        if not namespaces_of.writes(namespaces, call.tool):
            changed = namespaces_of.widened(namespaces, call.tool, call.arguments)
        elif call.server in namespaces.servers or counts(
            selection, writer_of(seal, traced, call.at)
        ):
            return traced, verdict
        else:
            changed = namespaces_of.kept_apart(namespaces, call.tool, call.arguments)
    except namespaces_of.NamespaceError as error:
        reason = Reason(NAMESPACE, "", Action.ASK, str(error), remedy="name one namespace")
        reasons = (reason, *verdict.reasons)
        return traced, dataclasses.replace(
            verdict, action=Action.ASK, reasons=reasons, decided_by=()
        )
    if changed is None:
        return traced, verdict
    reason = Reason(NAMESPACE, "", Action.REDACT, "what does not count is kept apart")
    verdict = dataclasses.replace(
        verdict, action=Action.REDACT, reasons=(reason, *verdict.reasons), decided_by=()
    )
    moved = dataclasses.replace(call, arguments=changed)
    classified = dataclasses.replace(traced.classified, call=moved)
    return dataclasses.replace(traced, classified=classified), verdict


async def ask_again(
    asks: AsksStore | None,
    namespaces: Namespaces,
    mapping: RankedMapping,
    result: ToolResult,
    ranked: Ranked,
) -> Comparison:
    """Compare an answer with the store's answer from the namespaces that count.

    Raises:
        UnreplayedError: the store cannot be asked, or its answer cannot be read.
    """
    call = result.call.call
    try:
        arguments = namespaces_of.narrowed(namespaces, call.tool, call.arguments)
    except namespaces_of.NamespaceError as error:
        raise UnreplayedError("unasked") from error
    places: tuple[int | None, ...] = tuple(range(len(ranked.names)))
    if arguments == call.arguments:
        return Comparison(ranked.names, ranked.names, places, DUAL)
    if arguments is None:
        return Comparison(ranked.names, (), (None,) * len(places), DUAL)
    if asks is None:
        raise UnreplayedError("unasked")
    try:
        answer = await asks(call, namespaces.path, arguments)
    except OSError as error:
        raise UnreplayedError("unasked") from error
    alone = read_ranked(mapping, answer, may_be_empty=True)
    return Comparison(ranked.names, alone.names, alone.places_of(ranked), DUAL, instead=answer)


class SelectionRecords:
    """Writer and reader of these records.

    Args:
        store: of labels.
        seal: the deployment's key.
        audit: gets a line for each answer that does not stand as it was served.
        metrics: counts answers.
    """

    def __init__(self, store: SessionStore, seal: Seal, audit: AuditLog, metrics: Metrics) -> None:
        self._store, self._seal = store, seal
        self._audit, self._metrics = audit, metrics

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


ADVISED: Final = {
    "selection_annotated": "structure that nobody authenticated decides this answer: it has a note",
    "selection_substituted": "structure that nobody authenticated decided this answer: it is "
    "released in the authenticated order",
}
"""Why an answer is released otherwise than it came, by code."""


@dataclass(frozen=True, slots=True)
class Selected:
    """Changes to an answer before its release."""

    writes: tuple[LabelWrite, ...] = ()
    """Records to store."""
    content: Json = None
    """Content that is released in its place; None where it is released unchanged."""
    reason: Reason | None = None
    """Why."""


def report_on(
    selection: SelectionPolicy, found: Comparison | None, reason: str, unreplayed: str
) -> dict[str, Json]:
    """Return what is report of an answer, and why it was not replayed where the store was asked."""
    report: dict[str, Json] = {"store": selection.store, "reason": reason}
    if unreplayed:
        report["replay"] = unreplayed
    return report if found is None else report | found.document()


def changed_answer(
    selection: SelectionPolicy,
    mapping: RankedMapping,
    result: ToolResult,
    found: Comparison | None,
    ranked: Ranked,
    report: dict[str, Json],
) -> tuple[Json, Reason | None, Comparison | None, Ranked]:
    """Return what is released in the place of an answer and why, and what it is compared as then.

    An answer whose items cannot be put into another order is given the note alone.
    """
    if not (selection.annotates or selection.substitutes) or result.is_report:
        return None, None, found, ranked
    content, code = result.content, "selection_annotated"
    if selection.substitutes and found is not None:
        other = _substitute(mapping, content, found, ranked)
        if other is not None:
            code, (content, found, ranked) = "selection_substituted", other
    note = note_on(report, substituted=code == "selection_substituted")
    noted = annotated(content, note, report)
    if noted is None and content is result.content:
        return None, None, found, ranked
    reason = Reason(code, "", Action.REDACT, ADVISED[code], {"store": selection.store})
    return content if noted is None else noted, reason, found, ranked


def _substitute(
    mapping: RankedMapping, content: Json, found: Comparison, ranked: Ranked
) -> tuple[Json, Comparison, Ranked] | None:
    """Return the authenticated answer, what it is compared as, and its items; None: there is none.

    It is the store's own where that was asked, else the served items in another order.
    """
    if isinstance(found.instead, dict) and isinstance(content, dict):
        ranked = read_ranked(mapping, found.instead, may_be_empty=True)
        places: tuple[int | None, ...] = tuple(range(len(ranked.names)))
        return found.instead, dataclasses.replace(found, served=ranked.names, places=places), ranked
    other = reordered(content, mapping, found.order) if found.order else None
    if other is None:
        return None
    ranked, places = ranked.taken(found.order), tuple(found.places[at] for at in found.order)
    return other, dataclasses.replace(found, served=ranked.names, places=places), ranked


def unvouched(ranked: Ranked, found: Comparison, selection: SelectionPolicy) -> list[Json]:
    """Return the items that vouch for nothing."""
    all_of_them, stands = selection.asks_always and found.diverged, found.stands
    return [
        item
        for place, item in enumerate(ranked.items)
        if all_of_them or place >= selection.top_k or not stands[place]
    ]
