"""Release of a graph memory's answer: as served, with a note, or in the authenticated order."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.policy import Action, Reason
from guard.extensions.graph_memory.answers import annotated, read_ranked, reordered
from guard.extensions.graph_memory.comparison import note_on

if TYPE_CHECKING:
    from guard.core.calls import ToolResult
    from guard.core.labels import LabelWrite
    from guard.core.mappings import RankedMapping, SelectionPolicy
    from guard.core.model import Json
    from guard.extensions.graph_memory.answers import Ranked
    from guard.extensions.graph_memory.comparison import Comparison

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
    """What is released in its place; None where it is released as it came."""
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
