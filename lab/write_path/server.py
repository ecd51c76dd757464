"""The measured memory as a real MCP server over Streamable HTTP, or over standard input and output.

With ``--secret-file`` it takes writes from whoever presents that bearer secret and from nobody
else; over stdio the secret has to be in ``MEMORY_SECRET``.
"""

from __future__ import annotations

import argparse
import hmac
import os
from pathlib import Path
from typing import Any

from mcp.server.fastmcp import Context, FastMCP

from guard.processes.loopback import serve_on_loopback
from lab.write_path.store import VectorMemory


def build(path: Path, secret: str) -> FastMCP:
    """Return the server on a SQLite file."""
    store = VectorMemory(path)
    server = FastMCP("memory", stateless_http=True, json_response=True, log_level="ERROR")

    @server.tool()
    def memory_write(
        context: Context[Any, Any, Any],
        key: str,
        content: str,
        memory_class: str = "L3",
        nonce: str = "",
    ) -> str:
        """Remember something."""
        _authorise(context, secret)
        return f"version {store.write(key, content, memory_class, nonce)}"

    @server.tool()
    def memory_get(key: str) -> str:
        """Return what is remembered under a key."""
        return store.get(key) or ""

    @server.tool()
    def memory_search(query: str) -> list[str]:
        """Return what is nearest to a query."""
        return store.search(query)

    @server.tool()
    def fetch_document(document_id: str) -> str:
        """Return a document that strangers can write."""
        return store.document(document_id) or ""

    @server.tool()
    def send_email(to: str, body: str) -> str:
        """Send a message; nobody gets it."""
        return f"sent {len(body)} characters to {len(to)}"

    return server


def _authorise(context: Context[Any, Any, Any], secret: str) -> None:
    if not secret:
        return
    request = context.request_context.request
    if request is None:
        presented = os.environ.get("MEMORY_SECRET", "")  # noqa: TID251  (how a stdio server is told)
    else:
        presented = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not hmac.compare_digest(presented.encode(), secret.encode()):
        raise PermissionError("a write needs the write credential")


def main() -> None:
    """Serve until told to stop, or until standard input ends."""
    parser = argparse.ArgumentParser(description="The memory server that writes are measured on.")
    parser.add_argument("--db", type=Path, required=True, help="the SQLite file")
    parser.add_argument("--secret-file", type=Path, help="who knows it may write")
    parser.add_argument("--stdio", action="store_true", help="speak on standard input and output")
    options = parser.parse_args()
    secret = options.secret_file.read_text(encoding="utf-8").strip() if options.secret_file else ""
    server = build(options.db, secret)
    if options.stdio:
        server.run("stdio")
        return
    serve_on_loopback(server.streamable_http_app)


if __name__ == "__main__":
    main()
