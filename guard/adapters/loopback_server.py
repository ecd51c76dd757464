"""Serves an ASGI application on loopback for the process that started this one.

The socket listens before the port is printed, so whoever read the port can connect at once.  The
server ends when its standard input does: a parent that was killed leaves no server behind.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.applications import Starlette


def serve_on_loopback(build: Callable[[], Starlette], port: int = 0) -> None:
    """Print the port and serve on it until told to stop, or until standard input ends.

    Args:
        build: makes the application, once the socket listens.
        port: 0 chooses a free one.
    """
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(build(), log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=_stop_at_end_of_input, args=(server,), daemon=True).start()
    asyncio.run(server.serve(sockets=[listener]))


def _stop_at_end_of_input(server: uvicorn.Server) -> None:
    # Nothing is ever written to it: reading ends when the parent does.
    sys.stdin.buffer.read()
    server.should_exit = True
