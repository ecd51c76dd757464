"""A small asyncio Redis client: a lone command leaves at once, those of a busy tick in one write.

A connection on which anything went wrong is dropped whole; the next call opens a new one.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import hiredis

from guard.adapters.redis.link import Link
from guard.core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guard.adapters.redis.endpoint import Endpoint
    from guard.adapters.redis.layout import Script
    from guard.adapters.redis.link import Reply

Argument: TypeAlias = str | bytes | int

TIMEOUT: Final = 0.25
"""Seconds a reply may take before the connection is given up."""
BACKOFF_FIRST: Final = 0.05
BACKOFF_LAST: Final = 1.0
"""Seconds in which calls fail at once after a failed connect; doubles from first to last."""
# The stub of hiredis allows tuples of one item only.
_pack: Final = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)


class CommandRefusedError(StateError):
    """Redis answered a command with an error.

    Attributes:
        code: the first word of the error, such as ``NOSCRIPT`` or ``NOPERM``.
    """

    def __init__(self, text: str) -> None:
        self.code = text.partition(" ")[0]
        super().__init__(f"redis refused a command: `{text[:200]}`")


class RedisClient:
    """Commands to one Redis server over one connection that reopens itself.

    Belongs to the event loop it is first used in.  No call sleeps: while a failed connect is too
    recent, calls fail at once.

    Args:
        endpoint: the server.
        timeout: seconds for one reply, and for opening a connection.
        backoff: seconds after a failed connect in which no other is tried, first and longest.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout: float = TIMEOUT,
        backoff: tuple[float, float] = (BACKOFF_FIRST, BACKOFF_LAST),
    ) -> None:
        self.endpoint = endpoint
        self._timeout = timeout
        self._backoff_first, self._backoff_last = backoff
        self._backoff = self._backoff_first
        self._retry_at = 0.0
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._past_writes = 0
        self._closed = False
        self._together = 0

    @property
    def writes(self) -> int:
        """Writes made so far, handshakes included; each carries the commands of one tick."""
        return self._past_writes + (self._link.writes if self._link else 0)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send what is asked for in here with whatever else is asked for in the same tick."""
        self._together += 1
        try:
            yield
        finally:
            self._together -= 1

    async def execute(self, *command: Argument) -> Reply:
        """Send one command and return its reply.

        Raises:
            CommandRefusedError: Redis answered with an error.
            StateError: there was no reply in time, or no connection.
        """
        link = self._link or await self._connected()
        return _checked(await link.submit(_pack(command), waits=self._together > 0))

    async def run(self, script: Script, *arguments: Argument) -> Reply:
        """Run a script by its digest; a server that does not know it is taught once.

        Args:
            script: which.
            arguments: what follows the digest in EVALSHA: number of keys, keys, arguments.

        Raises:
            StateError: as :meth:`execute`.
        """
        command = _pack(("EVALSHA", script.sha, *arguments))
        link = self._link or await self._connected()
        reply = await link.submit(command, waits=self._together > 0)
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
            # Redis did not run it, so sending it again counts the call once.
            link = self._link or await self._connected()
            load = _pack(("SCRIPT", "LOAD", script.text))
            loaded, reply = await asyncio.gather(link.submit(load), link.submit(command))
            _checked(loaded)
        return _checked(reply)

    async def aclose(self) -> None:
        """Close the connection.  Every later call fails."""
        self._closed = True
        opening, link = self._opening, self._link
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
        if link is not None:
            link.drop("the redis client was closed")
            await link.closed

    async def _connected(self) -> Link:
        """Return the one connection, opening it if need be; many callers share one attempt."""
        if self._closed:
            msg = "the redis client was closed"
            raise StateError(msg)
        if self._opening is None:
            loop = asyncio.get_running_loop()
            if loop.time() < self._retry_at:
                msg = f"redis at `{self.endpoint}` could not be reached a moment ago"
                raise StateError(msg)
            self._opening = loop.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                msg = "the redis client was closed"
                raise StateError(msg) from None
            raise

    async def _open(self) -> Link:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._handshake()
        except (OSError, TimeoutError, UnicodeError) as error:
            msg = f"redis at `{self.endpoint}` cannot be reached ({type(error).__name__})"
            raise StateError(msg) from error

    async def _handshake(self) -> Link:
        link = await self.endpoint.connect(lambda: Link(self._timeout, self._forget))
        try:
            commands = self.endpoint.handshake
            pending = [link.submit(_pack(command)) for command in commands]
            replies = await asyncio.gather(*pending)
            for reply in replies[:-1]:
                if _checked(reply) != b"OK":
                    msg = "redis answered the handshake with something else than OK"
                    raise StateError(msg)
        except BaseException:
            link.drop("the redis handshake failed")
            raise
        return link

    def _opened(self, task: asyncio.Task[Link]) -> None:
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            link = task.result()
            if link.usable and not self._closed:
                self._link = link
                self._backoff = self._backoff_first
                return
            link.drop("the redis client was closed")
        self._retry_at = asyncio.get_running_loop().time() + self._backoff
        self._backoff = min(self._backoff * 2, self._backoff_last)

    def _forget(self, link: Link) -> None:
        self._past_writes += link.writes
        if self._link is link:
            self._link = None


def _checked(reply: Any) -> Reply:
    if isinstance(reply, hiredis.ReplyError):
        raise CommandRefusedError(str(reply))
    return reply
