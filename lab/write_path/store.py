"""The memory that writes are measured on: items, a vector index and a version, in SQLite.

The index is exact cosine search over hashed trigrams, kept in the same file and in the same
transaction as the items.  The version only ever grows: nothing takes back a write.
"""

from __future__ import annotations

import re
import sqlite3
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIMENSIONS: Final = 256
TABLES: Final = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS items (
    key TEXT PRIMARY KEY, content TEXT NOT NULL, class TEXT NOT NULL, nonce TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS vectors (key TEXT PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS documents (id TEXT PRIMARY KEY, text TEXT NOT NULL);
"""
TRACE: Final = """
SELECT (SELECT count(*) FROM items WHERE content = :content),
    (SELECT count(*) FROM vectors WHERE vector = :vector),
    (SELECT count(*) FROM log),
    (SELECT count(*) FROM log WHERE content = :content)
"""


class Trace(NamedTuple):
    """The traces of one content in a store; all but the version zero if it never formed."""

    rows: int
    vectors: int
    version: int
    """Number of all writes."""
    writes: int
    """Times the content was ever written."""


class VectorMemory:
    """Items by key with their vectors.  Opens its file per operation, so processes can share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened() as database:
            database.executescript(TABLES)

    def write(self, key: str, content: str, memory_class: str, nonce: str) -> int:
        """Keep an item and its vector; return the new version."""
        with self._opened() as database:
            database.execute(
                "REPLACE INTO items VALUES (?, ?, ?, ?)", (key, content, memory_class, nonce)
            )
            database.execute("REPLACE INTO vectors VALUES (?, ?)", (key, embed(content).tobytes()))
            logged = database.execute("INSERT INTO log (content) VALUES (?)", (content,))
            return int(logged.lastrowid or 0)

    def get(self, key: str) -> str | None:
        """Return the content of a key."""
        return self._text("SELECT content FROM items WHERE key = ?", key)

    def search(self, query: str, limit: int = 3) -> list[str]:
        """Return the contents nearest to a query."""
        with self._opened() as database:
            rows = database.execute(
                "SELECT content, vector FROM items JOIN vectors USING (key)"
            ).fetchall()
        matrix = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float32)
        scores = matrix.reshape(len(rows), DIMENSIONS) @ embed(query)
        return [str(rows[i][0]) for i in np.argsort(-scores, kind="stable")[:limit]]

    def document(self, ident: str) -> str | None:
        """Return a document that strangers can write."""
        return self._text("SELECT text FROM documents WHERE id = ?", ident)

    def add_document(self, ident: str, text: str) -> None:
        """Put a document there, as a stranger would."""
        with self._opened() as database:
            database.execute("REPLACE INTO documents VALUES (?, ?)", (ident, text))

    def trace(self, content: str) -> Trace:
        """Return everything the store shows of a content."""
        wanted = {"content": content, "vector": embed(content).tobytes()}
        with self._opened() as database:
            return Trace(*database.execute(TRACE, wanted).fetchone())

    def _text(self, statement: str, key: str) -> str | None:
        with self._opened() as database:
            row = database.execute(statement, (key,)).fetchone()
        return None if row is None else str(row[0])

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=5.0)
        try:
            with database:
                yield database
        finally:
            database.close()


def embed(text: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return the vector of a text: hashed trigrams, of unit length."""
    vector = np.zeros(DIMENSIONS, dtype=np.float32)
    joined = " ".join(re.findall(r"\w+", text.lower()))
    for start in range(max(len(joined) - 2, 1)):
        vector[zlib.crc32(joined[start : start + 3].encode()) % DIMENSIONS] += 1.0
    return vector / np.float32(np.linalg.norm(vector))
