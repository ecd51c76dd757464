"""A mail server as an MCP server; what it "sends" lands in the outbox table of its SQLite file."""

from __future__ import annotations

from pathlib import Path

from mcp.server.fastmcp import FastMCP

from guard.demo.serving import serve
from guard.demo.stores import MailStore


def build(path: Path) -> FastMCP:
    """Return the server on a SQLite file."""
    store = MailStore(path)
    server = FastMCP("mail")

    @server.tool()
    def email_send_email(to: str, subject: str, body: str) -> str:
        """Send a mail."""
        number = store.send(to, subject, body)
        return f"sent as message {number}"

    @server.tool()
    def email_draft_email(to: str, subject: str, body: str) -> str:
        """Keep a draft of a mail without sending it."""
        number = store.draft(to, subject, body)
        return f"saved as draft {number}"

    @server.tool()
    def email_list_inbox() -> list[str]:
        """List the mails received: number, sender and subject."""
        return [f"{mail.id}: {mail.party}: {mail.subject}" for mail in store.inbox()]

    @server.tool()
    def email_read(id: int) -> str:  # noqa: A002  (the argument's name is the tool's interface)
        """Read a mail received."""
        for mail in store.inbox():
            if mail.id == id:
                return f"From: {mail.party}\nSubject: {mail.subject}\n\n{mail.body}"
        message = f"there is no mail {id}, list the inbox first"
        raise ValueError(message)

    return server


if __name__ == "__main__":
    serve(build, "The demo's mail server (MCP, streamable HTTP, loopback only).")
