"""The path a value took, as a tree made of its hops.  Pure: no I/O.

Every branch begins where a value came from and leads on from save to save.  What is not on record
is a step of its own (``gap``), so a path with a hole in it never looks like a whole one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel
from guard.provenance.lineage import place_of, read_hop

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guard.core.labels import LabelRecord
    from guard.provenance.lineage import Entries, Hop
    from guard.provenance.seal import Seal

SAVED: Final = "saved"
OWN: Final = "own"
GAP: Final = "gap"
ALTERED: Final = "altered"
_KINDS: Final = {
    Channel.RESULT: "read",
    Channel.READ: "session_read",
    Channel.PROMPT: "prompt",
    Channel.FIELD: "field",
    Channel.IMPORTED: "imported",
    Channel.MEMORY: "memory",
    Channel.SAVED: "memory",
}
"""Kind of the step that a path begins with, by the channel of the record that decided."""


@dataclass(slots=True)
class Step:
    """One step of a path."""

    kind: str
    """``saved``, ``gap``, ``altered``, ``own`` (nothing on record), or one of what it began with:
    ``read``, ``session_read``, ``prompt``, ``field``, ``imported``, ``memory``."""
    record: LabelRecord | None = None
    """What is known of it."""
    hop: Hop | None = None
    """Of a save."""
    why: str = ""
    """Of a gap: ``deleted``, ``parent``, ``recall`` or ``label``."""
    item: bytes = b""
    """Of a gap: mark of the item or store whose save is not on record."""
    count: int = 0
    """How many hops are missing or altered."""
    then: list[Step] = field(default_factory=list)


def hops_of(entries: Entries) -> list[Hop]:
    """Return the hops of a list whose seals fit, in the order they were made."""
    return [read_hop(body) for body in entries.bodies]


def path_of(
    seal: Seal, entries: Entries, held: Sequence[LabelRecord], further: Iterable[Hop] = ()
) -> list[Step]:
    """Return where a value came from, and under each what happened to it then.

    Args:
        seal: of the deployment.
        entries: the list of the value's hops, or of an item's.
        held: the labels that the value has.
        further: hops of the items that an item's text was recalled from, and so on.
    """
    own = hops_of(entries)
    # A value's list is in order; the lists of several items are put in order by their times.
    hops = sorted([*further, *own], key=lambda hop: hop.record.at) if further else own
    above = [_parent(seal, hop, hops[:place]) for place, hop in enumerate(hops)]
    shown = _leading_to(own, hops, above)
    roots: dict[tuple[object, ...], Step] = {}
    saves: dict[int, Step] = {}
    for hop, parent in zip(hops, above, strict=True):
        if id(hop) not in shown:
            continue
        saves[id(hop)] = step = Step(SAVED, hop.record, hop)
        begins = saves[id(parent)] if parent is not None else _beginning(roots, hop)
        begins.then.append(step)
    return [*_holes(entries, own, held), *roots.values()]


def _parent(seal: Seal, hop: Hop, before: Sequence[Hop]) -> Hop | None:
    """Return the newest earlier save of what a session recalled before it saved."""
    for other in reversed(before):
        if not hop.parent or other.record.at > hop.record.at:
            continue
        if hop.parent in {other.place, place_of(seal, other.store, "")}:
            return other
    return None


def _leading_to(own: Sequence[Hop], hops: Sequence[Hop], above: Sequence[Hop | None]) -> set[int]:
    """Return the ids of some hops and all that they were recalled from."""
    shown = {id(hop) for hop in own}
    for hop, parent in reversed(list(zip(hops, above, strict=True))):
        if id(hop) in shown and parent is not None:
            shown.add(id(parent))
    return shown


def _beginning(roots: dict[tuple[object, ...], Step], hop: Hop) -> Step:
    """Return the step that a path begins with: the same one for all that came from there."""
    source = hop.source
    if hop.parent or hop.lost:
        key: tuple[object, ...] = (GAP, hop.parent)
        step = Step(GAP, source, why="parent" if hop.parent else "recall", item=hop.parent)
    elif source is None:
        key, step = (OWN,), Step(OWN)
    else:
        key = (source.channel, source.session, source.call, source.source)
        step = Step(_KINDS.get(source.channel, OWN), source)
    return roots.setdefault(key, step)


def _holes(entries: Entries, own: Sequence[Hop], held: Sequence[LabelRecord]) -> list[Step]:
    """Return what is known to be missing from a list as a whole."""
    found: list[Step] = []
    if entries.altered:
        found.append(Step(ALTERED, count=entries.altered))
    if entries.missing:
        found.append(Step(GAP, why="deleted", count=entries.missing))
    sessions = {hop.record.session for hop in own}
    # A label keeps its first origin; a save that took it from memory is not the one that set it.
    sources = (hop.source for hop in own if hop.source is not None)
    sessions |= {source.session for source in sources if source.channel is not Channel.SAVED}
    for record in held:
        saved = record.sealed and record.channel is Channel.SAVED
        if saved and record.session not in sessions and entries.whole:
            found.append(Step(GAP, record, why="label"))
    return found
