"""Fingerprints and sealed records: what the store holds instead of text.  Pure: no I/O.

A fingerprint is a keyed digest: a reader of the store cannot try addresses against it.  A record is
sealed with a MAC over its place: a writer to the store can neither raise a label nor move a record
from one value, session or store to another.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from guard.core.labels import CHANNELS, LabelRecord, LabelSet
from guard.core.model import Identity, Integrity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


FINGERPRINT: Final = 12
"""Bytes of a fingerprint."""
SEAL: Final = 8
"""Bytes of a MAC: a forger has one try per write and no oracle."""
KEY_BYTES: Final = 32
PLACES_REMEMBERED: Final = 1024
DIGESTS_REMEMBERED: Final = 1024
RECORDS_REMEMBERED: Final = 1024
"""Sealed records that were read: those of a receiver come with every call to it."""
FOLDS_REMEMBERED: Final = 8
SOURCE_LIMIT: Final = 24
"""Bytes of a source's name that are kept."""
SERVICES_LIMIT: Final = 17
"""Marks of services behind a source's name, after a NUL, which a name does not have."""
_PROMOTION: Final = "promotion"
"""Purpose of the signature of a promotion token."""
_NUL: Final = b"\0"
_NONCE: Final = 12
_VERSION: Final = 1
_LABELS: Final = tuple(Integrity)
_BODY: Final = struct.Struct(">BBBiI8s")
_BODY_SIZE: Final = _BODY.size
LABEL_BYTE: Final = SEAL + 2
"""One-based place of the label in a record, for the store's script."""
CHANNEL_BYTE: Final = LABEL_BYTE + 1
"""Likewise of the channel."""
_CALL_MAX: Final = 2**31 - 1
_AT_MAX: Final = 2**32 - 1
SERVICE_MARK: Final = 8
"""Bytes of a service's mark."""
ANY_SERVICE: Final = bytes(SERVICE_MARK)
"""Mark of a value that vouches in every service, although others of its kind do not."""
SCOPED: Final = 2
"""Version of a record that ends with its scope: for whom it holds, and until when."""
_SCOPE: Final = struct.Struct(">8sI")
_EVERYBODY: Final = bytes(8)


class _Sealing:
    """MACs and ciphertexts of one key."""

    __slots__ = ("begun", "cipher", "key", "seals")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.seals = hashlib.blake2b(key, digest_size=32, person=b"seal").digest()
        self.cipher = AESGCM(hashlib.blake2b(key, digest_size=32, person=b"cipher").digest())
        self.begun = lru_cache(maxsize=PLACES_REMEMBERED)(self._begin)

    def _begin(self, kind: str, owner: tuple[str, ...]) -> hashlib.blake2b:
        """Return the MAC behind what it binds a record to; the part follows from the field."""
        return hashlib.blake2b(_framed(kind, *owner), key=self.seals, digest_size=SEAL)


class _Ring:
    """The keys in use: one seals, the others are accepted."""

    __slots__ = ("keys",)

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys = tuple(map(_Sealing, keys))


