"""A WebSocket whose every message waits for its verdict; nothing else of a frame passes.

Pings are answered on the side they come from, also while a message is held open; the reason of a
close is left out: each is room for data.  Frames are read and written by wsproto.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, TextMessage
from wsproto.utilities import LocalProtocolError, ProtocolError

from guard.pep.lean.connections import MARK, UpstreamLostError, Wire

if TYPE_CHECKING:
    from guard.pep.message_budget import MessageBudget
    from guard.pipeline.websocket_messages import WebSocketHandler, WebSocketSession

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
    """Ends of its fragments: it is sent on in the same ones."""


@dataclass(slots=True)
class _Side:
    """One side of a WebSocket."""

    wire: Wire
    state: Connection
    arrived: deque[Message[Any] | CloseConnection] = field(default_factory=deque)
    """Messages that were read and not yet judged."""
    waiting: int = 0
    """Bytes that were read since nothing waited."""
    reading: asyncio.Future[bool] | None = None
    """Read that was begun beside a judgement and has to be completed: data that was taken is not
    lost."""

    @property
    def is_full(self) -> bool:
        """True while so much waits that reading pauses: its sender waits."""
        return self.waiting > MARK

    @property
    def is_closing(self) -> bool:
        """True after it has closed the WebSocket."""
        return any(isinstance(one, CloseConnection) for one in self.arrived)

    async def read(self) -> bool:
        """Read what comes next, and answer pings; False at the end.

        Raises:
            ProtocolError, UnicodeError: it is not a WebSocket's.
            UpstreamLostError: it is gone.
        """
        begun, self.reading = self.reading, None
        return await (self.take() if begun is None else begun)

    async def take(self) -> bool:
        """Read bytes while no message is unfinished."""
        data = await self.wire.take_raw()
        if data is None:
            return False
        self.waiting = len(data) + (self.waiting if self.arrived else 0)
        self.state.receive_data(data)
        for event in self.state.events():
            if isinstance(event, Ping):
                await self.wire.write(self.state.send(event.response()))
            elif isinstance(event, Message | CloseConnection):
                self.arrived.append(event)
        return True


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
            _Side(client, Connection(ConnectionType.SERVER)),
            _Side(upstream, Connection(ConnectionType.CLIENT)),
        )
        self._socket = socket
        self._handler = handler
        self._budget = budget

    async def run(self, limit: int) -> None:
        """Relay until one side ends.

        Args:
            limit: bytes one message may have.
        """
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._pump(place, limit)) for place in (0, 1)
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._close(max(task.result() for task in done))
        finally:
            tasks += [side.reading for side in self._sides if side.reading is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for side in self._sides:
                self._budget.release(id(side.state))

    async def _pump(self, place: int, limit: int) -> int:
        """Pass on what is released of one side; return the code with which the socket ends."""
        side = self._sides[place]
        message = _Pieces()
        try:
            while True:
                while side.arrived:
                    event = side.arrived.popleft()
                    if isinstance(event, CloseConnection):
                        return int(event.code)
                    if not await self._message(place, event, message, limit):
                        return POLICY_VIOLATION
                if not await side.read():
                    return GONE
        except (ProtocolError, UnicodeError):
            return UNREADABLE
        except UpstreamLostError:
            return GONE

    async def _message(self, place: int, event: Message[Any], message: _Pieces, limit: int) -> bool:
        """Take a piece of a message; return False where the message must not go on."""
        source, target = self._sides[place].state, self._sides[1 - place]
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
        content = bytes(message.content)
        if not await (self._from_client(content) if place == 0 else self._from_server(content)):
            return False
        start = sent = 0
        for end in message.ends:
            part, sent = content[start:end], sent + 1
            whole = (
                TextMessage(part.decode()) if isinstance(event.data, str) else BytesMessage(part)
            )
            await target.wire.write(
                target.state.send(replace(whole, message_finished=sent == len(message.ends)))
            )
            start = end
        message.content.clear()
        message.ends.clear()
        return True

    async def _from_server(self, content: bytes) -> bool:
        return await self._handler.from_server(self._socket, content)

    async def _from_client(self, content: bytes) -> bool:
        """Have a message judged; meanwhile read on, so that a client that pings is answered."""
        judging = self._handler.from_client(self._socket, content)
        if not self._handler.hold_seconds(self._socket):
            return await judging
        side, judged = self._sides[0], asyncio.ensure_future(judging)
        try:
            while not judged.done():
                if side.reading is None and not side.is_full:
                    side.reading = asyncio.ensure_future(side.take())
                both = [one for one in (judged, side.reading) if one is not None]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                reading = side.reading
                if reading is not None and reading.done():
                    side.reading = None
                    if not reading.result() or side.is_closing:
                        raise UpstreamLostError("the client has left")
            return judged.result()
        finally:
            judged.cancel()

    async def _close(self, code: int) -> None:
        """Close both sides; whoever's words come with a close, they stay here."""
        for side in self._sides:
            wire, state = side.wire, side.state
            if state.state in _OPEN and not wire.is_lost:
                try:
                    wire.send(state.send(CloseConnection(code=code)))
                except LocalProtocolError:
                    continue
