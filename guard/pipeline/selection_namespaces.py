"""Namespaces of a graph memory that keep apart what does not count."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from guard.core.policy import Action, Reason
from guard.extensions.graph_memory import namespaces as namespaces_of
from guard.extensions.graph_memory.answers import read_ranked
from guard.extensions.graph_memory.comparison import Comparison
from guard.extensions.graph_memory.replay import UnreplayedError
from guard.pipeline.selection_writes import counts, writer_of

if TYPE_CHECKING:
    from guard.core.calls import ToolResult, TracedCall
    from guard.core.mappings import Namespaces, RankedMapping, SelectionPolicy
    from guard.core.policy import Verdict
    from guard.core.ports import AsksStore
    from guard.extensions.graph_memory.answers import Ranked
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
