"""A memory server as an MCP server: facts by key and documents to search, in a SQLite file."""

from __future__ import annotations

from pathlib import Path

from mcp.server.fastmcp import FastMCP

from guard.demo.serving import serve
from guard.demo.stores import MemoryStore


def build(path: Path) -> FastMCP:
    """Return the server on a SQLite file."""
    store = MemoryStore(path)
    server = FastMCP("memory")

    @server.tool()
    def memory_save_fact(key: str, value: str) -> str:
        """Remember a fact across sessions."""
        store.save(key, value)
        return f"saved {key}"

    @server.tool()
    def memory_recall_fact(key: str) -> str:
        """Recall a fact by its key."""
        value = store.recall(key)
        if value is None:
            message = f"nothing is remembered under `{key}`, list the facts first"
            raise ValueError(message)
        return value

    @server.tool()
    def memory_list_all_facts() -> list[str]:
        """List the keys of all facts."""
        return list(store.facts())

    @server.tool()
    def rag_query(query_text: str) -> list[str]:
        """Search the company's documents; returns the best matches whole."""
        return store.search(query_text)

    return server


if __name__ == "__main__":
    serve(build, "The demo's memory server (MCP, streamable HTTP, loopback only).")
