"""One sealed record per save, send and recall, and the index by which a later one finds it.  Pure.

A record names the nodes that its own follows from, so an edge is written once, with the node it
leads to, and only ever leads to an earlier node: the log is in causal order and has no cycles.
Records lie in one stream of a tenant; a number that is missing there is an event that is missing
here.  The index holds, per mark of a text, who was seen to have it.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.labels import LabelSet, LabelWrite, LabelWriteMode
from guard.core.model import Integrity, Json
from guard.extensions.propagation.evidence import Kind
from guard.provenance.label_sets import bucket_of
from guard.provenance.seal import FINGERPRINT, SEAL, Seal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


LOG_KIND: Final = "j"
INDEX_KIND: Final = "x"
TEXT_KIND: Final = "o"
CONTAINED_KIND: Final = "z"
NODE: Final = 8
"""Bytes of a node's id."""
MARK: Final = 6
"""Bytes of a mark by which an item is known again in a result."""
PARENTS: Final = 48
"""Edges that lead to one node; of more, the surest and newest are kept."""
INDEX_LIMIT: Final = 65_536
"""Marks of one of the 64 parts of the index."""
NAME: Final = 24
"""Bytes of a tool's or store's name that are kept."""
HELD: Final = b"X"
ENTRY: Final = b"n"
"""Field of the one value of an entry of the log."""
_VERSION: Final = 1
_HEAD: Final = struct.Struct(f">BBBBiI8s8s{NODE}s{FINGERPRINT}s8si{FINGERPRINT}sBBBBB")
_HOLDER: Final = struct.Struct(f">{NODE}s{MARK}sBB")
_AT_MAX: Final = 2**32 - 1


class EventKind(IntEnum):
    """The kind of an event."""

    SAVE = 0
    SEND = 1
    RECALL = 2
    DRAFT = 3
    ASKED = 4
    """A send that a person was asked about, and that has not gone out."""


class Flag(IntEnum):
    """Flags of an event."""

    OUTSIDE = 1
    """It went to somebody who is neither internal nor on a list."""
    CUT = 2
    """A bound left marks or edges of it out."""


class Edge(NamedTuple):
    """Edge: one node follows from another."""

    parent: bytes
    kind: Kind


@dataclass(frozen=True, slots=True)
class Event:
    """One save, send or recall."""

    what: EventKind
    node: bytes
    label: Integrity
    call: int
    at: float
    session: bytes
    principal: bytes
    place: bytes
    """Mark of the item, or of the store where the call names none."""
    tool: str
    store: str
    server: bytes = bytes(8)
    """Digest of the listener and upstream."""
    origin: bytes = bytes(FINGERPRINT)
    """Mark of the sender or URL host that its session's untrusted text came from."""
    root: int = -1
    """Index of the call that brought the first untrusted text of its session; -1 for none."""
    root_tool: str = ""
    flags: int = 0
    edges: tuple[Edge, ...] = ()
    values: tuple[bytes, ...] = ()
    """Fingerprints of its evident values."""
    runs: tuple[bytes, ...] = ()
    """Marks of its passages."""
    wholes: tuple[bytes, ...] = ()
    """Marks of its whole texts."""

    @property
    def marks(self) -> tuple[bytes, ...]:
        """Every mark that it is known by."""
        return self.values + self.runs + self.wholes

    def conflict(self, earlier: Event | None) -> float:
        """Return how little it has of the version that it replaced: 1 - Jaccard of their marks."""
        one, other = set(self.marks), set(earlier.marks if earlier is not None else self.marks)
        return 1.0 - len(one & other) / len(one | other) if one | other else 0.0


def log_of(tenant: str, ttl: int = 0, limit: int = 0) -> LabelSet:
    """Return the stream of a tenant's events."""
    return LabelSet(LOG_KIND, (tenant,), "", ttl, limit)


def index_of(tenant: str, fingerprint: bytes, ttl: int = 0) -> LabelSet:
    """Return the part of the index that a mark lies in."""
    return LabelSet(INDEX_KIND, (tenant,), f"{bucket_of(fingerprint):x}", ttl, INDEX_LIMIT)


def node_of(seal: Seal, call_id: str) -> bytes:
    """Return the id of the node of a call."""
    return seal.digest("node", call_id)


def server_of(seal: Seal, listener: str, upstream: str) -> bytes:
    """Return the digest that names a server in events."""
    return seal.digest("server", listener, upstream)


def event_write(seal: Seal, area: LabelSet, event: Event) -> LabelWrite:
    """Return the record of an event, to be appended to the log."""
    return LabelWrite(
        area, LabelWriteMode.LOG, ((ENTRY, seal.sealed(area, ENTRY, pack_event(event))),)
    )


def pack_event(event: Event) -> bytes:
    """Return the bytes of an event."""
    names = [_named(name) for name in (event.tool, event.store, event.root_tool)]
    edges = event.edges[:PARENTS]
    head = _HEAD.pack(
        _VERSION,
        int(event.what),
        int(event.label),
        event.flags,
        max(-1, min(event.call, 2**31 - 1)),
        max(0, min(int(event.at), _AT_MAX)),
        event.session,
        event.principal,
        event.node,
        event.place,
        event.server,
        max(-1, min(event.root, 2**31 - 1)),
        event.origin,
        len(edges),
        len(event.values),
        len(event.runs),
        len(event.wholes),
        0,
    )
    parents = b"".join([edge.parent + bytes([edge.kind]) for edge in edges])
    return b"".join((head, parents, *names, *event.marks))