class Seal:
    """Everything that needs the deployment's keys.

    Args:
        key: at least ``KEY_BYTES`` random bytes, the same for every worker of a deployment:
            fingerprints of values are made with it, for good.
        keys: that seal; the first is used, the others are accepted.  Left out, ``key``.
    """

    def __init__(self, key: bytes, keys: Sequence[bytes] = ()) -> None:
        keys = keys or (key,)
        if min(map(len, (key, *keys))) < KEY_BYTES:
            raise ValueError(f"a label key has at least {KEY_BYTES} bytes")
        self._key = key
        values = hashlib.blake2b(key, digest_size=32, person=b"value").digest()
        # Each is copied and never changed: that takes 60 % of the time of making one.
        self._marks, self._short, self._nonces = (
            hashlib.blake2b(key=values, digest_size=size) for size in (FINGERPRINT, 8, _NONCE)
        )
        self._ring = _Ring(keys)
        self._records = lru_cache(maxsize=RECORDS_REMEMBERED)(self._read)
        self._digests = lru_cache(maxsize=DIGESTS_REMEMBERED)(self.digest)
        self._fold: Callable[[str], str] | None = None
        self._folding = lru_cache(maxsize=FOLDS_REMEMBERED)(self._with_fold)

    def __reduce__(self) -> tuple[Callable[..., Seal], tuple[object, ...]]:
        """Give the keys to another process of this guard, which makes its own caches."""
        return _with_keys, (self._key, tuple(one.key for one in self._ring.keys), self._fold)

    def rotate(self, keys: Sequence[bytes]) -> None:
        """Use the first of some keys from now on, and accept the others, here and in foldings."""
        self._ring.keys = tuple(map(_Sealing, keys))
        self._records.cache_clear()

    def folding(self, fold: Callable[[str], str] | None) -> Seal:
        """Return a seal of the same key for which values that fold to one are one.

        Args:
            fold: as the policy in force declares it; None where it declares none.
        """
        return self if fold is None else self._folding(fold)

    def _with_fold(self, fold: Callable[[str], str]) -> Seal:
        # `copy` would make a seal for another process: this one's keys rotate with the original.
        folding = Seal.__new__(Seal)
        vars(folding).update(vars(self), _fold=fold)
        return folding

    def fingerprint(self, value: str) -> bytes:
        """Return the fingerprint of a value."""
        if self._fold is not None:
            value = self._fold(value)
        state = self._marks.copy()
        state.update(value.encode("utf-8", "surrogatepass"))
        return state.digest()

    def digest(self, *parts: str) -> bytes:
        """Return an 8-byte keyed digest of some texts, none of which can run into the next."""
        state = self._short.copy()
        state.update(_framed(*parts, size=8))
        return state.digest()

    def session(self, identity: Identity) -> bytes:
        """Return the digest that names a session in records."""
        return self._digests(identity.tenant, identity.principal, identity.session)

    def principal(self, identity: Identity) -> bytes:
        """Return the digest that names a principal in records."""
        return self._digests("principal", identity.tenant, identity.principal)

    def service(self, *names: str) -> bytes:
        """Return the mark of a service: of its place and its names, or of one name alone."""
        return self._digests("service", *names)

    def sealed(self, area: LabelSet, field: bytes, body: bytes) -> bytes:
        """Return a body behind the MAC that binds it to its place."""
        return self._mac(area.kind, area.owner, field, body) + body

    def sealed_all(
        self, area: LabelSet, entries: Iterable[tuple[bytes, bytes]]
    ) -> tuple[tuple[bytes, bytes], ...]:
        """Return some fields of one set, each with its body as :meth:`sealed` returns it."""
        begun = self._ring.keys[0].begun(area.kind, area.owner)
        found: list[tuple[bytes, bytes]] = []
        for field, body in entries:
            state = begun.copy()
            state.update(len(field).to_bytes(4, "big") + field + body)
            found.append((field, state.digest() + body))
        return tuple(found)

    def opened(self, area: LabelSet, field: bytes, sealed: bytes) -> bytes | None:
        """Return the body, or None where the MAC does not fit."""
        body = sealed[SEAL:]
        fits = self._fits(area.kind, area.owner, field, sealed)
        return body if fits else None

    def opened_all(
        self, area: LabelSet, field: bytes, records: Iterable[bytes]
    ) -> list[bytes | None]:
        """Return what :meth:`opened` does of each of many records at one place, faster."""
        begun = self._ring.keys[0].begun(area.kind, area.owner).copy()
        begun.update(len(field).to_bytes(4, "big") + field)
        found: list[bytes | None] = []
        for sealed in records:
            body, state = sealed[SEAL:], begun.copy()
            state.update(body)
            fits = hmac.compare_digest(sealed[:SEAL], state.digest())
            if not fits and len(self._ring.keys) > 1:
                fits = self._fits(area.kind, area.owner, field, sealed)
            found.append(body if fits else None)
        return found

    def enciphered(self, area: LabelSet, field: bytes, text: bytes) -> bytes:
        """Return a text that only a holder of the key can read, and only at its place.

        The nonce is a keyed digest of place and text, so one text at one place has one form and
        no nonce serves two texts.
        """
        place = _place(area, field)
        state = self._nonces.copy()
        state.update(place + text)
        nonce = state.digest()
        return nonce + self._ring.keys[0].cipher.encrypt(nonce, text, place)

    def deciphered(self, area: LabelSet, field: bytes, raw: bytes) -> bytes | None:
        """Return the text, None where it was altered or lay elsewhere."""
        place = _place(area, field)
        for one in self._ring.keys:
            with suppress(InvalidTag, ValueError):
                return one.cipher.decrypt(raw[:_NONCE], raw[_NONCE:], place)
        return None

    def signature(self, purpose: str, data: bytes) -> str:
        """Return a keyed digest (hex, 32 bytes) by which a document is known to be this guard's."""
        return _signature(self._ring.keys[0].seals, purpose, data)

    def is_signature(self, purpose: str, data: bytes, found: str) -> bool:
        """Return whether :meth:`signature` made a digest, with any key that is accepted."""
        made = [_signature(one.seals, purpose, data) for one in self._ring.keys]
        return any(hmac.compare_digest(found.encode(), one.encode()) for one in made)

    def promotion(self, tenant: str, content: str, target: str, principal: str, until: int) -> str:
        """Return the MAC (hex) of a token that lets a content of a principal into a class, once.

        Args:
            tenant: whose memory.
            content: digest of the content.
            target: name of the class.
            principal: who may write it.
            until: when it expires, in milliseconds since the epoch.
        """
        return self.signature(_PROMOTION, _framed(tenant, content, target, principal, str(until)))

    def is_promotion(self, mac: str, *parts: str) -> bool:
        """Return whether :meth:`promotion` made a MAC of these parts, with any accepted key."""
        return self.is_signature(_PROMOTION, _framed(*parts), mac)

    def write(
        self, area: LabelSet, field: bytes, record: LabelRecord, names: Iterable[bytes] = ()
    ) -> tuple[bytes, bytes]:
        """Return the field and the sealed bytes of a record; see :meth:`body`."""
        body = self.body(record, names)
        return field, self._mac(area.kind, area.owner, field, body) + body

    @staticmethod
    def body(record: LabelRecord, names: Iterable[bytes] = ()) -> bytes:
        """Return the bytes of a record that are sealed at its place.

        Behind it are its origin or the fingerprints of its names, then its scope where it has one.
        """
        body = pack_record(record) + record.origin + b"".join(names)
        if record.principal or record.until:
            until = max(1, min(int(record.until), _AT_MAX)) if record.until else 0
            body = bytes([SCOPED]) + body[1:] + _SCOPE.pack(record.principal, until)
        return body

    def read(self, area: LabelSet, field: bytes, raw: object) -> LabelRecord | None:
        """Return the record in a field; one that was altered is unsealed and untrusted."""
        if raw is None:
            return None
        if not isinstance(raw, bytes):
            return ALTERED
        return self._records(area.kind, area.owner, field, raw)

    def _read(self, kind: str, owner: tuple[str, ...], field: bytes, raw: bytes) -> LabelRecord:
        body = raw[SEAL:]
        if not self._fits(kind, owner, field, raw):
            return ALTERED
        if len(body) <= _BODY_SIZE or body[0] not in {_VERSION, SCOPED}:
            return ALTERED
        scope = None
        if body[0] == SCOPED:
            scope = _SCOPE.unpack_from(body, len(body) - _SCOPE.size)
        return unpack_record(body, with_origin=True, scope=scope)[0]

    def _mac(self, kind: str, owner: tuple[str, ...], field: bytes, body: bytes) -> bytes:
        state = self._ring.keys[0].begun(kind, owner).copy()
        state.update(len(field).to_bytes(4, "big") + field + body)
        return state.digest()

    def _fits(self, kind: str, owner: tuple[str, ...], field: bytes, sealed: bytes) -> bool:
        """Return whether a body stands behind its MAC, made with any key that is accepted."""
        mac, text = sealed[:SEAL], len(field).to_bytes(4, "big") + field + sealed[SEAL:]
        for one in self._ring.keys:
            state = one.begun(kind, owner).copy()
            state.update(text)
            if hmac.compare_digest(mac, state.digest()):
                return True
        return False


