"""Proposals for contained items: the last good version, or a neighbour's text.  Pure.

Nothing is rewritten by a model: what is restored is what was saved before, word for word, and it
goes through the gate like any other write.  What cannot be restored stays withheld.  A text that is
not kept may still be in the store: what that answers is compared with the fingerprints of saves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guard.core.json_values import strings_in_order
from guard.core.model import Integrity, Json
from guard.extensions.propagation.events import MARK, NAME, Event
from guard.extensions.propagation.evidence import marks_of
from guard.extensions.propagation.graph import SAVED, Graph
from guard.provenance.lineage import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from guard.extensions.propagation.incident import Incident
    from guard.provenance.seal import Seal

NEIGHBOURS: Final = 3
RESTORE: Final = "restore"
PICK: Final = "pick"
WITHHOLD: Final = "withhold"
RESTORED: Final = "restored"
WINDOW: Final = 1_000
"""Events without anything that follows, from which on a likely item may be released."""


class Offer(NamedTuple):
    """A contained item that a person may let be recalled again."""

    event: Event
    why: str


def is_quiet(graph: Graph, place: int, incident: Incident, window: int) -> bool:
    """Return whether nothing followed from a contained item in the last events of the log.

    Args:
        graph: of the tenant.
        place: number of the item.
        incident: that contains it.
        window: events that must have come since it was contained.
    """
    node = graph.event(place).node.hex()
    held = [step.at for step in incident.steps if step.kind == "contain" and node in step.nodes]
    begin = len(graph) - window
    if not held or begin < 0 or graph.event(begin).at <= max(held):
        return False
    return not bool(((graph.sources == place) & (graph.targets >= begin)).any())


class Held(NamedTuple):
    """Contents of a memory, read around the guard, which withholds contained items."""

    answer: Json
    """To a search or list."""
    arguments: Mapping[str, frozenset[str]]
    """By tool the names of its arguments."""


def read_back(seal: Seal, events: Iterable[Event], held: Held) -> dict[bytes, tuple[str, Json]]:
    """Return the saves whose text a memory still holds, by node: the tool and its arguments.

    An object of the answer is what a save said where its fields that are arguments of the tool have
    the same whole texts as the save, and name the same item where the save named one.  So a store
    that was changed around the guard restores nothing that was never saved.

    Args:
        seal: the deployment's key.
        events: saves.
        held: what the memory answered.
    """
    entries = list(_objects(held.answer))
    found: dict[bytes, tuple[str, Json]] = {}
    for event in events:
        for tool, names in held.arguments.items():
            if tool.encode()[:NAME] != event.tool.encode():
                continue
            for entry in entries:
                arguments = {name: value for name, value in entry.items() if name in names}
                if _says(seal, event, list(strings_in_order(arguments))):
                    found[event.node] = tool, arguments
    return found


def whole_marks(seal: Seal, content: Json) -> set[bytes]:
    """Return the marks that events keep of the whole texts of a save."""
    return _marks_of_texts(seal, strings_in_order(content))


def _marks_of_texts(seal: Seal, texts: Iterable[str]) -> set[bytes]:
    wholes = marks_of(texts, lambda _: False).wholes
    return {seal.fingerprint(whole)[:MARK] for whole in wholes}


def _says(seal: Seal, event: Event, texts: list[str]) -> bool:
    """Return whether some texts are those of a save."""

    def names(text: str) -> bool:
        return place_of(seal, event.store, f"item:{event.store}:{text}") == event.place

    if event.place != place_of(seal, event.store, "") and not any(map(names, texts)):
        return False
    marks = _marks_of_texts(seal, (text for text in texts if not names(text)))
    return bool(marks) and marks == set(event.wholes)


def _objects(answer: Json) -> Iterator[dict[str, Json]]:
    """Yield the objects of an answer at any depth; a text that is JSON is read."""
    if isinstance(answer, str) and answer.lstrip()[:1] in {"{", "["}:
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError):
            return
    if isinstance(answer, dict):
        yield answer
    if isinstance(answer, dict | list):
        for inner in answer.values() if isinstance(answer, dict) else answer:
            yield from _objects(inner)


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
