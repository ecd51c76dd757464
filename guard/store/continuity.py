"""Continuity of the label store: its identity record, checks of it, and reports of a loss.

The record in the store is looked at at the start, then periodically, and on suspicion.  None of it
is on the path of a call, with two exceptions: the first call on a new connection, which may lead to
another server or to an empty one, and the first call of a principal of whom the store knows
nothing.  The guard notes beside its label key which store it saw last; losses are told by an audit
line, a line on stderr and a gauge.  What a record means is decided in
:mod:`guard.provenance.store_continuity`.

Marks of unlabelled results on disk: they outlive workers, the guard, and the machine's power.

One SQLite file for all workers of a guard; beside it one byte that every worker has mapped, so that
looking whether there is any mark costs a call nothing.  The byte is set before a mark is written
and cleared only where the file, locked, has none.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import secrets
import sys
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from guard.core.errors import AuditError, GuardError, StateError
from guard.core.metrics import ERRORS, LABELS_INCOMPLETE
from guard.processes.private_directories import write_private
from guard.provenance.store_continuity import (
    ID_BYTES,
    LastSeen,
    Loss,
    StoreIdentity,
    judge_identity,
    opened_identity,
    sealed_identity,
)
from guard.store.connection import CommandRefusedError, RedisClient
from guard.store.layout import load_script, tenant_tag

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from guard.core.ports import AuditLog
    from guard.provenance.seal import Seal
    from guard.telemetry.metrics import PrometheusMetrics


_PARTS: Final = 2
_UNREADABLE: Final = LastSeen(b"", 0)


class ContinuityNote:
    """The file beside the label key that says which label store was seen last.

    Only its user can read it.  It is replaced whole, so of several workers that write it one wins,
    and whoever reads it reads all of it.

    Args:
        key: the label key's file; the note lies beside it.
        store: what kind of store it is about, ``redis`` or ``embedded``.
    """

    def __init__(self, key: Path, store: str) -> None:
        self._key = key
        self._store = store
        self._path = key.with_name(f"{key.name}.{store}-birth")

    def of(self, part: str) -> ContinuityNote:
        """Return the note of one part of the store."""
        return ContinuityNote(self._key, f"{self._store}-{part}")

    def read(self) -> LastSeen | None:
        """Return what was noted, None where nothing ever was.

        Raises:
            GuardError: there is a note that cannot be read.
        """
        try:
            words = self._path.read_text(encoding="ascii", errors="replace").split()
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = (error.strerror or "error").lower()
            raise GuardError(
                f"the note of the label store `{self._path}` cannot be read: {reason}"
            ) from error
        try:
            name, serial = bytes.fromhex(words[0]), int(words[1])
        except (ValueError, IndexError):
            return _UNREADABLE
        if len(words) != _PARTS or len(name) != ID_BYTES or serial < 0:
            return _UNREADABLE
        return LastSeen(name, serial)

    def write(self, seen: LastSeen) -> bool:
        """Note what was seen; return whether that was possible."""
        try:
            write_private(self._path, f"{seen.id.hex()} {seen.serial}\n".encode("ascii"))
        except OSError:
            return False
        return True


_TRIES: Final = 16
"""Attempts to replace the record while other guards replace it too; then the check fails."""


@dataclass(frozen=True, slots=True)
class ContinuityCheck:
    """The outcome of one check of the record."""

    identity: StoreIdentity
    """The record after the check."""
    loss: Loss
    at: float
    noted: bool
    """True if the note beside the label key could be written."""
    part: str = ""
    """Part of the store that was lost, empty for all of it."""

    @property
    def incomplete(self) -> bool:
        """State of the labels: whether some may be missing."""
        return self.at < self.identity.incomplete_until


class ContinuityWatch:
    """Checks the identity of one guard's label store, and remembers the last result.

    Args:
        client: the connection to the store.
        seal: of the deployment's key.
        note: keeps the record that was seen last, across restarts.
        now: returns seconds since the epoch.
        told: called with the outcome of every check.
        kept: whether the store is meant to outlive the guard; the embedded one is not.
        namespace: first part of every key.
        part: hash tag of the tenant whose part of a Cluster it is about, empty for all of a store.

    Raises:
        GuardError: the note cannot be read.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        client: RedisClient,
        *,
        seal: Seal,
        note: ContinuityNote,
        now: Callable[[], float],
        told: Callable[[ContinuityCheck], None] = lambda _: None,
        kept: bool = True,
        namespace: str = "guard",
        part: str = "",
    ) -> None:
        self._client = client
        self._record = _IdentityRecord(client, seal, namespace, part)
        self._part = part
        self._parts: dict[str, ContinuityWatch] = {}
        self.has_parts = bool(client.record_tag("any"))
        """True if parts of the store can be lost by themselves."""
        self._beginning: Callable[[str], ContinuityWatch] = lambda tag: ContinuityWatch(
            client,
            seal=seal,
            note=note.of(tag),
            now=now,
            told=told,
            kept=kept,
            namespace=namespace,
            part=tag,
        )
        self._note = note
        self._now = now
        self._told = told
        self.kept = kept
        self.incomplete_until = 0.0
        self._last_seen = note.read()
        self.opened = -1
        """Connections that had been opened when the last check began; behind a later one may be
        another server."""
        self._looking = asyncio.Lock()
        self._coming: asyncio.Task[None] | None = None

    def of(self, tenant: str) -> ContinuityWatch:
        """Return the watch of a tenant's part: in a Cluster each shard can be lost by itself.

        Raises:
            GuardError: its note cannot be read.
        """
        if not self.has_parts:
            return self
        tag = self._client.record_tag(tenant_tag(tenant))
        if tag not in self._parts:
            self._parts[tag] = self._beginning(tag)
        return self._parts[tag]

    async def look_everywhere(self, lifetime: int) -> None:
        """:meth:`look` at the record of every part; a part begins with its first call.

        Raises:
            StateError: as :meth:`look`.
        """
        parts = list(self._parts.values()) if self.has_parts else [self]
        await asyncio.gather(*(part.look(lifetime) for part in parts))

    async def look(self, lifetime: int) -> None:
        """Read the record, compare it with the one seen last, and write its successor.

        Callers that arrive before a check begins share it.

        Args:
            lifetime: seconds that a label lost now would have lived.

        Raises:
            StateError: the store did not answer, or its record kept changing.
        """
        if self._coming is None:
            self._coming = asyncio.get_running_loop().create_task(self._look(lifetime))
            # All callers may have been cancelled by the time it fails: fetch its exception here.
            self._coming.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._coming)

    async def _look(self, lifetime: int) -> None:
        async with self._looking:
            self._coming = None
            opened = self._client.opened
            at = self._now()
            for tried in range(_TRIES):
                raw, found = await self._record.read()
                fresh = StoreIdentity(secrets.token_bytes(ID_BYTES), int(at))
                identity, loss = judge_identity(found, self._last_seen, fresh, lifetime)
                if tried and loss is Loss.NONE and isinstance(found, StoreIdentity):
                    # Another guard has checked it meanwhile and written its successor.
                    identity = found
                    break
                if await self._record.replace(raw, identity):
                    break
            else:
                self.incomplete_until = max(self.incomplete_until, at + lifetime)
                raise StateError("the identity record of the label store does not hold still")
            self.opened = opened
            self.incomplete_until = float(identity.incomplete_until)
            self._last_seen = LastSeen(identity.id, identity.serial)
            noted = await asyncio.to_thread(self._note.write, self._last_seen)
            self._told(ContinuityCheck(identity, loss, at, noted, self._part))


