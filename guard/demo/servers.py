"""The demo's servers on loopback: mail and memory (MCP), notes (plain HTTP), each on a SQLite file.

``python -m guard.demo.servers mail|memory|notes --db FILE``: what mail and notes "send" lands in a
table of the file, from which the demo reads its proofs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.processes.loopback import serve_on_loopback, server_options

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS outbox (recipient TEXT, subject TEXT, body TEXT);
CREATE TABLE IF NOT EXISTS drafts (recipient TEXT, subject TEXT, body TEXT);
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS documents (title TEXT, text TEXT);
CREATE TABLE IF NOT EXISTS shared (recipient TEXT, text TEXT);
"""
WAIT_SECONDS: Final = 5.0
"""Time that an operation waits for another process's transaction."""


class Store:
    """Tables of one server.

    The file is opened for each operation: server and demo are different processes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._opened()) as database, database:
            database.executescript(_TABLES)

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=WAIT_SECONDS)

    def add(self, table: str, *values: str) -> int:
        """Add a row; return its number."""
        query = f"REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})"  # noqa: S608  (names of our own)
        with closing(self._opened()) as database, database:
            return database.execute(query, values).lastrowid or 0

    def rows(self, table: str) -> list[Any]:
        """Return the rows of a table, the oldest first."""
        with closing(self._opened()) as database:
            return database.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()  # noqa: S608  (names of our own)


def mail(path: Path) -> Starlette:
    """Return the mail server."""
    store = Store(path)

    def email_send_email(to: str, subject: str, body: str) -> str:
        """Send a mail."""
        return f"sent as message {store.add('outbox', to, subject, body)}"

    def email_draft_email(to: str, subject: str, body: str) -> str:
        """Keep a draft of a mail without sending it."""
        return f"saved as draft {store.add('drafts', to, subject, body)}"

    return _mcp("mail", email_send_email, email_draft_email)


def memory(path: Path) -> Starlette:
    """Return the memory server: facts by key and documents to search."""
    store = Store(path)

    def memory_save_fact(key: str, value: str) -> str:
        """Remember a fact across sessions."""
        store.add("facts", key, value)
        return f"saved {key}"

    def memory_recall_fact(key: str) -> str:
        """Recall a fact by its key."""
        return str(dict(store.rows("facts"))[key])

    def memory_list_all_facts() -> list[str]:
        """List the keys of all facts."""
        return [key for key, _ in store.rows("facts")]

    def rag_query(query_text: str) -> list[str]:
        """Search the company's documents; returns the best matches whole."""
        words = set(query_text.lower().split())
        texts = ["\n\n".join(row) for row in store.rows("documents")]
        return sorted(texts, key=lambda text: -len(words & set(text.lower().split())))[:2]

    return _mcp("memory", memory_save_fact, memory_recall_fact, memory_list_all_facts, rag_query)


def notes(path: Path) -> Starlette:
    """Return the notes service."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    store = Store(path)

    async def share(request: Request) -> JSONResponse:
        """Share a note with somebody."""
        note = await request.json()
        return JSONResponse({"shared": store.add("shared", note["to"], note["text"])})

    return Starlette(routes=[Route("/v1/{notebook}/share", share, methods=["POST"])])


def _mcp(name: str, *tools: Callable[..., Any]) -> Starlette:
    # Only the MCP servers need the SDK, which takes seconds to load.
    from mcp.server.fastmcp import FastMCP

    server = FastMCP(name)
    for tool in tools:
        server.add_tool(tool)
    return server.streamable_http_app()


def main() -> None:
    """Serve until told to stop or left alone."""
    servers = {"mail": mail, "memory": memory, "notes": notes}
    parser = server_options("A server of the demo, on loopback only.")
    parser.add_argument("name", choices=servers)
    options = parser.parse_args()
    serve_on_loopback(lambda: servers[options.name](options.db), options.port)


if __name__ == "__main__":
    main()
