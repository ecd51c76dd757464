"""Serves one server of the demo on loopback and says on which port.

The socket listens before the port is printed, so whoever read the port can connect at once.  The
server ends when its standard input does: a demo that was killed leaves no server behind.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from mcp.server.fastmcp import FastMCP
    from starlette.applications import Starlette


def serve(build: Callable[[Path], FastMCP | Starlette], purpose: str) -> None:
    """Parse ``--port`` and ``--db``, then serve until told to stop or left alone."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    parser.add_argument("--db", type=Path, required=True, help="the SQLite file")
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", options.port))
    built = build(options.db)
    # Only the MCP servers need the SDK, which takes seconds to load.
    app: Any = getattr(built, "streamable_http_app", lambda: built)()
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=_stop_at_end_of_input, args=(server,), daemon=True).start()
    asyncio.run(server.serve(sockets=[listener]))


def _stop_at_end_of_input(server: uvicorn.Server) -> None:
    # Nothing is ever written to it: reading ends when the demo does.
    sys.stdin.buffer.read()
    server.should_exit = True