async def accept_loss(client: RedisClient, seal: Seal, namespace: str = "guard") -> StoreIdentity:
    """Declare the labels of a store complete again; return its record as it was.

    Of a Cluster's several records, those that say so are replaced, and the last of them returned.

    Raises:
        StateError: none says that labels are missing, or the store did not answer.
    """
    found: StoreIdentity | None = None
    refusal: StateError | None = None
    for part in await _parts(client, namespace):
        try:
            found = await _accept_loss(_IdentityRecord(client, seal, namespace, part))
        except StateError as error:
            refusal = error
    if found is None:
        raise refusal or StateError("the label store has no identity record")
    return found


async def _parts(client: RedisClient, namespace: str) -> list[str]:
    """Return the hash tags under which identity records lie; one empty text for a single server."""
    if not client.record_tag("any"):
        return [""]
    found: list[str] = []
    async for keys in client.scan(f"{namespace}:{{"):
        tags = (key.decode()[len(namespace) + 2 :].partition("}") for key in keys)
        found += [tag for tag, _, rest in tags if rest == ":birth"]
    return sorted(set(found))


async def _accept_loss(record: _IdentityRecord) -> StoreIdentity:
    for _ in range(_TRIES):
        raw, found = await record.read()
        if isinstance(found, Loss):
            what = "has no identity record" if found is Loss.EMPTY else "has another key's record"
            raise StateError(
                f"the label store {what}; start a guard on it, which writes one, and try again"
            )
        if not found.incomplete_until:
            raise StateError("the label store has lost nothing; there is no loss to accept")
        if await record.replace(raw, StoreIdentity(found.id, found.began, 0, found.serial + 1)):
            return found
    raise StateError("the identity record of the label store does not hold still; try again")


