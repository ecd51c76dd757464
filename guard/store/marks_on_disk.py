"""Marks of unlabelled results on disk: they outlive workers, the guard, and the machine's power.

One SQLite file for all workers of a guard; beside it one byte that every worker has mapped, so that
looking whether there is any mark costs a call nothing.  The byte is set before a mark is written
and cleared only where the file, locked, has none.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

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
