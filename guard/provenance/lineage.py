"""Hops: one sealed line per save of a value, so that its path can be told later.  Pure: no I/O.

A value saved again keeps its first untrusted origin as its label; its hops say how it got there.
Hops are evidence for humans and no label: nothing that decides about a call reads one.  They lie in
one field per value beside its label, as a bounded list (``labels.lua``, mode ``append``), each
under a MAC of its own.  What a session recalled is such a list too, read when the session saves.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.provenance.seal import FINGERPRINT, SEAL, SOURCE_LIMIT, pack_record, unpack_record

if TYPE_CHECKING:
    from guard.core.labels import LabelRecord, LabelSet
    from guard.core.model import Identity
    from guard.provenance.seal import Seal

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
    """Whether it may have been recalled from an item that is not known."""
    source: LabelRecord | None = None
    """What decided its label: the untrusted result, the prompt, the field; None where nothing."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What one recall of a session brought."""

    place: bytes
    """Mark of the item, or of the store where the call names no item."""
    record: LabelRecord
    """The call."""
    values: frozenset[bytes]
    whole: bool
    """Whether every value of it is here."""


@dataclass(frozen=True, slots=True)
class Recalls:
    """What a session is known to have recalled, in order."""

    held: tuple[Recalled, ...] = ()
    whole: bool = True
    """Whether no recall of it, and no value of one, is missing."""

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
        """Whether nothing of it is wrong."""
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


def place_of(seal: Seal, store: str, item: str) -> bytes:
    """Return the mark of an item by its value, of the store where the call names no item."""
    # Shortened as the store's name in a hop is, so that a reader of the hop gets the same mark.
    return seal.fingerprint(item or f"store:{_short(store)}")


def principal_digest(seal: Seal, identity: Identity) -> bytes:
    """Return the digest that names a principal in hops."""
    return seal.digest("principal", identity.tenant, identity.principal)


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
