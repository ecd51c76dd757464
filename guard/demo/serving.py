"""What the servers of the demo have in common: their options, and that they serve on loopback."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guard.adapters.loopback_server import serve_on_loopback

if TYPE_CHECKING:
    from mcp.server.fastmcp import FastMCP
    from starlette.applications import Starlette


def serve(build: Callable[[Path], FastMCP | Starlette], purpose: str) -> None:
    """Parse ``--port`` and ``--db``, then serve until told to stop or left alone."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    parser.add_argument("--db", type=Path, required=True, help="the SQLite file")
    options = parser.parse_args()

    def application() -> Starlette:
        built: Any = build(options.db)
        # Only the MCP servers need the SDK, which takes seconds to load.
        app: Starlette = getattr(built, "streamable_http_app", lambda: built)()
        return app

    serve_on_loopback(application, options.port)
