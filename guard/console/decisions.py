"""Index over audit logs: SQLite beside the first log, rebuilt from the logs if it is lost.

Lines are read as they are appended, also across a rotation.  A line that is erased from the log is
erased here when the line of the erasure is read.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import sqlite3
import threading
from collections import Counter
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json, to_json

from guard.core.errors import AuditError
from guard.telemetry.audit_log import EVENT_DECISION
from guard.telemetry.audit_tree import EVENT_ERASED, EVENT_ERASURE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERSION: Final = 6
"""Of the tables; an index of another version is made anew."""
PAGE: Final = 100
_FORGET: Final = 5000
"""Rows that are taken away at a time."""
CHUNK: Final = 4 * 1024 * 1024
"""Bytes of the log that one batch takes in."""
_WRITER: Final = """
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 8000;
PRAGMA cache_size = -16000;
PRAGMA secure_delete = ON;
"""
"""Of the one connection that writes as long as the log is followed.  In WAL mode NORMAL loses the
last batches at most, which are read again; a checkpoint, and its fsync, comes every 32 MB."""
_BUSY_MILLISECONDS: Final = 10_000
_READER: Final = "PRAGMA mmap_size = 268435456;"
FILTERS: Final = ("enforced", "principal", "session", "tool", "server")
"""What decisions can be filtered by; each has an index."""
_PROBED: Final = 1000
"""Decisions that are counted at most to find out which of several filters is the narrowest."""
_TABLES: Final = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY, at REAL, decision TEXT, tenant TEXT, principal TEXT, session TEXT,
    server TEXT, tool TEXT, role TEXT, enforced TEXT, action TEXT, milliseconds REAL, score REAL,
    detail TEXT, log TEXT, n INTEGER);
CREATE INDEX IF NOT EXISTS decisions_decision ON decisions (substr(decision, -8));
CREATE INDEX IF NOT EXISTS d_enforced ON decisions (enforced);
CREATE INDEX IF NOT EXISTS d_session ON decisions (session);
CREATE INDEX IF NOT EXISTS d_principal ON decisions (principal, id, enforced);
CREATE INDEX IF NOT EXISTS d_tool ON decisions (tool, id, enforced);
CREATE INDEX IF NOT EXISTS d_server ON decisions (server, id, enforced);
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, at REAL, event TEXT, detail TEXT);
CREATE TABLE IF NOT EXISTS hours (
    hour INTEGER, verdict TEXT, n INTEGER, PRIMARY KEY (hour, verdict)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tenants (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS places (path TEXT PRIMARY KEY, inode INTEGER, offset INTEGER);
PRAGMA user_version = {VERSION};
"""
DAY: Final = 86400.0
_DETAIL: Final = ("reasons", "decided_by", "errors", "targets", "facts", "policy", "mode")
_COLUMNS: Final = (
    "at", "decision", "tenant", "principal", "session", "server", "tool", "role", "enforced",
    "action", "milliseconds", "score", "detail", "log", "n",
)  # fmt: skip
_TEXTS: Final = ("tenant", "principal", "session", "server", "tool", "role", "enforced", "action")
_TEXTS_OF: Final = itemgetter(*_TEXTS)
_INSERT: Final = (
    f"INSERT INTO decisions ({', '.join(_COLUMNS)}) "  # noqa: S608  (names of our own)
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_VERDICT: Final = _COLUMNS.index("enforced")
_TENANT: Final = _COLUMNS.index("tenant")
Row = dict[str, Any]


class _Log:
    """One audit log, read as it grows.

    Args:
        path: it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: Any = None
        self._seen: object = None
        """How the file looked when it was read last."""

    def let_go(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def has_changed(self) -> bool:
        """Return whether it looks otherwise than when it was read last; two looks, no reading."""
        return self._looks() != self._seen

    def _looks(self) -> object:
        held = self._file and os.fstat(self._file.fileno())
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return held and (held.st_ino, held.st_size)
        return held and (held.st_ino, held.st_size), (found.st_ino, found.st_size)

    def read(self, inode: int, offset: int) -> tuple[bytes, int, int]:
        """Return whole lines, the file that they stand in, and the place behind them.

        Raises:
            AuditError: the log became shorter than what was read of it.
        """
        looks = self._looks()
        if self._file is None and not self._open():
            return b"", inode, offset
        held = os.fstat(self._file.fileno())
        if held.st_ino != inode:
            inode, offset = held.st_ino, 0
        if held.st_size < offset:
            msg = f"the audit log `{self.path}` became shorter; remove the index to read it anew"
            raise AuditError(msg)
        self._file.seek(offset)
        data = self._file.read(CHUNK)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and self._moved(held.st_ino):
            # The old file is read to its end before the new one is opened.
            self.let_go()
        # Until nothing was found, there may be more.
        self._seen = None if whole else looks
        return whole, inode, offset + len(whole)

    def _open(self) -> bool:
        try:
            self._file = self.path.open("rb")
        except FileNotFoundError:
            return False
        return True

    def _moved(self, inode: int) -> bool:
        try:
            return self.path.stat().st_ino != inode
        except FileNotFoundError:
            return False


class DecisionIndex:
    """Reads audit logs into SQLite, and answers the pages' questions.

    Args:
        log: an audit log; it need not exist yet.
        more: those of further guards.
        path: the index; left out, ``LOG.index``.  Made anew where it is not one of this version.
    """

    def __init__(self, log: Path, more: Sequence[Path] = (), path: Path | None = None) -> None:
        self._logs = [_Log(one) for one in dict.fromkeys((log, *more))]
        self.path = path or log.with_name(log.name + ".index")
        self._lock = threading.Lock()
        self._closed = False
        self._writer: sqlite3.Connection | None = None
        self._reader = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._inode = 0
        """Of the index: another console may have made it anew."""
        self._is_unwiped = False
        """Whether the WAL may still have what was taken away."""
        self.is_behind = False
        """Whether more of the log is there than the last batch took in."""
        self._make()
        self.taken = 0
        """Decisions that the last batch took in."""
        self.latest = 0
        """Id of the newest decision as of the last look, whichever console took it in."""
        self.unread = 0
        """Lines that are not JSON objects, or too deep a one, since the process started."""

    def close(self) -> None:
        """Close the log for good; the index stays."""
        with self._lock:
            self._closed = True
            for one in self._logs:
                one.let_go()
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            while self._readers:
                self._readers.pop().close()

    def _make(self) -> None:
        """Make the index where there is none, or none that has all logs.

        The logs that it has from consoles beside this one are followed as well: whoever takes lines
        in takes those of all logs, by time.
        """
        if not self._usable():
            for suffix in ("-wal", "-shm", ""):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(self._connection()) as db, db:
            db.executescript(_TABLES)
            places = [(str(one.path),) for one in self._logs]
            db.executemany("INSERT OR IGNORE INTO places VALUES (?, 0, 0)", places)
            own = {str(one.path) for one in self._logs}
            found = {path for (path,) in db.execute("SELECT path FROM places")}
        self._logs += [_Log(Path(path)) for path in sorted(found - own)]
        self._inode = self.path.stat().st_ino

    def _follow_index(self) -> None:
        """Go over to the index that another console has made; the lock is held."""
        try:
            if self.path.stat().st_ino == self._inode:
                return
        except FileNotFoundError:
            pass
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._make()

    def _usable(self) -> bool:
        if not self.path.exists():
            return True
        try:
            with closing(self._connection()) as db:
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version != VERSION:
                    return bool(version == 0)
                found = {path for (path,) in db.execute("SELECT path FROM places")}
                # A log that comes later has decisions of before those that stand here.
                return found >= {str(one.path) for one in self._logs} or not found
        except sqlite3.DatabaseError:
            return False

    def _connection(self) -> sqlite3.Connection:
        # Threads of a pool take in and ask; whoever closes the index is another one.
        timeout = _BUSY_MILLISECONDS / 1000
        return sqlite3.connect(self.path, timeout=timeout, check_same_thread=False)

    def _asked(self, query: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Return all rows of a query, on this thread's connection.

        One that is opened for each query reads the schema each time.
        """
        db: sqlite3.Connection | None = getattr(self._reader, "db", None)
        if db is None or self._reader.of != self._inode:
            if db is not None:
                self._readers.remove(db)
                db.close()
            self._reader.of = self._inode
            db = self._reader.db = self._connection()
            self._readers.append(db)
            db.row_factory = sqlite3.Row
            db.execute(_READER)
        return db.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection that writes, for one transaction; the lock is held.

        To open and close one with each batch would write the whole WAL back, and wait for the disk.
        """
        if self._writer is None:
            self._writer = self._connection()
            self._writer.executescript(_WRITER)
        try:
            with self._writer:
                # At once: another console of the same log takes the same lines in.
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
        except sqlite3.Error:
            self._writer.close()
            self._writer = None
            raise

    def _wipe(self) -> None:
        """Have nothing of what was taken away stand in the WAL any more; the lock is held.

        Where a page is reading just now, it is tried again with the next look at the log.
        """
        if self._writer is not None:
            self._writer.execute("PRAGMA busy_timeout = 0")
            busy, *_ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._writer.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
            self._is_unwiped = bool(busy)

    # --- taking in -------------------------------------------------------------------------------

    def has_news(self) -> bool:
        """Return whether :meth:`take_in` may find anything: a few looks at files, no reading."""
        try:
            if self.path.stat().st_ino != self._inode:
                return True
        except FileNotFoundError:
            return True
        return self._is_unwiped or self.is_behind or any(one.has_changed() for one in self._logs)

    def take_in(self) -> int:
        """Read what was appended since, at most one batch; return the number of its decisions.

        Raises:
            AuditError: a log became shorter than what was read of it.
            sqlite3.Error: the index cannot be written.
        """
        with self._lock:
            self.is_behind = False
            self.taken = 0
            if self._closed:
                return 0
            self._follow_index()
            with self._writing() as db:
                data = self._read(db)
                taken, has_erased = self._insert(db, data) if data else (0, False)
                self.latest = db.execute("SELECT max(id) FROM decisions").fetchone()[0] or 0
            self.taken = taken
            self._is_unwiped = self._is_unwiped or has_erased
            if self._is_unwiped:
                self._wipe()
            return taken

    def _read(self, db: sqlite3.Connection) -> bytes:
        """Return what the logs have beyond the places on record, and put the new ones there.

        Lines of several logs come in the order of time: of a log that has more than is read at a
        time, the last line that was read is how far the others are taken.
        """
        found = db.execute("SELECT path, inode, offset FROM places").fetchall()
        places = {path: (inode, offset) for path, inode, offset in found}
        read: list[tuple[str, bytes, int, int]] = []
        for one in self._logs:
            name = str(one.path)
            data, inode, offset = one.read(*places.get(name, (0, 0)))
            if data:
                read.append((name, data, inode, offset))
            self.is_behind = self.is_behind or len(data) > CHUNK // 2
        whole, taken = read[0][1] if len(read) == 1 else b"", [len(data) for _, data, _, _ in read]
        if len(read) > 1:
            whole, taken = _merged([data for _, data, _, _ in read])
        for (name, data, inode, offset), length in zip(read, taken, strict=True):
            place = (name, inode, offset - len(data) + length)
            db.execute("REPLACE INTO places VALUES (?, ?, ?)", place)
        return whole

    def _insert(self, db: sqlite3.Connection, data: bytes) -> tuple[int, bool]:
        """Insert lines; return the number of decisions, and whether lines were erased."""
        rows: list[tuple[Any, ...]] = []
        events: list[dict[str, Any]] = []
        for line in data.split(b"\n"):
            entry = _entry(line)
            if entry is None:
                self.unread += bool(line.strip())
            elif entry.get("event") == EVENT_DECISION:
                rows.append(_values(entry))
            elif entry.get("event") not in {None, EVENT_ERASED}:
                events.append(entry)
        counts = Counter((_hour(row[0]), row[_VERDICT]) for row in rows)
        db.executemany(_INSERT, rows)
        db.executemany(
            "INSERT INTO hours VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
            [(*key, count) for key, count in counts.items()],
        )
        tenants = {(row[_TENANT],) for row in rows}
        db.executemany("INSERT OR IGNORE INTO tenants VALUES (?)", tenants)
        # After the decisions: an erasure may be of lines of this very batch.
        for entry in events:
            _event(db, entry)
        return len(rows), any(entry["event"] == EVENT_ERASURE for entry in events)

    def forget(self, before: float) -> int:
        """Take decisions and events of before a time (seconds) away; return how many.

        Raises:
            sqlite3.Error: the index cannot be written.
        """
        gone = 0
        with self._lock:
            for table in ("decisions", "events"):
                query = f"""DELETE FROM {table} WHERE id IN
                    (SELECT id FROM {table} ORDER BY id LIMIT {_FORGET}) AND at < ?"""  # noqa: S608  (names of our own)
                with self._writing() as db:
                    gone += db.execute(query, (before,)).rowcount
            with self._writing() as db:
                db.execute("DELETE FROM hours WHERE hour < ?", (_hour(before),))
            if gone:
                self._wipe()
        return gone

    # --- asking ----------------------------------------------------------------------------------

    def page(
        self, wanted: Mapping[str, str], *, before: int = 0, after: int = -1, limit: int = PAGE
    ) -> list[Row]:
        """Return decisions, the newest first; pages go by id, and a page by time.

        Args:
            wanted: value by name of :data:`FILTERS`.
            before: only those with a smaller id; 0 begins with the newest.
            after: only those with a larger id.
            limit: how many at most.
        """
        known = {name: value for name, value in wanted.items() if name in FILTERS and value}
        found = {name: self._count(name, value) for name, value in known.items()}
        if not all(found.values()):
            return []
        # The narrowest index serves; `+` keeps the others from being chosen over the order by id.
        narrowest = min(found, key=lambda name: found[name], default="")
        parts = [f"{'' if name == narrowest else '+'}{name} = ?" for name in known]
        values: list[Any] = [*known.values()]
        if before:
            parts.append("id < ?")
            values.append(before)
        if after >= 0:
            parts.append("id > ?")
            values.append(after)
        where = f"WHERE {' AND '.join(parts)}" if parts else ""
        query = f"SELECT * FROM decisions {where} ORDER BY id DESC LIMIT ?"  # noqa: S608  (closed)
        rows = [_row(dict(one)) for one in self._asked(query, (*values, limit))]
        # Of several logs, one may be read a moment after another.
        return sorted(rows, key=lambda row: (row["at"], row["id"]), reverse=True)

    def _count(self, name: str, value: str) -> int:
        """Return how many decisions a filter leaves, :data:`_PROBED` at most."""
        query = f"SELECT count(*) FROM (SELECT 1 FROM decisions WHERE {name} = ? LIMIT {_PROBED})"  # noqa: S608  (names of our own)
        return int(self._asked(query, (value,))[0][0])

    def decision(self, identifier: str) -> Row | None:
        """Return a decision by its id, the newest of several."""
        # Ids are random: an index over whole ones would be the most of what a decision costs here.
        # `+`: else SQLite puts the one value into the other comparison, and looks at every row.
        query = """SELECT * FROM decisions WHERE substr(decision, -8) = ? AND +decision = ?
            ORDER BY id DESC LIMIT 1"""
        found = self._asked(query, (identifier[-8:], identifier))
        return _row(dict(found[0])) if found else None

    def events(self, limit: int = PAGE) -> list[Row]:
        """Return lines about other things than decisions, the newest first."""
        found = self._asked("SELECT * FROM events ORDER BY id DESC LIMIT ?", (limit,))
        return [{**dict(one), "detail": json.loads(one["detail"])} for one in found]

    def tenants(self) -> list[str]:
        """Return the tenants that have decisions on record."""
        found = self._asked("SELECT name FROM tenants")
        return sorted({"default", *(one[0] for one in found)})

    def series(self, since: float, until: float) -> list[tuple[int, dict[str, int]]]:
        """Return the number of decisions by hour and verdict."""
        query = "SELECT hour, verdict, n FROM hours WHERE hour >= ? AND hour < ?"
        found: dict[int, dict[str, int]] = {}
        for hour, verdict, count in self._asked(query, (_hour(since), _hour(until))):
            found.setdefault(hour, {})[verdict] = count
        return [(hour, found.get(hour, {})) for hour in range(_hour(since), _hour(until))]


def _hour(at: float) -> int:
    return int(at // 3600)


def _merged(batches: list[bytes]) -> tuple[bytes, list[int]]:
    """Return lines of several logs in the order of time, and how many bytes were taken of each.

    Args:
        batches: whole lines of each log.
    """
    timed = [list(_timed(number, data)) for number, data in enumerate(batches)]
    ends = (
        lines[-1][0] for lines, data in zip(timed, batches, strict=True) if len(data) > CHUNK // 2
    )
    until, taken, whole = min(ends, default=math.inf), [0] * len(batches), list[bytes]()
    for at, number, line in heapq.merge(*timed, key=lambda one: one[:2]):
        if at > until:
            break
        taken[number] += len(line)
        whole.append(line)
    return b"".join(whole), taken


def _timed(number: int, data: bytes) -> Iterator[tuple[float, int, bytes]]:
    """Yield the lines of a log, each with its time, which never goes back, and the log's number."""
    latest = 0.0
    for line in data.split(b"\n")[:-1]:
        latest = max(latest, _at(_entry(line) or {}))
        yield latest, number, line + b"\n"


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        # Values differ from line to line: to look each up would cost more than to make it.
        found = from_json(line, cache_strings="keys")
    except ValueError:
        found = _leniently(line)
    return found if isinstance(found, dict) else None


def _leniently(line: bytes) -> Any:
    """Return what a line says in which halves of surrogate pairs are; None where it is not JSON.

    They become question marks, as SQLite stores none.
    """
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(line), ensure_ascii=False)
        return from_json(text.encode("utf-8", "replace"))
    return None