class _IdentityRecord:
    """The record in Redis."""

    def __init__(self, client: RedisClient, seal: Seal, namespace: str, part: str = "") -> None:
        self._client = client
        self._seal = seal
        # A record that was copied to another tenant's place does not open there.
        self._namespace = namespace = f"{namespace}:{{{part}}}" if part else namespace
        self._key = f"{namespace}:birth"
        self._script = load_script("birth")

    async def read(self) -> tuple[bytes, StoreIdentity | Loss]:
        """Return the stored bytes and the record in them, or why there is none."""
        try:
            raw = await self._client.execute("GET", self._key)
        except CommandRefusedError as error:
            if error.code != "WRONGTYPE":
                raise
            return b"", Loss.ALTERED
        if not isinstance(raw, bytes):
            return b"", Loss.EMPTY
        return raw, opened_identity(self._seal, self._namespace, raw) or Loss.ALTERED

    async def replace(self, raw: bytes, identity: StoreIdentity) -> bool:
        """Write the record if the stored bytes are still ``raw``; return whether they were."""
        record = sealed_identity(self._seal, self._namespace, identity)
        return await self._client.run(self._script, 1, self._key, raw, record) == 1


EVENT_INCOMPLETE: Final = "guard.labels_incomplete"
EVENT_COMPLETE: Final = "guard.labels_complete"
EARLIER: Final = "earlier"
"""The kind of a loss that an earlier run, or another guard, has found."""
_WHAT: Final = {
    Loss.EMPTY: "the label store is empty, and was not",
    Loss.REPLACED: "the label store is another one than before",
    Loss.ROLLED_BACK: "the label store went back to an earlier state",
    Loss.ALTERED: "the label store's identity record was altered, or made with another label key",
}
_ASKED: Final = "until {until} unknown destinations are asked about even where a policy allows them"
_KEPT: Final = (
    "label what memories hold with `guard memory import`, then declare the loss over with "
    "`guard memory accept-loss`; a guard of another deployment needs a `label_key` of its own"
)
_EMBEDDED: Final = "the embedded redis forgets at every stop"
_KEEP: Final = "keep labels with --redis URL"


class ContinuityReport:
    """Reports what each check of the label store's identity record has changed.

    Args:
        audit: one line where labels were found lost, and one where they count as complete again.
        metrics: has the gauge.
        kept: whether the store is meant to outlive the guard.
    """

    def __init__(self, audit: AuditLog, metrics: PrometheusMetrics, *, kept: bool) -> None:
        self._audit = audit
        self._metrics = metrics
        self._kept = kept
        self._incomplete: dict[str, bool] = {}
        """By part of the store."""
        self._noted = True

    def __call__(self, seen: ContinuityCheck) -> None:
        """Report one check.  Never raises: the outcome holds whether it can be recorded or not."""
        before = self._incomplete.get(seen.part)
        self._incomplete[seen.part] = seen.incomplete
        self._metrics.set(LABELS_INCOMPLETE, 1 if any(self._incomplete.values()) else 0)
        if seen.loss is not Loss.NONE or (seen.incomplete and before is None):
            self._lost(seen)
        elif before and not seen.incomplete:
            accepted = not seen.identity.incomplete_until
            self._line(EVENT_COMPLETE, {"why": "accepted" if accepted else "expired"})
            _say("the labels count as complete again")
        if self._noted and not seen.noted:
            _say(
                "no note of the label store can be written beside the label key; a loss while no "
                "guard runs would go unnoticed"
            )
        self._noted = seen.noted

    def _lost(self, seen: ContinuityCheck) -> None:
        found = EARLIER if seen.loss is Loss.NONE else seen.loss.value
        until = datetime.fromtimestamp(seen.identity.incomplete_until, UTC).isoformat()
        kind = "redis" if self._kept else "embedded"
        self._line(EVENT_INCOMPLETE, {"loss": found, "store": kind, "until": until})
        what = _WHAT.get(seen.loss, "labels were lost earlier") if self._kept else _EMBEDDED
        advice = _KEPT if self._kept else _KEEP
        _say(f"{what}: {_ASKED.format(until=until[:10])}; {advice}")

    def _line(self, event: str, fields: dict[str, str]) -> None:
        try:
            self._audit.event(event, dict(fields))
        except AuditError:
            self._metrics.count(ERRORS, "audit")


