"""Lineage: one sealed line per save of a value, and the path of the value told from them.  Pure.

A value saved again keeps its first untrusted origin as its label; its hops say how it got there.
Hops are evidence for humans and no label: nothing that decides about a call reads one.  They lie in
one field per value beside its label, as a bounded list (``labels.lua``, mode ``append``), each
under a MAC of its own.  What a session recalled is such a list too, read when the session saves.

The path of a value is a tree of its hops.  Every branch begins where the value came from and leads
on from save to save.  What is not on record is a step of its own (``gap``), so a path with a hole
in it never looks like a whole one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel, LabelRecord, LabelSet
from guard.provenance.seal import FINGERPRINT, SEAL, SOURCE_LIMIT, Seal, pack_record, unpack_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


LIST_LIMIT: Final = 16
"""Entries of one list.  Beyond it the middle goes: where a value came from and where it is last
are what an incident asks about."""
LIST_FIRST: Final = 8
"""Oldest entries that are never given up."""
ID: Final = 28
"""Bytes that tell one entry of a list from another; a second one of the same id is left out.  Of a
hop they are session, principal and place; of a recall the place and the call."""
ID_AT: Final = SEAL
"""Zero-based place of the id in an entry."""
HOP_VALUES: Final = 256
"""Values of one save that leave a hop, and of one recall that are remembered."""
SHORT: Final = 6
"""Bytes of a fingerprint by which a recall remembers a value for the rest of its session."""
_DIGITS: Final = 19
"""Digits of the largest number that Redis counts to."""
_COUNT: Final = struct.Struct(">H")
_RECALL: Final = struct.Struct(">?")
_HOP: Final = struct.Struct(f">8s8s{FINGERPRINT}s???")


@dataclass(frozen=True, slots=True)
class Hop:
    """One save of a value."""

    record: LabelRecord
    """The call that saved it, and the label it was saved with."""
    principal: bytes
    """Digest of who saved it."""
    place: bytes
    """Mark of the item that it was saved in; of the store where the call names no item."""
    store: str
    parent: bytes = b""
    """Mark of the item or store that its session had recalled it from; empty where from none."""
    lost: bool = False
    """True if it may have been recalled from an unknown item."""
    source: LabelRecord | None = None
    """Record that decided its label: the untrusted result, the prompt, the field; None without
    one."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """Result of one recall of a session."""

    place: bytes
    """Mark of the item, or of the store where the call names no item."""
    record: LabelRecord
    """The call."""
    values: frozenset[bytes]
    whole: bool
    """True if every value of it is here."""


@dataclass(frozen=True, slots=True)
class Recalls:
    """Known recalls of a session, in order."""

    held: tuple[Recalled, ...] = ()
    whole: bool = True
    """True if every recall of it, and every value of one, is here."""

    def of(self, mark: bytes) -> Recalled | None:
        """Return the newest recall that brought a value."""
        brought = (one for one in reversed(self.held) if mark[:SHORT] in one.values)
        return next(brought, None)


@dataclass(frozen=True, slots=True)
class Entries:
    """A list as it was read: the bodies whose seal fits, and what is wrong with the rest."""

    bodies: tuple[bytes, ...] = ()
    altered: int = 0
    """Entries whose seal does not fit, or that cannot be told apart."""
    missing: int = 0
    """Entries that were there and are not: given up beyond the bound, or deleted."""

    @property
    def whole(self) -> bool:
        """Return true if every entry is whole."""
        return not self.altered and not self.missing


def entries_in(seal: Seal, area: LabelSet, field: bytes, raw: object) -> Entries:
    """Return what is held of a list; never raises, whatever lies in the field."""
    if raw is None:
        return Entries()
    if not isinstance(raw, bytes) or len(raw) < _COUNT.size:
        return Entries(altered=1)
    [count] = _COUNT.unpack_from(raw)
    bodies: list[bytes] = []
    altered, held, place = 0, 0, _COUNT.size
    while place < len(raw):
        if held >= LIST_LIMIT or place + _COUNT.size > len(raw):
            altered += 1
            break
        start = place + _COUNT.size
        place = start + _COUNT.unpack_from(raw, place)[0]
        body = seal.opened(area, field, raw[start:place])
        held += 1
        if body is None:
            altered += 1
        else:
            bodies.append(body)
    return Entries(tuple(bodies), altered, max(0, count - held))


def numbered(field: bytes) -> list[bytes]:
    """Return a field that counts, and those behind it that hold what it counts."""
    return [field, *(field + bytes((place,)) for place in range(1, LIST_LIMIT + 1))]


def numbered_in(seal: Seal, area: LabelSet, field: bytes, raw: Sequence[object]) -> Entries:
    """Return what is held in the fields of :func:`numbered`, in order; never raises."""
    number, *held = raw
    if number is None:
        return Entries()
    if not isinstance(number, bytes) or not number.isdigit() or len(number) > _DIGITS:
        return Entries(altered=1)
    count, turn = int(number), LIST_LIMIT - LIST_FIRST
    places = [*range(min(count, LIST_FIRST))]
    for at in range(max(LIST_FIRST, count - turn), count):
        places.append(LIST_FIRST + (at - LIST_FIRST) % turn)
    there = [one for one in (held[place] for place in places) if isinstance(one, bytes)]
    bodies = [body for one in there if (body := seal.opened(area, field, one)) is not None]
    return Entries(tuple(bodies), len(there) - len(bodies), count - len(there))


def place_of(seal: Seal, store: str, item: str) -> bytes:
    """Return the mark of an item by its value, of the store where the call names no item."""
    # Shortened as the store's name in a hop is, so that a reader of the hop gets the same mark.
    return seal.fingerprint(item or f"store:{_short(store)}")


def write_hop(seal: Seal, area: LabelSet, field: bytes, hop: Hop) -> tuple[bytes, bytes]:
    """Return the field and the sealed bytes of a hop."""
    store = _short(hop.store).encode("utf-8", "replace")
    session, sourced = hop.record.session, hop.source is not None
    body = _HOP.pack(session, hop.principal, hop.place, bool(hop.parent), hop.lost, sourced)
    body += hop.parent + bytes([len(store)]) + store + pack_record(hop.record)
    if hop.source is not None:
        body += pack_record(hop.source)
    return field, seal.sealed(area, field, body)


def read_hop(body: bytes) -> Hop:
    """Return the hop in a body whose seal fits."""
    _, principal, place, recalled, lost, sourced = _HOP.unpack_from(body)
    start = _HOP.size
    at = start + FINGERPRINT * recalled
    end = at + 1 + body[at]
    store = body[at + 1 : end].decode("utf-8", "replace")
    record, end = unpack_record(body, end)
    source = unpack_record(body, end)[0] if sourced else None
    return Hop(record, principal, place, store, body[start:at], lost, source)


def write_recall(
    seal: Seal, area: LabelSet, field: bytes, recalled: Recalled
) -> tuple[bytes, bytes]:
    """Return the field and the sealed bytes of what one recall brought."""
    record, marks = recalled.record, list(islice(recalled.values, HOP_VALUES))
    whole = recalled.whole and len(marks) == len(recalled.values)
    body = recalled.place + _RECALL.pack(whole) + pack_record(record)
    return field, seal.sealed(area, field, body + b"".join(marks))


def read_recall(body: bytes) -> Recalled:
    """Return the recall in a body whose seal fits."""
    [whole] = _RECALL.unpack_from(body, FINGERPRINT)
    record, end = unpack_record(body, FINGERPRINT + _RECALL.size)
    marks = frozenset(body[start : start + SHORT] for start in range(end, len(body), SHORT))
    return Recalled(body[:FINGERPRINT], record, marks, whole)


def read_recalls(seal: Seal, area: LabelSet, field: bytes, raw: object) -> Recalls:
    """Return what a session is known to have recalled."""
    entries = entries_in(seal, area, field, raw)
    held = tuple(read_recall(body) for body in entries.bodies)
    return Recalls(held, entries.whole and all(one.whole for one in held))


def _short(name: str) -> str:
    return name.encode("utf-8", "replace")[:SOURCE_LIMIT].decode("utf-8", "ignore")


SAVED: Final = "saved"
BEGINNINGS: Final = {
    "read": "read in untrusted text",
    "session_read": "its session had read untrusted text",
    "prompt": "named by the user",
    "field": "stood in a field that vouches for it",
    "imported": "imported",
    "memory": "from memory, by no recall on record; first known",
}
"""Beginning of a path, by the kind of its first step, in words."""
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
    """Record of the step."""
    hop: Hop | None = None
    """Hop of a save."""
    why: str = ""
    """Cause of a gap: ``deleted``, ``parent``, ``recall`` or ``label``."""
    item: bytes = b""
    """Mark of the item or store of a gap, whose save is not on record."""
    count: int = 0
    """Number of hops that are missing or altered."""
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
