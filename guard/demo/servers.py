"""The demo's servers on loopback: mail and memory (MCP), notes (plain HTTP), each on a SQLite file.

``python -m guard.demo.servers mail|memory|notes --db FILE``: what mail and notes "send" lands in a
table of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guard.demo.stores import MailStore, MemoryStore, NotesStore
from guard.processes.loopback import serve_on_loopback, server_options

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse


def mail(path: Path) -> Starlette:
    """Return the mail server."""
    store = MailStore(path)

    def email_send_email(to: str, subject: str, body: str) -> str:
        """Send a mail."""
        return f"sent as message {store.send(to, subject, body)}"

    def email_draft_email(to: str, subject: str, body: str) -> str:
        """Keep a draft of a mail without sending it."""
        return f"saved as draft {store.draft(to, subject, body)}"

    def email_list_inbox() -> list[str]:
        """List the mails received: number, sender and subject."""
        return [f"{mail.id}: {mail.party}: {mail.subject}" for mail in store.inbox()]

    def email_read(id: int) -> str:  # noqa: A002  (the argument's name is the tool's interface)
        """Read a mail received."""
        for mail in store.inbox():
            if mail.id == id:
                return f"From: {mail.party}\nSubject: {mail.subject}\n\n{mail.body}"
        message = f"there is no mail {id}, list the inbox first"
        raise ValueError(message)

    return _mcp("mail", email_send_email, email_draft_email, email_list_inbox, email_read)


def memory(path: Path) -> Starlette:
    """Return the memory server: facts by key and documents to search."""
    store = MemoryStore(path)

    def memory_save_fact(key: str, value: str) -> str:
        """Remember a fact across sessions."""
        store.save(key, value)
        return f"saved {key}"

    def memory_recall_fact(key: str) -> str:
        """Recall a fact by its key."""
        value = store.recall(key)
        if value is None:
            message = f"nothing is remembered under `{key}`, list the facts first"
            raise ValueError(message)
        return value

    def memory_list_all_facts() -> list[str]:
        """List the keys of all facts."""
        return list(store.facts())

    def rag_query(query_text: str) -> list[str]:
        """Search the company's documents; returns the best matches whole."""
        return store.search(query_text)

    return _mcp("memory", memory_save_fact, memory_recall_fact, memory_list_all_facts, rag_query)


def notes(path: Path) -> Starlette:
    """Return the notes service."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    store = NotesStore(path)

    async def share(request: Request) -> JSONResponse:
        """Share a note with somebody."""
        note = await request.json()
        number = store.share(str(request.path_params["notebook"]), note["to"], note["text"])
        return JSONResponse({"shared": number})

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
