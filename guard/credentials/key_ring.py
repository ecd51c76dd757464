"""Keys that rotate with an overlap: beside a key file lies its ring, ``KEY.ring``, in JSON.

A ring lists keys with the time from which each is used.  Until then, and until it is retired, a key
is accepted: so every process that shares the ring knows a key before the first of them uses it, and
what an earlier key has sealed stays good.  Without a ring the file is the one key.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError, InputError
from guard.credentials.label_key import audit_key_path, load_key
from guard.environment import say
from guard.processes.private_directories import write_private
from guard.provenance.seal import KEY_BYTES, Seal
from guard.telemetry.audit_log import AuditLogFile, NoAuditLog
from guard.telemetry.audit_tree import Signer, Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SUFFIX: Final = ".ring"
OVERLAP_SECONDS: Final = 60.0
"""From which on a new key is used: every process has read the ring by then."""
LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RingKey:
    """One key of a ring."""

    id: str
    """Names it without telling it."""
    since: float
    """From when it is used, in seconds since the epoch; 0 for the key file's."""
    key: bytes
    """Empty once it is retired."""
    public: str = ""
    """Its public half, where it has one: what it signed can be verified for good."""


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of one purpose, oldest first."""

    root: bytes
    """Content of the key file, used or not: fingerprints of values are made with it for good."""
    keys: tuple[RingKey, ...]

    def readers(self) -> tuple[bytes, list[bytes]]:
        """Return the newest key that is not retired, and the others.

        Raises:
            GuardError: every key is retired.
        """
        newest, *others = self.in_use(float("inf"))
        return newest, others

    def in_use(self, at: float) -> list[bytes]:
        """Return the keys that are accepted: first the one that is used, then the others.

        Raises:
            GuardError: every key that has begun is retired.
        """
        good = [one for one in self.keys if one.key]
        begun = [one for one in good if one.since <= at]
        if not begun:
            raise GuardError("every key of the ring is retired, or begins later")
        used = max(begun, key=lambda one: one.since)
        return [used.key, *(one.key for one in reversed(good) if one is not used)]


def load_ring(path: Path, what: str, *, make: bool = True) -> KeyRing:
    """Return the keys of a file and of the ring beside it.

    Args:
        path: the key file.
        what: what it is called in errors.
        make: whether to make the key file where there is none.

    Raises:
        GuardError: the file or its ring cannot be read, or others can read it.
    """
    root = load_key(path, what, make=make)
    own = RingKey(key_id(root), 0.0, root)
    file = ring_path(path)
    if not file.exists():
        return KeyRing(root, (own,))
    try:
        # As for a key file: nobody else may read it.
        entries = json.loads(load_key(file, f"ring of the {what}", make=False))["keys"]
        keys = [_read(one, own) for one in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise GuardError(f"the ring of the {what} `{file}` cannot be read") from error
    return KeyRing(root, tuple(keys))


def ring_path(path: Path) -> Path:
    """Return where the ring of a key file lies."""
    return path.with_name(path.name + SUFFIX)


def rotate(path: Path, what: str, at: float, delay: float = OVERLAP_SECONDS) -> RingKey:
    """Add a key that is used from ``delay`` seconds after ``at`` on; return it.

    Raises:
        GuardError: the ring cannot be read or written.
    """
    ring = load_ring(path, what)
    made = secrets.token_bytes(KEY_BYTES)
    fresh = RingKey(key_id(made), at + delay, made)
    _write(path, what, [*ring.keys, fresh])
    return fresh


def retire(
    path: Path, what: str, identifier: str, at: float, public: Callable[[bytes], str] | None = None
) -> RingKey:
    """Forget a key, so that what it sealed is no longer accepted; return it.

    Args:
        path: the key file.
        what: what it is called in errors.
        identifier: of the key.
        at: now; the key that is used then is not retired.
        public: returns the public half of a key, which is kept.

    Raises:
        InputError: there is no such key, or it is used now, or will be.
        GuardError: the ring cannot be read or written.
    """
    ring = load_ring(path, what, make=False)
    used = key_id(ring.in_use(at)[0])
    wanted = next((one for one in ring.keys if one.id == identifier), None)
    if wanted is None or not wanted.key:
        raise InputError(f"the ring of the {what} has no key `{identifier}`; see `guard keys list`")
    if wanted.id == used:
        raise InputError(f"`{identifier}` is used now; rotate first")
    gone = replace(wanted, key=b"", public=public(wanted.key) if public else "")
    _write(path, what, [gone if one is wanted else one for one in ring.keys])
    return wanted


def key_id(key: bytes) -> str:
    """Return what names a key without telling it."""
    return hashlib.sha256(b"guard key ring" + key).hexdigest()[:12]


def open_signed_log(path: Path | None, key: Path | None) -> AuditLogFile | NoAuditLog:
    """Return the audit log of a path, which a key signs; one that drops its lines without a path.

    Raises:
        GuardError: the log or the key cannot be used.
    """
    return NoAuditLog() if path is None else AuditLogFile(path, signer=audit_signer(key))


def audit_signer(path: Path | None = None) -> Signer:
    """Return what signs the audit log: every key of the ring that is accepted.

    Args:
        path: the key file; left out, one in the user's state directory, made if absent.

    Raises:
        GuardError: it cannot be used.
    """
    ring = load_ring(path or audit_key_path(), "audit key")
    return signer_of(ring.in_use(time.time()))  # noqa: TID251  (the edge where time comes in)


def signer_of(keys: list[bytes]) -> Signer:
    """Return what signs with some keys."""
    return Signer(keys[0], keys[1:])


def audit_verifiers(path: Path | None = None) -> list[Verifier]:
    """Return the verifiers of every key that the audit log has been signed with.

    Raises:
        GuardError: the keys cannot be used.
    """
    ring = load_ring(path or audit_key_path(), "audit key")
    good = [one.key for one in ring.keys if one.key]
    retired = [Verifier.parse(one.public) for one in ring.keys if one.public]
    return [*signer_of(good).verifiers, *retired]


def load_seal(path: Path, at: float) -> Seal:
    """Return the seal of a label key and its ring.

    Raises:
        GuardError: as for :func:`load_ring`.
    """
    ring = load_ring(path, "label key")
    return Seal(ring.root, ring.in_use(at))


class KeyWatch:
    """Has a process use the keys of a ring as it changes, and as time goes on.

    Args:
        path: the key file.
        what: what it is called in errors.
        use: takes the keys that are accepted, the one that is used first.
        now: seconds since the epoch.

    Attributes:
        what: what the key is called.
        use: as given; called by whoever looks, where its process is safe to change.
    """

    def __init__(
        self, path: Path, what: str, use: Callable[[list[bytes]], None], now: Callable[[], float]
    ) -> None:
        self._path = path
        self.what = what
        self.use = use
        self._now = now
        self._used: list[bytes] = []
        self._looks: tuple[int, int] | None = None
        self._ring: KeyRing | None = None

    def look(self) -> list[bytes] | None:
        """Return the keys to use from now on, None where they are those that were returned last.

        Raises:
            GuardError: the ring cannot be read; the keys before stay in use.
        """
        try:
            found = ring_path(self._path).stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise GuardError(f"the ring of the {self.what} cannot be looked at") from error
        looks = found.st_mtime_ns, found.st_ino
        if self._ring is None or looks != self._looks:
            self._ring, self._looks = load_ring(self._path, self.what, make=False), looks
        keys = self._ring.in_use(self._now())
        if keys == self._used:
            return None
        self._used = keys
        return keys


def key_watches(
    label_key: Path,
    seal: Seal,
    audit_key: Path | None,
    audit: AuditLogFile | NoAuditLog,
    now: Callable[[], float],
) -> list[KeyWatch]:
    """Return the watches of a label key and, where there is an audit log, of the one that signs it.

    Args:
        label_key: file of the label key.
        seal: what it seals with.
        audit_key: file of the key that signs the log; left out, one in the user's state directory.
        audit: the log.
        now: seconds since the epoch.
    """
    found = [KeyWatch(label_key, "label key", seal.rotate, now)]
    if isinstance(audit, AuditLogFile):
        path = audit_key or audit_key_path()
        found.append(
            KeyWatch(path, "audit key", lambda keys: audit.use_signer(signer_of(keys)), now)
        )
    return found


async def follow_keys(
    watches: Sequence[KeyWatch],
    noted: Callable[[str, list[bytes]], object] = lambda *_: None,
    failed: Callable[[], object] = lambda: None,
) -> None:
    """Use the keys of rings as they change; a ring that cannot be read leaves the keys before.

    Args:
        watches: of the rings.
        noted: takes what a key is called and the keys to use, before they are used.
        failed: counts an error.
    """
    while True:
        for one in watches:
            try:
                keys = await asyncio.to_thread(one.look)
                if keys is not None:
                    noted(one.what, keys)
                    one.use(keys)
            except GuardError as error:
                failed()
                say(f"{error}; the keys before stay in use")
        await asyncio.sleep(LOOK_SECONDS)


def _read(entry: dict[str, Any], own: RingKey) -> RingKey:
    if entry["id"] == own.id:
        key = b"" if entry.get("retired") else own.key
        return replace(own, key=key, public=str(entry.get("public", "")))
    key = base64.b64decode(entry["key"], validate=True)
    if key and len(key) < KEY_BYTES:
        raise ValueError("a key is too short")
    return RingKey(str(entry["id"]), float(entry["since"]), key, str(entry.get("public", "")))


def _write(path: Path, what: str, keys: list[RingKey]) -> None:
    """Replace the ring, whole: whoever reads it finds the old one or the new one."""
    entries = [
        {
            "id": one.id,
            "since": one.since,
            "key": "" if not one.since else base64.b64encode(one.key).decode(),
            "retired": not one.key,
            "public": one.public,
        }
        for one in keys
    ]
    try:
        write_private(ring_path(path), json.dumps({"keys": entries}, indent=1).encode() + b"\n")
    except OSError as error:
        raise GuardError(f"the ring of the {what} cannot be written: {error.strerror}") from error
