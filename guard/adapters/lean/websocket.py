"""A WebSocket whose every message waits for its verdict; nothing else of a frame passes.

Pings are answered on the side they come from, the reason of a close is left out: each is room for
data.  Frames are read and written by wsproto.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, TextMessage
from wsproto.utilities import LocalProtocolError, ProtocolError

from guard.adapters.lean.connections import UpstreamLostError

if TYPE_CHECKING:
    from guard.adapters.lean.connections import Wire
    from guard.adapters.message_budget import MessageBudget
    from guard.enforcement.websocket_messages import WebSocketHandler, WebSocketSession

POLICY_VIOLATION: Final = 1008
UNREADABLE: Final = 1002
GONE: Final = 1006
_PIECE_BYTES: Final = 40
_OPEN: Final = frozenset({ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING})


@dataclass(slots=True)
class _Pieces:
    """A message that is not complete."""

    content: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list)
    """Where its pieces end: it goes on in the same ones."""


class Relay:
    """Joins both sides of one WebSocket.

    Args:
        client: who opened it.
        upstream: who accepted it.
        socket: what is known of it.
        handler: judges its messages.
        budget: of unfinished messages.
    """

    def __init__(
        self,
        client: Wire,
        upstream: Wire,
        socket: WebSocketSession,
        handler: WebSocketHandler,
        budget: MessageBudget,
    ) -> None:
        self._sides = (
            (client, Connection(ConnectionType.SERVER)),
            (upstream, Connection(ConnectionType.CLIENT)),
        )
        self._socket = socket
        self._handler = handler
        self._budget = budget

    async def run(self, limit: int) -> None:
        """Relay until one side ends.

        Args:
            limit: bytes one message may have.
        """
        tasks = [asyncio.ensure_future(self._pump(place, limit)) for place in (0, 1)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._close(max(task.result() for task in done))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for _, state in self._sides:
                self._budget.release(id(state))

    async def _pump(self, place: int, limit: int) -> int:
        """Pass on what is released of one side; return the code with which the socket ends."""
        wire, source = self._sides[place]
        message = _Pieces()
        try:
            while (data := await wire.take_raw()) is not None:
                source.receive_data(data)
                for event in source.events():
                    if isinstance(event, CloseConnection):
                        return int(event.code)
                    if isinstance(event, Ping):
                        await wire.write(source.send(event.response()))
                    elif isinstance(event, Message) and not await self._message(
                        place, event, message, limit
                    ):
                        return POLICY_VIOLATION
        except (ProtocolError, UnicodeError):
            return UNREADABLE
        except UpstreamLostError:
            return GONE
        return GONE

    async def _message(self, place: int, event: Message[Any], message: _Pieces, limit: int) -> bool:
        """Take a piece of a message; return False where the message must not go on."""
        source = self._sides[place][1]
        target, other = self._sides[1 - place]
        data = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
        message.content += data
        message.ends.append(len(message.content))
        # A piece costs memory however short it is.
        held = len(message.content) + _PIECE_BYTES * len(message.ends)
        if held > limit or not self._budget.hold(id(source), held):
            self._handler.refuse(
                "body_too_large", "a message of a websocket is not accepted", self._socket
            )
            return False
        if not event.message_finished:
            return True
        self._budget.release(id(source))
        judge = self._handler.from_client if place == 0 else self._handler.from_server
        content = bytes(message.content)
        if not await judge(self._socket, content):
            return False
        start = sent = 0
        for end in message.ends:
            part, sent = content[start:end], sent + 1
            whole = (
                TextMessage(part.decode()) if isinstance(event.data, str) else BytesMessage(part)
            )
            await target.write(
                other.send(replace(whole, message_finished=sent == len(message.ends)))
            )
            start = end
        message.content.clear()
        message.ends.clear()
        return True

    async def _close(self, code: int) -> None:
        """Close both sides; whoever's words come with a close, they stay here."""
        for wire, state in self._sides:
            if state.state in _OPEN and not wire.is_lost:
                try:
                    wire.transport.write(state.send(CloseConnection(code=code)))
                except LocalProtocolError:
                    continue
