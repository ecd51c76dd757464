"""Continuity of the label store: what another store, or an earlier state, means.  Pure: no I/O.

An empty store looks like one in which nothing was ever read.  So each store carries a sealed record
of its identity, every guard remembers which one it saw last and how far that had come, and a store
that does not fit the memory has lost labels: until those would have expired, they count as
incomplete.  The record itself says until when, so all guards of a deployment agree.

Whoever can write to the store and keeps this record as it is can still remove others.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from guard.core.frozen import frozen
from guard.core.labels import LabelSet

if TYPE_CHECKING:
    from guard.provenance.seal import Seal

ID_BYTES: Final = 16
_VERSION: Final = 1
_BODY: Final = struct.Struct(f">B{ID_BYTES}sQQQ")
_FIELD: Final = b"birth"


class Loss(StrEnum):
    """Difference between the store and the remembered one."""

    NONE = "none"
    EMPTY = "empty"
    """Missing record: flushed, restarted without persistence, or another, empty server."""
    REPLACED = "replaced"
    """Another store's record, or one that a guard wrote after a loss that this one had not seen."""
    ROLLED_BACK = "rolled_back"
    """An earlier state of the same store: restored from a backup or an old snapshot."""
    ALTERED = "altered"
    """A record whose MAC does not fit: it was changed, or made with another label key."""


@frozen
class StoreIdentity:
    """The record of one label store."""

    id: bytes
    """``ID_BYTES`` random bytes."""
    began: int
    """Seconds since the epoch."""
    incomplete_until: int = 0
    """Labels may be missing until then; 0 where none were lost, or the loss was accepted."""
    serial: int = 1
    """Grows with every look of a guard, so that an earlier state of the store shows."""


@frozen
class LastSeen:
    """Last record of the store that a guard has seen."""

    id: bytes
    """Empty where there was one that cannot be read: it fits no store."""
    serial: int


def sealed_identity(seal: Seal, namespace: str, identity: StoreIdentity) -> bytes:
    """Return the record behind its MAC."""
    body = _BODY.pack(
        _VERSION, identity.id, identity.began, identity.incomplete_until, identity.serial
    )
    return seal.sealed(_area(namespace), _FIELD, body)


def opened_identity(seal: Seal, namespace: str, raw: bytes) -> StoreIdentity | None:
    """Return the record, or None where its MAC does not fit."""
    body = seal.opened(_area(namespace), _FIELD, raw)
    if body is None or len(body) != _BODY.size or body[0] != _VERSION:
        return None
    return StoreIdentity(*_BODY.unpack(body)[1:])


def judge_identity(
    found: StoreIdentity | Loss, noted: LastSeen | None, fresh: StoreIdentity, lifetime: int
) -> tuple[StoreIdentity, Loss]:
    """Return the record to write next, and what was lost.

    INVARIANT (loss is caution): whatever was found, unless it is the remembered store at least as
    far as remembered, or there is no memory and nothing altered, the record to write is incomplete
    for a whole ``lifetime``.

    Args:
        found: the record in the store; ``Loss.EMPTY`` or ``Loss.ALTERED`` for none.
        noted: the record that was seen last, None where there never was one.
        fresh: a record that begins now.
        lifetime: seconds that a lost label would have lived.
    """
    until = fresh.began + lifetime
    if isinstance(found, Loss):
        if found is Loss.EMPTY and noted is None:
            return fresh, Loss.NONE
        serial = noted.serial + 1 if noted is not None else 1
        return StoreIdentity(fresh.id, fresh.began, until, serial), found
    loss = Loss.NONE
    serial = found.serial
    if noted is not None and noted.id != found.id:
        # Its id stays: guards that remember different stores must not take turns replacing it.
        loss = Loss.REPLACED
    elif noted is not None and found.serial < noted.serial:
        loss, serial = Loss.ROLLED_BACK, noted.serial
    until = max(until, found.incomplete_until) if loss is not Loss.NONE else found.incomplete_until
    return StoreIdentity(found.id, found.began, until, serial + 1), loss


def _area(namespace: str) -> LabelSet:
    return LabelSet(_FIELD.decode(), (namespace,))
