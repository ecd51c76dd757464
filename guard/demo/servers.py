"""The demo's MCP servers, made with the official SDK: mail and memory.

Without the guard they do whatever they are told: send to anybody, remember anything.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from guard.processes.loopback import serve_on_loopback

if TYPE_CHECKING:
    from starlette.applications import Starlette


class Office:
    """Content of the servers.

    Args:
        facts: of the memory, by key.
        documents: texts of the memory, by title.
    """

    def __init__(self, facts: Mapping[str, str], documents: Mapping[str, str]) -> None:
        self.facts = dict(facts)
        self.documents = dict(documents)
        self.outbox: list[tuple[str, str, str]] = []
        """Recipient, subject and body of each mail that was sent."""
        self.drafts: list[tuple[str, str, str]] = []

    def mail(self) -> Starlette:
        """Return the mail server."""

        def email_send_email(to: str, subject: str, body: str) -> str:
            """Send a mail."""
            self.outbox.append((to, subject, body))
            return f"sent as message {len(self.outbox)}"

        def email_draft_email(to: str, subject: str, body: str) -> str:
            """Keep a draft of a mail without sending it."""
            self.drafts.append((to, subject, body))
            return f"saved as draft {len(self.drafts)}"

        return _mcp("mail", email_send_email, email_draft_email)

    def memory(self) -> Starlette:
        """Return the memory server: facts by key and documents to search."""

        def memory_save_fact(key: str, value: str) -> str:
            """Remember a fact across sessions."""
            self.facts[key] = value
            return f"saved {key}"

        def memory_recall_fact(key: str) -> str:
            """Recall a fact by its key."""
            return self.facts[key]

        def memory_list_all_facts() -> list[str]:
            """List the keys of all facts."""
            return list(self.facts)

        def rag_query(query_text: str) -> str:
            """Search the company's documents; returns the best match whole."""
            words = set(query_text.lower().split())
            texts = ["\n\n".join(one) for one in self.documents.items()]
            return max(texts, key=lambda text: len(words & set(text.lower().split())))

        return _mcp(
            "memory", memory_save_fact, memory_recall_fact, memory_list_all_facts, rag_query
        )


@contextmanager
def served(listener: socket.socket, server: Starlette) -> Iterator[None]:
    """Serve on a listening socket, in a thread, until the block ends."""
    import uvicorn

    config = uvicorn.Config(server, log_level="warning", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield
    finally:
        running.should_exit = True
        thread.join()


def _mcp(name: str, *tools: Callable[..., Any]) -> Starlette:
    # The SDK takes seconds to load: the guard starts in the meantime.
    from mcp.server.fastmcp import FastMCP

    server = FastMCP(name, log_level="CRITICAL")
    for tool in tools:
        server.add_tool(tool)
    return server.streamable_http_app()


if __name__ == "__main__":
    serve_on_loopback(Office({}, {}).mail)
