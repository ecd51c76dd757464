"""The SQLite stores of the demo's servers; the demo itself reads the outbox from the file.

A store opens its file per operation: server and demo are different processes on the same file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAIL_TABLES: Final = """
CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY, recipient TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS drafts (
    id INTEGER PRIMARY KEY, recipient TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS inbox (
    id INTEGER PRIMARY KEY, sender TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL);
"""
MEMORY_TABLES: Final = """
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL);
"""
NOTES_TABLES: Final = """
CREATE TABLE IF NOT EXISTS shared (
    id INTEGER PRIMARY KEY, recipient TEXT NOT NULL, notebook TEXT NOT NULL, text TEXT NOT NULL);
"""
WAIT_SECONDS: Final = 5.0
"""How long an operation waits for another process's transaction."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A message as the mail server keeps it; ``party`` is its recipient, or its sender."""

    id: int
    party: str
    subject: str
    body: str


class MailStore:
    """Outbox, drafts and inbox in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _opened(path) as database:
            database.executescript(MAIL_TABLES)

    def send(self, recipient: str, subject: str, body: str) -> int:
        """Put a message into the outbox: the demo's proof that it was delivered."""
        return self._insert(
            "INSERT INTO outbox (recipient, subject, body) VALUES (?, ?, ?)",
            (recipient, subject, body),
        )

    def draft(self, recipient: str, subject: str, body: str) -> int:
        """Keep a draft."""
        return self._insert(
            "INSERT INTO drafts (recipient, subject, body) VALUES (?, ?, ?)",
            (recipient, subject, body),
        )

    def receive(self, sender: str, subject: str, body: str) -> int:
        """Put a message into the inbox."""
        return self._insert(
            "INSERT INTO inbox (sender, subject, body) VALUES (?, ?, ?)", (sender, subject, body)
        )

    def outbox(self) -> list[Mail]:
        """Return what was sent, oldest first."""
        return self._select("SELECT id, recipient, subject, body FROM outbox ORDER BY id")

    def inbox(self) -> list[Mail]:
        """Return what was received, oldest first."""
        return self._select("SELECT id, sender, subject, body FROM inbox ORDER BY id")

    def _insert(self, statement: str, values: tuple[str, ...]) -> int:
        with _opened(self._path) as database:
            return database.execute(statement, values).lastrowid or 0

    def _select(self, statement: str) -> list[Mail]:
        with _opened(self._path) as database:
            return [Mail(*row) for row in database.execute(statement)]


class NotesStore:
    """Notes that were shared, in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _opened(path) as database:
            database.executescript(NOTES_TABLES)

    def share(self, notebook: str, recipient: str, text: str) -> int:
        """Share a note: the demo's proof that it was delivered."""
        with _opened(self._path) as database:
            statement = "INSERT INTO shared (recipient, notebook, text) VALUES (?, ?, ?)"
            return database.execute(statement, (recipient, notebook, text)).lastrowid or 0

    def recipients(self) -> list[str]:
        """Return whom notes were shared with, oldest first."""
        with _opened(self._path) as database:
            rows = database.execute("SELECT recipient FROM shared ORDER BY id").fetchall()
        return [str(row[0]) for row in rows]


class MemoryStore:
    """Facts by key, and documents that can be searched, in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _opened(path) as database:
            database.executescript(MEMORY_TABLES)

    def save(self, key: str, value: str) -> None:
        """Keep a fact; a later one of the same key replaces it."""
        with _opened(self._path) as database:
            database.execute("REPLACE INTO facts (key, value) VALUES (?, ?)", (key, value))

    def recall(self, key: str) -> str | None:
        """Return the fact of a key."""
        with _opened(self._path) as database:
            row = database.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def facts(self) -> dict[str, str]:
        """Return every fact by key."""
        with _opened(self._path) as database:
            return dict(database.execute("SELECT key, value FROM facts ORDER BY key").fetchall())

    def add_document(self, title: str, text: str) -> None:
        """Keep a document."""
        with _opened(self._path) as database:
            database.execute("INSERT INTO documents (title, text) VALUES (?, ?)", (title, text))

    def search(self, query: str, limit: int = 2) -> list[str]:
        """Return the texts that share the most words with the query, best first."""
        words = set(query.lower().split())
        with _opened(self._path) as database:
            rows = database.execute("SELECT title, text FROM documents ORDER BY id").fetchall()
        ranked = sorted(
            rows, key=lambda row: -len(words & set(f"{row[0]} {row[1]}".lower().split()))
        )
        return [f"{title}\n\n{text}" for title, text in ranked[:limit]]


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(path, timeout=WAIT_SECONDS)
    try:
        with database:
            yield database
    finally:
        database.close()