def _with_keys(key: bytes, keys: tuple[bytes, ...], fold: Callable[[str], str] | None) -> Seal:
    return Seal(key, keys).folding(fold)


def _signature(key: bytes, purpose: str, data: bytes) -> str:
    state = hashlib.blake2b(key=key, digest_size=32, person=b"signature")
    name = purpose.encode()
    state.update(len(name).to_bytes(4, "big") + name + data)
    return state.hexdigest()


def _framed(*texts: str, size: int = 4) -> bytes:
    """Return texts in bytes, none of which can run into the next.

    Args:
        texts: to be joined.
        size: bytes of each length.
    """
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join(len(part).to_bytes(size, "big") + part for part in parts)


def _place(area: LabelSet, field: bytes) -> bytes:
    return _framed(area.kind, *area.owner) + len(field).to_bytes(4, "big") + field


def pack_record(record: LabelRecord) -> bytes:
    """Return the bytes of a record without its origin, which end with its source."""
    body = _BODY.pack(
        _VERSION,
        int(record.label),
        CHANNELS.index(record.channel),
        max(-1, min(record.call, _CALL_MAX)),
        max(0, min(int(record.at), _AT_MAX)),
        record.session,
    )
    source = record.source.encode("utf-8", "replace")[:SOURCE_LIMIT].replace(_NUL, b"?")
    if record.services:
        source += _NUL + b"".join(record.services[:SERVICES_LIMIT])
    return body + bytes([len(source)]) + source


