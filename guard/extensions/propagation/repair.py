"""Proposals for contained items: the last good version, or a neighbour's text.  Pure.

Nothing is rewritten by a model: what is restored is what was saved before, word for word, and it
goes through the gate like any other write.  What cannot be restored stays withheld.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guard.core.json_values import strings_in_order
from guard.core.model import Integrity, Json
from guard.extensions.propagation.events import MARK, Event
from guard.extensions.propagation.evidence import marks_of
from guard.extensions.propagation.graph import SAVED, Graph

if TYPE_CHECKING:
    from guard.provenance.seal import Seal

NEIGHBOURS: Final = 3
RESTORE: Final = "restore"
PICK: Final = "pick"
WITHHOLD: Final = "withhold"
RESTORED: Final = "restored"


class Offer(NamedTuple):
    """A contained item that a person may let be recalled again."""

    event: Event
    why: str


def whole_marks(seal: Seal, content: Json) -> set[bytes]:
    """Return the marks that events keep of the whole texts of a save."""
    wholes = marks_of(strings_in_order(content), lambda _: False).wholes
    return {seal.fingerprint(whole)[:MARK] for whole in wholes}


@dataclass(frozen=True, slots=True)
class Proposal:
    """Possible repair of one contained item."""

    item: bytes
    """Mark of the item."""
    contained: bytes
    """The version that is contained."""
    store: str
    """The memory that it is in."""
    action: str
    """``restore`` (one version is clearly better), ``pick`` (a person chooses), ``withhold``, or
    ``restored``: a better version was saved since, by a repair or by an agent."""
    version: Event | None
    """The last version that nothing of the incident reached and that is not untrusted."""
    neighbours: tuple[Event, ...]
    """Better-labelled items of the same store with common passages, the likest first."""
    why: str


def proposals(
    graph: Graph, contained: set[int], store_marks: set[bytes], texts: set[bytes]
) -> list[Proposal]:
    """Return what can be done about each contained item.

    Args:
        graph: of the tenant.
        contained: numbers of the contained saves.
        store_marks: marks that stand for whole stores: a save without a key has no other version.
        texts: nodes whose text can be had.
    """
    good: dict[bytes, int] = {}
    others: list[Event] = []
    for place in range(len(graph)):
        event = graph.event(place)
        if event.what in SAVED and place not in contained and event.label > Integrity.UNTRUSTED:
            others.append(event)
            if event.place not in store_marks:
                good[event.place] = place
    latest = {graph.event(place).place: place for place in sorted(contained)}
    return [
        _proposal(graph, place, good.get(item), others, texts) for item, place in latest.items()
    ]


def is_restored(graph: Graph, contained: bytes) -> bool:
    """Return whether a better version of an item was saved after the one that is contained.

    Args:
        graph: of the tenant.
        contained: node of the contained version.
    """
    place = graph.place(contained)
    if place is None:
        return False
    item = graph.event(place).place
    later = (graph.event(one) for one in range(place + 1, len(graph)))
    return any(
        event.place == item and event.what in SAVED and event.label > Integrity.UNTRUSTED
        for event in later
    )


def _proposal(
    graph: Graph, contained: int, good: int | None, others: list[Event], texts: set[bytes]
) -> Proposal:
    event, version = graph.event(contained), None if good is None else graph.event(good)
    shared = [
        (len(set(event.runs) & set(other.runs)), other.label, other)
        for other in others
        if other.store == event.store and other.place != event.place
    ]
    near = tuple(
        other
        for count, _, other in sorted(shared, key=lambda one: one[:2], reverse=True)
        if count and other.node in texts
    )[:NEIGHBOURS]
    if good is not None and good > contained:
        action, why = RESTORED, "a better version was saved since it was contained"
    elif version is not None and version.node not in texts:
        action, why = WITHHOLD, "the text of its last good version is not kept"
        if near:
            action, why = PICK, f"{why}; neighbours may serve"
    elif version is None:
        action = PICK if near else WITHHOLD
        why = "it has no good version on record"
    elif any(other.label > version.label for other in near):
        action, why = PICK, "a neighbour has better evidence than its last good version"
    else:
        action, why = RESTORE, f"its last good version is {version.label.name.lower()}"
    return Proposal(event.place, event.node, event.store, action, version, near, why)


def proposal_document(proposal: Proposal) -> dict[str, Any]:
    """Return a proposal as JSON values."""
    version = proposal.version
    return {
        "item": proposal.item.hex(),
        "contained": proposal.contained.hex(),
        "action": proposal.action,
        "why": proposal.why,
        "version": None if version is None else version.node.hex(),
        "neighbours": [
            {"node": other.node.hex(), "label": other.label.name.lower()}
            for other in proposal.neighbours
        ],
    }
