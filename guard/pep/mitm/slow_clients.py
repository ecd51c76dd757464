"""Bytes that wait for clients behind mitmproxy: counted, bounded, and dropped if unread.

mitmproxy writes what a layer sends and waits for room only where it reads next.  Over HTTP/2 a
client's window keeps bytes in a buffer that has no bound.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from mitmproxy.proxy.layers.http import HttpLayer

from guard.pep.lean.connections import STALL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mitmproxy.proxy.server import ConnectionHandler

    from guard.pep.message_budget import MessageBudget

UNCOUNTED: Final = 64 * 1024
"""Bytes that may wait for a client without being counted."""
MESSAGES: Final = 2
"""Messages of the largest size that may wait for one client."""
LOOK_SECONDS: Final = 1.0


class SlowClients:
    """Watches the connections for whose clients something waits.

    Args:
        budget: what waits counts towards it.
    """

    def __init__(self, budget: MessageBudget) -> None:
        self._budget = budget
        self._watched: dict[str, asyncio.Task[None]] = {}
        """By id of the connection."""
        self.limit = 0
        """Bytes of the largest message; set by the master."""
        self.principal: Callable[[str], str] = lambda _: ""
        """Return the principal of a connection, by its id; set by the master."""
        self.count: Callable[[str], object] = lambda _: None
        """Count a client that is closed, by why; set by the master."""

    def look(self, handler: ConnectionHandler) -> None:
        """Look at what waits for a client."""
        client = handler.client.id
        waiting = waiting_for(handler)
        if waiting <= UNCOUNTED:
            return
        if waiting > MESSAGES * self.limit + UNCOUNTED or not self._budget.hold(
            id(handler), waiting, self.principal(client)
        ):
            self._close(handler, "no_room")
        elif client not in self._watched:
            self._watched[client] = asyncio.get_running_loop().create_task(self._watch(handler))

    async def _watch(self, handler: ConnectionHandler) -> None:
        """Follow what waits for a client until it is little, or the client takes nothing."""
        loop, client = asyncio.get_running_loop(), handler.client.id
        before, since = waiting_for(handler), loop.time()
        try:
            while (waiting := waiting_for(handler)) > UNCOUNTED:
                if waiting < before:
                    before, since = waiting, loop.time()
                    self._budget.hold(id(handler), waiting, self.principal(client))
                elif loop.time() - since >= STALL_SECONDS:
                    self._close(handler, "stalled")
                    return
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._budget.release(id(handler))
            self._watched.pop(client, None)

    def _close(self, handler: ConnectionHandler, why: str) -> None:
        """Break off a connection; what waits for its client is thrown away."""
        self.count(why)
        writer = _writer(handler)
        if writer is not None:
            writer.transport.abort()
        self._budget.release(id(handler))


def waiting_for(handler: ConnectionHandler) -> int:
    """Return the bytes that wait for a client: in its transport, and behind its HTTP/2 windows."""
    writer = _writer(handler)
    if writer is None or writer.transport.is_closing():
        return 0
    waiting: int = writer.transport.get_write_buffer_size()
    if handler.client.alpn == b"h2":
        for one in handler.layer.context.layers:
            if isinstance(one, HttpLayer):
                waiting += _behind_windows(one.connections.get(handler.client))
    return waiting


def _behind_windows(connection: Any) -> int:
    """Return the bytes that an HTTP/2 connection keeps until its client has room for them."""
    made = getattr(connection, "h2_conn", None)
    buffers = {} if made is None else made.stream_buffers
    return sum(len(one.data) for buffer in buffers.values() for one in buffer)


def _writer(handler: ConnectionHandler) -> asyncio.StreamWriter | None:
    """Return the writer of a client's connection; None where it has none of asyncio's."""
    found = handler.transports.get(handler.client)
    writer = None if found is None else found.writer
    return writer if isinstance(writer, asyncio.StreamWriter) else None
