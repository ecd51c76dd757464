"""The memory that writes are measured on: items, a vector index and a version, in SQLite.

The index is exact cosine search over hashed word and trigram vectors, kept in the same file and in
the same transaction as the items.  The version only ever grows: nothing takes back a write.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
CREATE TABLE IF NOT EXISTS version (id INTEGER PRIMARY KEY CHECK (id = 1), value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS log (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, content TEXT NOT NULL, what TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS documents (id TEXT PRIMARY KEY, text TEXT NOT NULL);
INSERT OR IGNORE INTO version (id, value) VALUES (1, 0);
"""


@dataclass(frozen=True, slots=True)
class Trace:
    """The traces of one content in a store; all zero if it never formed."""

    rows: int
    vectors: int
    version: int
    writes: int
    """Times the content was ever written, rolled back or not."""


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
            self._log(database, key, content, "write")
            return self._advance(database)

    def delete(self, key: str) -> int:
        """Remove an item and its vector; return the new version."""
        with self._opened() as database:
            database.execute("DELETE FROM items WHERE key = ?", (key,))
            database.execute("DELETE FROM vectors WHERE key = ?", (key,))
            self._log(database, key, "", "delete")
            return self._advance(database)

    def get(self, key: str) -> str | None:
        """Return the content of a key."""
        with self._opened() as database:
            row = database.execute("SELECT content FROM items WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def items(self) -> list[dict[str, str]]:
        """Return all that is kept: keys and contents."""
        with self._opened() as database:
            rows = database.execute("SELECT key, content FROM items ORDER BY key").fetchall()
        return [{"key": str(key), "content": str(content)} for key, content in rows]

    def search(self, query: str, limit: int = 3) -> list[str]:
        """Return the contents nearest to a query."""
        with self._opened() as database:
            rows = database.execute(
                "SELECT content, vector FROM items JOIN vectors USING (key)"
            ).fetchall()
        if not rows:
            return []
        matrix = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float32)
        scores = matrix.reshape(len(rows), DIMENSIONS) @ embed(query)
        return [str(rows[i][0]) for i in np.argsort(-scores, kind="stable")[:limit]]

    def document(self, ident: str) -> str | None:
        """Return a document that strangers can write."""
        with self._opened() as database:
            row = database.execute("SELECT text FROM documents WHERE id = ?", (ident,)).fetchone()
        return None if row is None else str(row[0])

    def add_document(self, ident: str, text: str) -> None:
        """Put a document there, as a stranger would."""
        with self._opened() as database:
            database.execute("REPLACE INTO documents VALUES (?, ?)", (ident, text))

    def trace(self, content: str) -> Trace:
        """Return everything the store shows of a content."""
        vector = embed(content).tobytes()
        with self._opened() as database:

            def count(statement: str, value: object) -> int:
                return int(database.execute(statement, (value,)).fetchone()[0])

            return Trace(
                rows=count("SELECT count(*) FROM items WHERE content = ?", content),
                vectors=count("SELECT count(*) FROM vectors WHERE vector = ?", vector),
                version=count("SELECT value FROM version WHERE id = ?", 1),
                writes=count(
                    "SELECT count(*) FROM log WHERE what = 'write' AND content = ?", content
                ),
            )

    @staticmethod
    def _log(database: sqlite3.Connection, key: str, content: str, what: str) -> None:
        database.execute(
            "INSERT INTO log (key, content, what) VALUES (?, ?, ?)", (key, content, what)
        )

    @staticmethod
    def _advance(database: sqlite3.Connection) -> int:
        database.execute("UPDATE version SET value = value + 1 WHERE id = 1")
        return int(database.execute("SELECT value FROM version").fetchone()[0])

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=5.0)
        try:
            with database:
                yield database
        finally:
            database.close()


def embed(text: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return the hashed vector of a text: words and character trigrams, unit length."""
    vector = np.zeros(DIMENSIONS, dtype=np.float32)
    words = re.findall(r"\w+", text.lower())
    joined = " ".join(words)
    grams = [joined[i : i + 3] for i in range(max(len(joined) - 2, 0))]
    for token, weight in [*((w, 1.0) for w in words), *((g, 0.3) for g in grams)]:
        digest = hashlib.blake2b(token.encode(), digest_size=4).digest()
        place = int.from_bytes(digest[:3], "big") % DIMENSIONS
        vector[place] += weight if digest[3] & 1 else -weight
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm else vector