def _named(name: str) -> bytes:
    text = name.encode("utf-8", "replace")[:NAME]
    return bytes([len(text)]) + text


def unpack_event(body: bytes) -> Event:
    """Return the event in a body that :func:`readable` has passed."""
    _, what, label, flags, call, at, *rest = _HEAD.unpack_from(body)
    session, principal, node, place, server, root, origin, *sizes = rest
    edges = tuple(
        [
            Edge(body[at : at + NODE], Kind(body[at + NODE]))
            for at in range(_HEAD.size, _HEAD.size + sizes[0] * EDGE, EDGE)
        ]
    )
    names, start = [], _HEAD.size + sizes[0] * EDGE
    for _ in range(3):
        end = start + 1 + body[start]
        names.append(body[start + 1 : end].decode("utf-8", "replace"))
        start = end
    parts: list[tuple[bytes, ...]] = []
    for size, wide in zip(sizes[1:4], (FINGERPRINT, MARK, MARK), strict=True):
        end = start + size * wide
        parts.append(tuple([body[i : i + wide] for i in range(start, end, wide)]))
        start = end
    return Event(
        what=EventKind(what),
        node=node,
        label=Integrity(label),
        call=call,
        at=float(at),
        session=session,
        principal=principal,
        place=place,
        tool=names[0],
        store=names[1],
        server=server,
        origin=origin,
        root=root,
        root_tool=names[2],
        flags=flags,
        edges=edges,
        values=parts[0],
        runs=parts[1],
        wholes=parts[2],
    )


def readable(body: bytes | None) -> bool:
    """Return whether a body is an event of this version; None is one whose seal does not fit."""
    return body is not None and len(body) >= _HEAD.size and body[0] == _VERSION


def asked_writes(seal: Seal, writes: tuple[LabelWrite, ...]) -> tuple[LabelWrite, ...]:
    """Return the nodes among what a send would have stored, as of one that a person is asked about.

    A grant for it is then found from what the send follows from.
    """
    return tuple(
        LabelWrite(write.area, write.mode, ((ENTRY, seal.sealed(write.area, ENTRY, body)),))
        for write in writes
        if write.area.kind == LOG_KIND
        for _, sealed in write.entries
        for body in [sealed[SEAL : SEAL + 1] + bytes([EventKind.ASKED]) + sealed[SEAL + 2 :]]
    )


TEXT_LIMIT: Final = 64 * 1024
"""Bytes of the longest call whose text is kept."""


def texts_of(tenant: str, ttl: int = 0, limit: int = 0) -> LabelSet:
    """Return the stream of the texts of a tenant's saves."""
    return LabelSet(TEXT_KIND, (tenant,), "", ttl, limit)


def text_write(
    seal: Seal, area: LabelSet, node: bytes, tool: str, arguments: Mapping[str, Json]
) -> LabelWrite | None:
    """Return one save as it was asked for, enciphered; None where it is too long to be kept."""
    body = json.dumps([tool, dict(arguments)]).encode()
    if len(body) > TEXT_LIMIT:
        return None
    kept = node + seal.enciphered(area, node, zlib.compress(body))
    return LabelWrite(area, LabelWriteMode.LOG, ((ENTRY, kept),))


def read_text(seal: Seal, area: LabelSet, raw: bytes) -> tuple[bytes, str, dict[str, Json]] | None:
    """Return the node, the tool and the arguments of a save; None where it was altered."""
    node = raw[:NODE]
    body = seal.deciphered(area, node, raw[NODE:])
    if body is None:
        return None
    tool, arguments = json.loads(zlib.decompress(body))
    return node, str(tool), arguments


class Holder(NamedTuple):
    """A node that was seen to have a mark."""

    node: bytes
    place: bytes
    """First bytes of the mark of the item that it saved, or of its store."""
    is_known: bool
    """True if its label was better than untrusted."""
    kept: int
    """Passages that it is remembered by."""
    more: bytes
    """Additional bytes: for a passage, two bytes of each run around it."""


def holder_entry(
    seal: Seal, area: LabelSet, fingerprint: bytes, holder: Holder
) -> tuple[bytes, bytes]:
    """Return the field and the sealed bytes of one more holder of a mark."""
    name = fingerprint + HELD
    body = _HOLDER.pack(holder.node, holder.place, holder.is_known, min(holder.kept, 255))
    return name, seal.sealed(area, name, body + holder.more)


def holders_in(bodies: tuple[bytes, ...]) -> Iterator[Holder]:
    """Yield the holders in the entries of a list whose seals fit."""
    for body in bodies:
        node, place, known, kept = _HOLDER.unpack_from(body)
        yield Holder(node, place, bool(known), kept, body[_HOLDER.size :])


EDGE: Final = NODE + 1
"""Bytes of one edge in the record of the node it leads to."""
EDGES_AT: Final = _HEAD.size
EDGE_COUNT_AT: Final = _HEAD.size - 5
NODE_AT: Final = 28
