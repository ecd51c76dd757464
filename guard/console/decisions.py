"""Index over audit logs: SQLite beside the first log, rebuilt from the logs if it is lost.

Lines are read as they are appended, also across a rotation.  Lines that are erased from a log are
erased here when the line of the erasure is read.  Pages are in the order of time, so several logs
need not be read in step.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json, to_json

from guard.core.errors import AuditError
from guard.telemetry.audit_log import EVENT_DECISION
from guard.telemetry.audit_tree import EVENT_ERASED, EVENT_ERASURE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path


VERSION: Final = 7
"""Version of the tables; an index of another version is made anew."""
PAGE: Final = 100
_FORGET: Final = 5000
"""Maximum number of rows that one transaction deletes."""
CHUNK: Final = 4 * 1024 * 1024
"""Bytes of each log that one batch reads."""
_BUSY_SECONDS: Final = 10.0
FILTERS: Final = ("session", "principal", "tool", "server", "enforced")
"""Filters of decisions, each with an index; the first ones usually select the fewest."""
_COLUMNS: Final = (
    "at", "decision", "tenant", "principal", "session", "server", "tool", "role", "enforced",
    "action", "milliseconds", "score", "detail", "log", "n",
)  # fmt: skip
_TEXTS: Final = _COLUMNS[2:10]
_DETAIL: Final = ("reasons", "decided_by", "errors", "targets", "facts", "policy", "mode")
_TABLES: Final = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 8000;
PRAGMA cache_size = -16000;
PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY, at REAL, {", ".join(_COLUMNS[1:])});
CREATE INDEX IF NOT EXISTS d_decision ON decisions (decision);
CREATE INDEX IF NOT EXISTS d_at ON decisions (at, enforced);
{"".join(f"CREATE INDEX IF NOT EXISTS d_{n} ON decisions ({n}, at);" for n in FILTERS)}
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, at REAL, event TEXT, detail TEXT);
CREATE TABLE IF NOT EXISTS tenants (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS places (path TEXT PRIMARY KEY, inode INTEGER, offset INTEGER);
CREATE TEMP TABLE IF NOT EXISTS erased (log TEXT, n INTEGER, PRIMARY KEY (log, n));
PRAGMA user_version = {VERSION};
"""
_INSERT: Final = (
    f"INSERT INTO decisions ({', '.join(_COLUMNS)}) "  # noqa: S608  (names of our own)
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
Row = dict[str, Any]


class _Log:
    """One audit log, read as it grows.

    Args:
        path: file of the log; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: Any = None
        self._seen: object = None
        """State of the file when it was last read to its end."""

    def has_changed(self) -> bool:
        """Return whether there may be more to read; reads nothing."""
        return self._state() != self._seen

    def _state(self) -> tuple[tuple[int, int], ...]:
        """Return inode and size of the open file, and of the one at the path."""
        found = [os.fstat(self.file.fileno())] if self.file is not None else []
        with suppress(FileNotFoundError):
            found.append(self.path.stat())
        return tuple((one.st_ino, one.st_size) for one in found)

    def read(self, inode: int, offset: int) -> tuple[bytes, int, int]:
        """Return the next whole lines, the inode of their file, and the offset behind them.

        Raises:
            AuditError: the log became shorter than what was read of it.
        """
        state = self._state()
        if self.file is None:
            if not state:
                return b"", inode, offset
            self.file = self.path.open("rb")
        held = os.fstat(self.file.fileno())
        offset = offset if held.st_ino == inode else 0
        if held.st_size < offset:
            raise AuditError(
                f"the audit log `{self.path}` became shorter; remove the index to read it anew"
            )
        self.file.seek(offset)
        data = self.file.read(CHUNK)
        whole: bytes = data[: data.rfind(b"\n") + 1]
        if not whole and state[-1][0] != held.st_ino:
            # The old file is read to its end before the new one is opened.
            self.file.close()
            self.file = None
        self._seen = None if whole else state
        return whole, held.st_ino, offset + len(whole)


class DecisionIndex:
    """Index of audit logs in SQLite, on one connection.

    Args:
        log: an audit log; it need not exist yet.
        more: logs of further guards.
    """

    def __init__(self, log: Path, more: Sequence[Path] = ()) -> None:
        self._logs = [_Log(one) for one in dict.fromkeys((log, *more))]
        self.path = log.with_name(log.name + ".index")
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_unwiped = False
        """True if the WAL may still have erased rows."""
        self.is_behind = False
        """True if the logs have more than the last batch read."""
        self.error = ""
        """Reason why the logs cannot be followed; empty where they can."""
        try:
            self._db = self._opened()
        except (sqlite3.DatabaseError, ValueError):
            for suffix in ("-wal", "-shm", ""):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            self._db = self._opened()

    def _opened(self) -> sqlite3.Connection:
        """Return a connection to the index.

        Raises:
            sqlite3.DatabaseError, ValueError: the file is not an index of this version.
        """
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, check_same_thread=False)
        db.row_factory = sqlite3.Row
        if db.execute("PRAGMA user_version").fetchone()[0] not in {0, VERSION}:
            db.close()
            raise ValueError("an index of another version")
        db.executescript(_TABLES)
        return db

    def close(self) -> None:
        """Close the logs and the index for good."""
        with self._lock:
            self._is_closed = True
            for one in self._logs:
                if one.file is not None:
                    one.file.close()
            self._db.close()

    def _asked(self, query: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for one transaction."""
        with self._lock, self._db:
            # At once: another console of the same logs reads the same lines.
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db

    def _wipe(self) -> None:
        """Remove erased rows from the WAL; while another console reads, the next look does it."""
        with self._lock:
            self._db.execute("PRAGMA busy_timeout = 0")
            checkpoint = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._is_unwiped = bool(checkpoint.fetchone()[0])
            self._db.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000:.0f}")

    # --- reading logs ----------------------------------------------------------------------------

    def has_news(self) -> bool:
        """Return whether :meth:`take_in` may find anything; reads nothing."""
        return self._is_unwiped or self.is_behind or any(one.has_changed() for one in self._logs)

    def take_in(self) -> int:
        """Read appended lines, at most one batch; return the number of decisions.

        Raises:
            AuditError: a log became shorter than what was read of it.
            sqlite3.Error: the index cannot be written.
        """
        self.is_behind, taken = False, 0
        if self._is_closed:
            return taken
        with self._writing() as db:
            for one in self._logs:
                query = "SELECT inode, offset FROM places WHERE path = ?"
                place = db.execute(query, (str(one.path),)).fetchone() or (0, 0)
                data, inode, offset = one.read(*place)
                taken += self._insert(db, data)
                values = (str(one.path), inode, offset)
                db.execute("REPLACE INTO places VALUES (?, ?, ?)", values)
                self.is_behind = self.is_behind or len(data) > CHUNK // 2
        if self._is_unwiped:
            self._wipe()
        return taken

    def _insert(self, db: sqlite3.Connection, data: bytes) -> int:
        """Insert the decisions and events of some lines; return the number of decisions."""
        entries = [found for line in data.split(b"\n") if (found := _entry(line)) is not None]
        rows = [_values(one) for one in entries if one.get("event") == EVENT_DECISION]
        db.executemany(_INSERT, rows)
        tenants = {(row[2],) for row in rows}
        db.executemany("INSERT OR IGNORE INTO tenants VALUES (?)", tenants)
        # After the decisions: an erasure may be of lines of this very batch.
        for entry in entries:
            if entry.get("event") not in {None, EVENT_DECISION, EVENT_ERASED}:
                self._event(db, entry)
        return len(rows)

    def _event(self, db: sqlite3.Connection, entry: dict[str, Any]) -> None:
        if entry["event"] == EVENT_ERASURE:
            found = entry.get("lines", ())
            lines = [(str(one[0]), int(one[1])) for one in found if isinstance(one, list)]
            # In one pass: an index for it would cost every line.
            db.execute("DELETE FROM erased")
            db.executemany("INSERT OR IGNORE INTO erased VALUES (?, ?)", lines)
            db.execute("DELETE FROM decisions WHERE (log, n) IN (SELECT log, n FROM erased)")
            self._is_unwiped = True
            entry = {**entry, "lines": len(lines)}
        rest = {k: v for k, v in entry.items() if k not in {"event", "at", "log", "n"}}
        db.execute(
            "INSERT INTO events (at, event, detail) VALUES (?, ?, ?)",
            (_at(entry), str(entry["event"]), json.dumps(rest)),
        )

    def forget(self, before: float) -> int:
        """Delete decisions and events of before a time, in seconds; return their number.

        Raises:
            sqlite3.Error: the index cannot be written.
        """
        gone = 0
        for table in ("decisions", "events"):
            query = f"""DELETE FROM {table} WHERE id IN
                (SELECT id FROM {table} WHERE at < ? LIMIT {_FORGET})"""  # noqa: S608  (names of our own)
            with self._writing() as db:
                gone += db.execute(query, (before,)).rowcount
        self._is_unwiped = self._is_unwiped or bool(gone)
        return gone

    # --- asking ----------------------------------------------------------------------------------

    def page(self, wanted: Mapping[str, str], *, before: int = 0, limit: int = PAGE) -> list[Row]:
        """Return decisions, the newest first.

        Args:
            wanted: value by name of :data:`FILTERS`.
            before: only decisions older than the one with this id; 0 begins with the newest.
            limit: maximum number.
        """
        known = [name for name in FILTERS if wanted.get(name)]
        values: list[Any] = [wanted[name] for name in known]
        # One index serves; `+` keeps the others from being chosen over the order of time.
        parts = [f"{'+' if place else ''}{name} = ?" for place, name in enumerate(known)]
        if before:
            parts.append("(at, id) < (SELECT at, id FROM decisions WHERE id = ?)")
            values.append(before)
        where = f"WHERE {' AND '.join(parts)}" if parts else ""
        query = (
            f"SELECT * FROM decisions {where} "  # noqa: S608  (closed)
            "ORDER BY at DESC, id DESC LIMIT ?"
        )
        return [_row(dict(one)) for one in self._asked(query, (*values, limit))]

    def decision(self, identifier: str) -> Row | None:
        """Return a decision by its id, the newest of several."""
        query = "SELECT * FROM decisions WHERE decision = ? ORDER BY id DESC LIMIT 1"
        return next((_row(dict(one)) for one in self._asked(query, (identifier,))), None)

    def events(self, limit: int = PAGE) -> list[Row]:
        """Return lines about other things than decisions, the newest first."""
        found = self._asked("SELECT * FROM events ORDER BY at DESC, id DESC LIMIT ?", (limit,))
        return [{**dict(one), "detail": json.loads(one["detail"])} for one in found]

    def tenants(self) -> list[str]:
        """Return the tenants that have decisions on record."""
        found = self._asked("SELECT name FROM tenants")
        return sorted({"default", *(one[0] for one in found)})

    def series(self, since: float, until: float) -> list[tuple[int, dict[str, int]]]:
        """Return the number of decisions by hour and verdict."""
        query = """SELECT CAST(at / 3600 AS INTEGER), enforced, count(*) FROM decisions
            WHERE at >= ? AND at < ? GROUP BY 1, 2"""
        hours = range(int(since // 3600), int(until // 3600))
        found: dict[int, dict[str, int]] = {hour: {} for hour in hours}
        for hour, verdict, count in self._asked(query, (hours.start * 3600, hours.stop * 3600)):
            found[hour][verdict] = count
        return list(found.items())


def _entry(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line, None if it is not one.

    Halves of surrogate pairs become question marks: SQLite stores none.
    """
    found: Any = None
    try:
        # Values differ from line to line: to look each up would cost more than to make it.
        found = from_json(line, cache_strings="keys")
    except ValueError:
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(line), ensure_ascii=False)
            found = from_json(text.encode("utf-8", "replace"))
    return found if isinstance(found, dict) else None


def _at(entry: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(entry.get("at", ""))).timestamp()
    except ValueError:
        return 0.0


def _values(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a decision's columns."""
    get = entry.get
    return (
        _at(entry),
        str(get("decision_id", "")),
        *(str(get(name, "")) for name in _TEXTS),
        get("milliseconds") or 0.0,
        get("score"),
        to_json({name: entry[name] for name in _DETAIL if get(name)}).decode(),
        get("log", ""),
        get("n", -1),
    )


def _row(found: Row) -> Row:
    """Return a decision as pages show it."""
    detail = json.loads(found.pop("detail"))
    codes = dict.fromkeys(str(one.get("code", "")) for one in detail.get("reasons", ()))
    return {**found, **detail, "codes": list(codes), "time": second(found["at"])}


def second(at: float) -> str:
    """Return a time as UTC, to the second."""
    return datetime.fromtimestamp(int(at), UTC).isoformat(" ", "seconds")[:19]


POLL_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 5.0
"""Pause after an error."""
_LOGGER: Final = logging.getLogger(__name__)


async def follow(index: DecisionIndex, failed: Callable[[], object]) -> None:
    """Take in what is appended until cancelled; an error shows on the pages and ends nothing.

    Args:
        index: index of the logs.
        failed: counts an error.
    """
    while True:
        pause = POLL_SECONDS
        try:
            if index.has_news():
                await asyncio.to_thread(index.take_in)
                pause = 0.0 if index.is_behind else pause
            index.error = ""
        except Exception as error:  # noqa: BLE001  (tried again; browsers see that it fails)
            failed()
            pause = RETRY_SECONDS
            if not index.error:
                _LOGGER.warning("the audit log cannot be followed: %s", error)
            index.error = f"{type(error).__name__}: {error}"
        await asyncio.sleep(pause)