def _say(words: str) -> None:
    sys.stderr.write(f"guard: {words}\n")
    sys.stderr.flush()


WAIT_SECONDS: Final = 1.0
"""Seconds that a worker waits for another one that writes."""
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS marks (tenant TEXT, principal TEXT, count INTEGER NOT NULL,"
    " PRIMARY KEY (tenant, principal)) WITHOUT ROWID"
)
_ADD: Final = (
    "INSERT INTO marks VALUES (?, ?, ?) "
    "ON CONFLICT (tenant, principal) DO UPDATE SET count = count + excluded.count"
)
_TAKE: Final = "SELECT count FROM marks WHERE tenant = ? AND principal = ?"
_REMOVE: Final = "UPDATE marks SET count = count - ? WHERE tenant = ? AND principal = ?"


class DiskMarks:
    """Implements :class:`guard.pipeline.stores.UnlabelledMarks`.

    Args:
        path: of the SQLite file; its directory must exist.

    Raises:
        OSError: the byte beside it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken: Counter[tuple[str, str]] = Counter()
        """Marks that attempts under way carry to the store."""
        flag = os.open(path.with_name(f"{path.name}.any"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(flag).st_size == 0:
                os.ftruncate(flag, 1)
            self._map = mmap.mmap(flag, 1)
        finally:
            os.close(flag)
        self.pending = memoryview(self._map)
        if path.exists() and not self.pending[0]:
            # The byte was lost with the power: look once.
            self.pending[0] = 1
            with suppress(OSError):
                self._write(())

    def add(self, owner: tuple[str, str], count: int) -> None:
        """See :class:`guard.pipeline.stores.UnlabelledMarks`."""
        self._write([(_ADD, (*owner, count))])

    def take(self, owner: tuple[str, str]) -> int:
        """See :class:`guard.pipeline.stores.UnlabelledMarks`."""
        import sqlite3

        try:
            with closing(self._opened()) as database:
                found = database.execute(_TAKE, owner).fetchone()
        except sqlite3.Error as error:
            raise OSError(f"marks of results cannot be read: {error}") from error
        count = max(0, (found[0] if found else 0) - self._taken[owner])
        if count:
            self._taken[owner] += count
        return count

    def written(self, owner: tuple[str, str], count: int) -> None:
        """See :class:`guard.pipeline.stores.UnlabelledMarks`.

        What cannot be removed is written to the store once more, which is the safe side.
        """
        with suppress(OSError):
            self._write([(_REMOVE, (count, *owner))])
        self.put_back(owner, count)

    def put_back(self, owner: tuple[str, str], count: int) -> None:
        """See :class:`guard.pipeline.stores.UnlabelledMarks`."""
        self._taken[owner] -= count
        if self._taken[owner] <= 0:
            del self._taken[owner]

    def total(self) -> float:
        """See :class:`guard.pipeline.stores.UnlabelledMarks`."""
        if not self.pending[0]:
            return 0
        import sqlite3

        try:
            with closing(self._opened()) as database:
                return float(database.execute("SELECT total(count) FROM marks").fetchone()[0])
        except sqlite3.Error:
            return 1

    def _write(self, work: Sequence[tuple[str, tuple[object, ...]]]) -> None:
        """Run statements in one transaction that is on the disk when this returns.

        Raises:
            OSError: it is not.
        """
        import sqlite3

        try:
            with closing(self._opened()) as database:
                database.execute("BEGIN IMMEDIATE")
                self.pending[0] = 1
                for statement, values in work:
                    database.execute(statement, values)
                database.execute("DELETE FROM marks WHERE count <= 0")
                is_empty = database.execute("SELECT 1 FROM marks LIMIT 1").fetchone() is None
                database.commit()
                if is_empty:
                    self._clear(database)
        except sqlite3.Error as error:
            raise OSError(f"marks of results cannot be kept: {error}") from error

    def _clear(self, database: sqlite3.Connection) -> None:
        """Say that there is no mark, while nobody else can write one."""
        database.execute("BEGIN IMMEDIATE")
        if database.execute("SELECT 1 FROM marks LIMIT 1").fetchone() is None:
            self.pending[0] = 0
        database.rollback()

    def _opened(self) -> sqlite3.Connection:
        import sqlite3  # Here: a worker whose store answers never has a mark.

        if not self._path.exists():
            with suppress(FileExistsError):
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        database = sqlite3.connect(self._path, timeout=WAIT_SECONDS, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous = FULL")
            database.execute(_TABLE)
        except sqlite3.Error:
            database.close()
            raise
        return database
