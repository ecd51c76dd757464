"""One connection to Redis: commands in a queue to write, futures in the order of their replies.

Replies are matched to commands by their order alone, so a connection on which anything went wrong
(a reply too late, bytes that are no reply, an answer nobody asked for) is dropped whole: a late
reply must never answer another call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

import hiredis

from guard.core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable

Reply: TypeAlias = object
"""What Redis answered: bytes, int, None or a list of these; shapes are checked by the caller."""
IN_FLIGHT_LIMIT: Final = 10_000
"""Commands waiting on one connection; beyond it calls fail at once instead of piling up."""
_INCOMPLETE: Final = object()
_BUFFER: Final = 64 * 1024
"""Bytes received at once; a longer reply comes in parts."""


class Link(asyncio.BufferedProtocol):
    """One connection: a queue of commands to write, a queue of futures to answer."""

    def __init__(self, timeout: float, lost: Callable[[Link], None]) -> None:
        self.writes = 0
        self.usable = True
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._timeout = timeout
        self._lost = lost
        self._buffer = bytearray(_BUFFER)
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._transport: asyncio.WriteTransport | None = None
        self._queued: list[tuple[bytes, asyncio.Future[Reply]]] = []
        self._sent: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, packed: bytes, *, waits: bool = False) -> asyncio.Future[Reply]:
        """Send a packed command; the future is its reply.

        It leaves at once where nothing else is under way, else with all others of this tick.

        Args:
            packed: the command.
            waits: whether others of this tick are expected, and to be sent with it.
        """
        if not self.usable or len(self._sent) + len(self._queued) >= IN_FLIGHT_LIMIT:
            msg = "the redis connection is gone or has too many commands in flight"
            raise StateError(msg)
        future: asyncio.Future[Reply] = self._loop.create_future()
        first = not self._queued
        self._queued.append((packed, future))
        if first and (waits or self._sent):
            self._loop.call_soon(self._flush)
        elif first:
            self._flush()
        return future

    def drop(self, reason: str) -> None:
        """Close at once; whoever waits gets a ``StateError``.  Idempotent."""
        if not self.usable:
            return
        self.usable = False
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting = [future for future, _ in self._sent]
        waiting += [future for _, future in self._queued]
        self._sent.clear()
        self._queued.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(StateError(reason))
        self._lost(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.BaseProtocol`.  asyncio itself sets TCP_NODELAY."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        self.drop(f"the connection to redis was lost ({type(exc).__name__ if exc else 'closed'})")
        if not self.closed.done():
            self.closed.set_result(None)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002  (asyncio's signature)
        """Return where to put what Redis answers.

        The other kind of protocol gets an object of 256 KiB per reply, which costs as much as
        reading it does.
        """
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand out replies in the order of the commands."""
        if not self.usable:
            return
        try:
            # hiredis takes any buffer; its stub says otherwise.
            self._reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                if not self._sent:
                    self.drop("redis answered what nobody asked")
                    return
                future, _ = self._sent.popleft()
                if not future.done():
                    future.set_result(reply)
        except hiredis.HiredisError:
            self.drop("redis answered bytes that are not a reply")

    def _flush(self) -> None:
        if not self._queued or self._transport is None:
            return
        # The deadline counts from the write: a tick that some other task kept busy must not be
        # charged to Redis.  asyncio delivers received bytes before due timers for the same reason.
        deadline = self._loop.time() + self._timeout
        self._transport.write(b"".join([packed for packed, _ in self._queued]))
        self.writes += 1
        self._sent.extend([(future, deadline) for _, future in self._queued])
        self._queued.clear()
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """One timer per connection: replies come in order, so the oldest command is due first."""
        self._timer = None
        if not self._sent:
            return
        deadline = self._sent[0][1]
        if deadline <= self._loop.time():
            self.drop(f"redis did not answer within {self._timeout} seconds")
        else:
            self._timer = self._loop.call_at(deadline, self._expire)