def unpack_record(
    body: bytes,
    start: int = 0,
    *,
    with_origin: bool = False,
    scope: tuple[bytes, int] | None = None,
) -> tuple[LabelRecord, int]:
    """Return the record that begins at a place of a sealed body, and where its source ends.

    Args:
        body: without its MAC.
        start: where the record begins.
        with_origin: whether its origin stands behind it, where it is untrusted.
        scope: the principal for whom it holds, zeros for everybody, and until when.
    """
    _, label, channel, call, at, session = _BODY.unpack_from(body, start)
    name = start + _BODY_SIZE
    end = name + 1 + body[name]
    source, _, marks = body[name + 1 : end].partition(_NUL)
    # A vouching record has names of messages behind its source, and lacks an origin.
    has_origin = with_origin and label == Integrity.UNTRUSTED
    origin = body[end : end + FINGERPRINT] if has_origin else b""
    principal, until = (b"", 0) if scope is None else scope
    if principal == _EVERYBODY:
        principal = b""
    record = LabelRecord(
        _LABELS[label],
        CHANNELS[channel],
        call,
        float(at),
        session,
        source.decode("utf-8", "replace"),
        origin=origin,
        principal=principal,
        until=float(until),
        services=tuple(marks[at : at + SERVICE_MARK] for at in range(0, len(marks), SERVICE_MARK)),
    )
    return record, end


ALTERED: Final = LabelRecord(Integrity.UNTRUSTED, CHANNELS[0], -1, 0.0, b"", "", sealed=False)
"""Stands for a record whose MAC does not fit."""
NAMES_AT: Final = SEAL + _BODY.size + 1
"""Zero-based place of the byte with the length of the source; names follow the source."""
VERSION_BYTE: Final = SEAL + 1
"""One-based place of the byte that says whether a record ends with its scope."""
SCOPE_SIZE: Final = _SCOPE.size
UNKNOWN_WRITERS: Final = bytes(FINGERPRINT)
"""In the place of the mark of a message's writers, where its service did not say who they are."""


def names_in(raw: bytes) -> list[bytes]:
    """Return the fingerprints behind a sealed record's source."""
    if len(raw) < NAMES_AT:
        return []
    end = len(raw) - (SCOPE_SIZE if raw[SEAL] == SCOPED else 0)
    start = NAMES_AT + raw[NAMES_AT - 1]
    return [raw[at : at + FINGERPRINT] for at in range(start, end - FINGERPRINT + 1, FINGERPRINT)]