def _at(entry: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(entry.get("at", ""))).timestamp()
    except ValueError:
        return 0.0


def _values(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a decision's columns."""
    get = entry.get
    try:
        texts = _TEXTS_OF(entry)
        "".join(texts)  # Raises if one is not a text: the cheapest check of all of them.
    except (KeyError, TypeError):
        texts = tuple(str(get(name, "")) for name in _TEXTS)
    return (
        _at(entry),
        str(get("decision_id", "")),
        *texts,
        get("milliseconds") or 0.0,
        get("score"),
        to_json({name: entry[name] for name in _DETAIL if get(name)}).decode(),
        get("log", ""),
        get("n", -1),
    )


def _event(db: sqlite3.Connection, entry: dict[str, Any]) -> None:
    if entry["event"] == EVENT_ERASURE:
        lines = [
            pair for pair in entry.get("lines", ()) if isinstance(pair, list) and len(pair) > 1
        ]
        wanted = [(str(pair[0]), int(pair[1])) for pair in lines]
        _erase(db, wanted)
        entry = {**entry, "lines": len(wanted)}
    rest = {k: v for k, v in entry.items() if k not in {"event", "at", "log", "n"}}
    db.execute(
        "INSERT INTO events (at, event, detail) VALUES (?, ?, ?)",
        (_at(entry), str(entry["event"]), json.dumps(rest)),
    )


def _erase(db: sqlite3.Connection, lines: list[tuple[str, int]]) -> None:
    """Delete the decisions of some lines, in one pass: an index for it would cost every line."""
    db.execute("CREATE TEMP TABLE IF NOT EXISTS erased (log TEXT, n INTEGER, PRIMARY KEY (log, n))")
    db.execute("DELETE FROM erased")
    db.executemany("INSERT OR IGNORE INTO erased VALUES (?, ?)", lines)
    db.execute("DELETE FROM decisions WHERE (log, n) IN (SELECT log, n FROM erased)")


def _row(found: Row) -> Row:
    """Return a decision as pages show it."""
    detail = json.loads(found.pop("detail"))
    codes = dict.fromkeys(str(one.get("code", "")) for one in detail.get("reasons", ()))
    return {**found, **detail, "codes": list(codes), "time": second(found["at"])}


def second(at: float) -> str:
    """Return a time as UTC, to the second."""
    return _shown(int(at))


@lru_cache(maxsize=64)
def _shown(at: int) -> str:
    # Those of a page repeat.
    return datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")[:19]
