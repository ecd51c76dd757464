"""The two kinds of connections of the lean PEP: of clients, and to the upstream of each."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from guard.core.errors import MessageError
from guard.pep.envoy.front import Fronted
from guard.pep.lean.messages import AnswerReader, RequestRead, RequestReader, chunk_bytes

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from ssl import SSLContext

    from guard.pep.lean.client_tls import ClientTls
    from guard.pep.message_budget import MessageBudget
    from guard.settings import Listener

HANDSHAKE: Final = b"\x16"
"""First byte of a TLS record that begins a handshake, and of no HTTP request."""
MARK: Final = 256 * 1024
"""Bytes that wait on one connection before no more are read from it."""
PIPELINED: Final = 16
"""Requests that wait behind one that is judged before no more are read."""
NAP: Final = 16 * 1024
"""Bytes that a client may have sent while it rests before no more are read."""
PATIENCE_SECONDS: Final = 5.0
"""Seconds for which a request is still served whose client sends no more: it may have left."""
STREAMED: Final = 256 * 1024
"""Bytes of the guard's own that may wait in an open event stream; beyond that its client does not
read it, and is closed."""
STALL_SECONDS: Final = 60.0
"""Seconds after which a peer is closed that reads nothing of the data that waits for it."""
LINGER_SECONDS: Final = 2.0
"""Seconds for which data of a refused client are read and dropped, until it has read the reason."""
TOO_SOON: Final = 0.5
"""Share of the time that any request may wait, for which one that came too soon waits besides."""
CONNECT_SECONDS: Final = 30.0
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)
"""Answer to a client whose connection exceeds the limit."""


class UpstreamLostError(Exception):
    """An upstream has given no complete answer that can be read."""


class Serves(Protocol):
    """Handler of the requests of a connection."""

    budget: MessageBudget
    body_limit: int
    patience: float
    """Seconds that a request may wait for its turn."""
    tls: ClientTls | None
    """TLS of clients that begin with a handshake; None where none is spoken."""

    async def serve(self, client: ClientConnection, request: RequestRead) -> bool:
        """Answer a request; return whether the connection may carry another one."""

    async def refuse(self, client: ClientConnection, error: MessageError) -> None:
        """Answer what could not be read as a request."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task that lives no longer than the PEP."""

    def admits(self, client: ClientConnection) -> bool:
        """Note an open connection; return False where there is no room for it."""

    def closed(self, client: ClientConnection) -> None:
        """Note one that has ended."""

    def handshake_failed(self, error: BaseException | None) -> None:
        """Record that a TLS handshake failed."""

    def count_slow(self, why: str) -> None:
        """Count a connection that is closed because its client does not read."""


_ARRIVED: Final = memoryview(bytearray(MARK))
"""Buffer for arriving data of any connection: it is emptied before other data arrive.

A view: asyncio puts a second TLS record into a slice of it, which of a bytearray would be a copy.
"""


class Wire(asyncio.BufferedProtocol):
    """Base of both kinds: reading, writing at the pace of the other side, and raw bytes.

    The other kind of protocol gets an object of 256 KiB for each piece that arrives, which costs
    memory and as much time as reading it.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.is_lost = False
        self._room: asyncio.Future[None] | None = None
        self._news: asyncio.Future[None] | None = None
        self.raw: list[bytes] | None = None
        """Bytes of a WebSocket that nobody has taken; None while HTTP is spoken."""
        self._written = 0
        """Bytes handed to the transport."""
        self._taken = 0
        self._stalls_since = 0.0
        """Number of sent bytes at the last check, and the time since which it is unchanged."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to put what arrives."""
        return _ARRIVED

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has arrived."""
        self.data_received(bytes(_ARRIVED[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        """Hold back what is written."""
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Go on."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    async def write(self, data: bytes) -> None:
        """Write, once there is room.

        Raises:
            UpstreamLostError: the connection has ended.
        """
        if self.is_lost:
            raise UpstreamLostError("the connection is gone")
        self.send(data)
        if self._room is not None:
            await self._room

    def send(self, data: bytes) -> None:
        """Hand bytes to the transport, which keeps what the other side does not take at once."""
        self._written += len(data)
        self.transport.write(data)

    def read_on(self) -> None:
        """Read again."""
        self.transport.resume_reading()

    @property
    def waiting(self) -> int:
        """Bytes that the other side has yet to take."""
        return self.transport.get_write_buffer_size()

    def stalls(self, now: float) -> bool:
        """Return whether the other side has taken nothing for long of what waits for it.

        Args:
            now: on the clock of the event loop.
        """
        waiting = 0 if self.is_lost else self.waiting
        taken = self._written - waiting
        if not waiting or taken != self._taken:
            self._taken, self._stalls_since = taken, now
        return now - self._stalls_since >= STALL_SECONDS

    async def news(self) -> None:
        """Wait until something has arrived, or the connection has ended."""
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def tell(self) -> None:
        """Wake whoever waits for news."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def take_raw(self) -> bytes | None:
        """Return bytes of a WebSocket, None at its end."""
        while not self.raw:
            if self.is_lost or self.has_ended or self.raw is None:
                return None
            await self.news()
        taken = b"".join(self.raw)
        self.raw.clear()
        self.read_on()
        return taken

    has_ended = False
    """True if the other side sends no more."""

    def _add_raw(self, data: bytes) -> None:
        if self.raw is not None:
            self.raw.append(data)
            if sum(map(len, self.raw)) > MARK:
                self.transport.pause_reading()
            self.tell()

    def _gone(self) -> None:
        self.is_lost = True
        # asyncio's transport holds a method of its own, which nobody calls any more.  In that
        # circle it would stay, with its socket, until Python's collector looks at what is old.
        if hasattr(self.transport, "_read_ready_cb"):
            self.transport._read_ready_cb = _nothing  # noqa: SLF001  (no other way to break it)
        self.resume_writing()
        self.tell()


def _nothing() -> None:
    """Read nothing: the connection has ended."""


class ClientConnection(Wire):
    """A connection of a client: its requests are served one after the other.

    Args:
        pep: serves them.
        servers: the servers behind the address; several have a path each.
    """

    def __init__(self, pep: Serves, servers: Sequence[Listener]) -> None:
        super().__init__()
        self.id = secrets.token_hex(16)
        self.servers = servers
        self.sockname: tuple[str, int] = ("", 0)
        self.shown = Fronted()
        """Data from its TLS handshake."""
        self.heard = 0.0
        """Time at which it last sent something, or was answered, on the clock of the loop."""
        self.upstream: UpstreamConnection | None = None
        """The one that it used last, where it can be used again."""
        self.streams = False
        """True while an answer of unknown length is sent: a client that hangs up has left."""
        self.answering = False
        """True if some of the answer to the request that is served has been sent."""
        self.chunked = False
        """True if that answer is sent in chunks."""
        self.opened = False
        """True if the guard began it, as a stream of events, before there was any."""
        self.rests = 0.0
        """Seconds after which it was told to come back; 0 where it was not."""
        self.principal = ""
        """Principal of the last forwarded request; empty before there was any."""
        self._streamed = 0
        """Bytes of :meth:`push` that may still wait."""
        self._served = 0
        """Bytes of the request that is served."""
        self._pep = pep
        self._reader = RequestReader(pep.body_limit)
        self._serving: asyncio.Task[None] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._too_soon = False
        """True if it rests, and data have arrived meanwhile."""
        self._refused = False
        self._plain: asyncio.Transport | None = None
        """The transport of the socket, beneath TLS."""
        self._spoke = False
        """True if any data have arrived."""

    @property
    def waiting(self) -> int:
        """Bytes that the client has yet to take."""
        beneath = self._plain if self._plain is not self.transport else None
        return super().waiting + (beneath.get_write_buffer_size() if beneath is not None else 0)

    @property
    def is_idle(self) -> bool:
        """True while no request of it is being served."""
        return self._serving is None

    @property
    def is_quiet(self) -> bool:
        """True while no part of an unanswered request has arrived."""
        return self.is_idle and (self._resting is not None or not self._held())

    # --- told by asyncio -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if isinstance(transport, asyncio.Transport):
            self.transport = transport
        if transport.get_extra_info("ssl_object") is not None:
            from guard.pep.lean.client_tls import shown  # Slow to import, and rarely needed.

            self.shown = shown(transport)
            # Only the socket's own transport says when something waits.
            self.transport.set_write_buffer_limits(high=sys.maxsize)
            return
        self._plain = self.transport
        name = transport.get_extra_info("sockname")
        if not isinstance(name, str):  # As that of a Unix socket is.
            self.sockname = name[:2]
        self.heard = asyncio.get_running_loop().time()
        if not self._pep.admits(self):
            self._refused = True
            self.send(BUSY)
            self.transport.close()
            return
        # So it is told of any byte that waits, and of the moment when none does any more.
        self.transport.set_write_buffer_limits(high=0)

    def pause_writing(self) -> None:
        """Read no more of a client that does not read what it is sent, and count what waits."""
        super().pause_writing()
        self.transport.pause_reading()
        self.hold_output()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._streamed = 0
        self._pep.budget.release(id(self.transport))
        if not self.is_lost and not self._is_full:
            self.read_on()

    def read_on(self) -> None:
        """Read again, unless the client has yet to read what it was sent."""
        if self._room is None:
            super().read_on()

    def push(self, data: bytes) -> bool:
        """Send into its open event stream, beside what the stream's own answer brings.

        Returns:
            False where that cannot be: the client is gone, or did not read and is closed.
        """
        if self.is_lost or self._refused:
            return False
        self._streamed += len(data)
        if self._room is not None and self._streamed > STREAMED:
            self.close_slow("stream")
            return False
        self.send(data)
        if self._room is None:
            self._streamed = 0
        self.hold_output()
        return not self._refused

    def close_slow(self, why: str) -> None:
        """Break off a connection whose client does not read."""
        self._pep.count_slow(why)
        self.abort()

    def hold_output(self) -> None:
        """Count what waits for the client, which has to go where that is too much."""
        if self._room is None or self.is_lost:
            return
        size = self.waiting
        if not self._pep.budget.hold(id(self.transport), size, self.principal):
            self.close_slow("no_room")

    @property
    def _is_full(self) -> bool:
        """True while so much of it waits that reading pauses."""
        reader = self._reader
        if self.raw is not None:
            return sum(map(len, self.raw)) > MARK
        if reader.rest is not None:
            return len(reader.rest) > MARK
        rests = self._resting is not None and self._held() > NAP
        return rests or len(reader.complete) > PIPELINED

    def data_received(self, data: bytes) -> None:
        """Read what came; serve what is complete."""
        is_first = not self._spoke
        self._spoke = True
        self.heard = asyncio.get_running_loop().time()
        if is_first and self._pep.tls is not None and data[:1] == HANDSHAKE:
            done = self._pep.tls.begin(self, self.transport, data, self.sockname[0])
            done.add_done_callback(partial(self._shaken_or_not, self.transport))
            return
        if self.raw is not None:
            self._add_raw(data)
            return
        reader = self._reader
        if self._refused or reader.error is not None:
            return
        if reader.rest is not None:
            self._wait_for_switch(data)
            return
        reader.feed(data)
        if not self._pep.budget.hold(id(self), self._held()):
            reader.error = no_room()
        if reader.wants_continue and self._serving is None and not reader.complete:
            reader.wants_continue = False
            self.send(CONTINUE)
        if self._serving is None:
            self._go_on()
        if self._resting is not None and not self._too_soon:
            self._hurry(self._resting)
        if self._is_full:
            self.transport.pause_reading()

    def _shaken_or_not(self, plain: asyncio.Transport, done: asyncio.Future[None]) -> None:
        """End a connection whose handshake failed."""
        error = None if done.cancelled() else done.exception()
        if self.transport is plain:
            self._pep.handshake_failed(error)
            self.connection_lost(None)

    def _go_on(self) -> None:
        """Serve what is complete."""
        reader = self._reader
        if self._resting is None and (reader.complete or reader.error is not None):
            self._serving = self._pep.start(self._serve())

    def eof_received(self) -> bool:
        """Answer what is complete, if that is soon; who hangs up while an answer streams has left.

        A client that has left looks like one that only sends no more.
        """
        self.has_ended = True
        self.tell()
        waits = self._serving is not None and not self.streams
        if waits:
            asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._leave)
        return waits

    def _leave(self) -> None:
        """Give up a call whose client has sent its end and has not been answered since."""
        if self._serving is not None:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop serving."""
        self._gone()
        if self._serving is not None:
            self._serving.cancel()
        if self._resting is not None:
            self._resting.cancel()
        self._reader.end()
        self._forget_upstream()
        self._pep.budget.release(id(self))
        self._pep.closed(self)

    # --- serving -------------------------------------------------------------------------------

    async def _serve(self) -> None:
        reader = self._reader
        keeps = True
        rests = False
        try:
            while reader.complete and keeps and not rests and not self.is_lost:
                request = reader.complete.popleft()
                self._served = len(request.body)
                keeps = await self._pep.serve(self, request)
                rests = bool(self.rests)
                self.heard = asyncio.get_running_loop().time()
                self._served = 0
                self._pep.budget.hold(id(self), self._held())
                if not rests:
                    self.read_on()
            if keeps and not rests and reader.error is not None and not self.is_lost:
                keeps = False
                await self._pep.refuse(self, reader.error)
        except UpstreamLostError:  # Of the client: nobody is left to be told.
            keeps = False
        except BaseException:
            self.abort()
            raise
        finally:
            self._serving, self._served = None, 0
            if not reader.held and not reader.complete:
                self._pep.budget.release(id(self))
        if not keeps or (self.has_ended and not reader.complete):
            self._hang_up()
        elif rests and not self.is_lost:
            self._rest()

    def _rest(self) -> None:
        """Serve nothing until its client was told to come back, or for a while once it asks.

        A little is read meanwhile: to stop that and to begin again costs more than to read, and
        who hangs up is seen at once.
        """
        reader = self._reader
        self._resting = asyncio.get_running_loop().call_later(self.rests, self._rested)
        if reader.complete or reader.held or reader.error is not None:
            self._hurry(self._resting)

    def _hurry(self, resting: asyncio.TimerHandle) -> None:
        """Let a request that comes too soon wait for a while only.

        Who is refused at once asks again at once; who hears nothing gives up and connects anew,
        which costs more than a refusal.
        """
        self._too_soon = True
        loop = asyncio.get_running_loop()
        at = loop.time() + TOO_SOON * self._pep.patience
        if at < resting.when():
            resting.cancel()
            self._resting = loop.call_at(at, self._rested)

    def _rested(self) -> None:
        """Read on; for a client that has left, nothing more is done."""
        self._resting, self._too_soon, self.rests = None, False, 0.0
        if not self._refused and not self.is_lost:
            self.read_on()
            self._go_on()

    def framed(self, data: bytes) -> bytes:
        """Return bytes of an answer that streams, as this client is sent them."""
        return chunk_bytes(data) if self.chunked else data

    def switch(self) -> None:
        """Take what follows as bytes of a WebSocket."""
        self.raw = [rest] if (rest := self._reader.rest) else []

    def abort(self) -> None:
        """Break the connection off, so that nobody takes what was sent for a whole answer."""
        self._refused = True
        if not self.is_lost:
            self.transport.abort()

    async def upstream_to(
        self, place: tuple[str, int], tls: SSLContext | None, *, fresh: bool, via: str = ""
    ) -> UpstreamConnection:
        """Return a connection to an upstream that no other client uses.

        Args:
            place: host and port.
            tls: None for an upstream in the clear.
            fresh: whether it must be a new one, and is used once.
            via: path of the socket of whoever takes requests on; empty connects directly.

        Raises:
            OSError: there is none.
            TimeoutError: likewise, after a while.
        """
        kept = self.upstream
        if kept is not None and kept.is_free and kept.place == (place, tls) and not fresh:
            return kept
        self._forget_upstream()
        self.upstream = made = await connected(place, tls, via)
        return made

    def _wait_for_switch(self, data: bytes) -> None:
        """Keep what a client says before it knows whether its WebSocket is accepted."""
        self._reader.rest = (self._reader.rest or b"") + data
        if not self._pep.budget.hold(id(self), self._held()):
            self.abort()
        elif len(self._reader.rest) > MARK:
            self.transport.pause_reading()

    def _held(self) -> int:
        reader = self._reader
        waiting = sum(len(one.body) for one in reader.complete)
        return waiting + reader.held + len(reader.rest or b"") + self._served

    def _forget_upstream(self) -> None:
        if self.upstream is not None:
            self.upstream.close()
            self.upstream = None

    def _hang_up(self) -> None:
        """End the connection; what is still being sent is thrown away until the client leaves."""
        self._refused = True
        self._forget_upstream()
        if self.is_lost:
            return
        if self.has_ended or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.transport.resume_reading()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self.transport.close)


class UpstreamConnection(Wire):
    """A connection to the server behind a listener, for one client.

    Args:
        place: host and port.
        tls: how TLS is spoken, None where it is not.
    """

    def __init__(self, place: tuple[str, int], tls: SSLContext | None) -> None:
        super().__init__()
        self.place = place, tls
        self._answer: AnswerReader | None = None
        self.is_free = False
        """True if another request can be sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if isinstance(transport, asyncio.Transport):
            self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        if self.raw is not None:
            self._add_raw(data)
        elif self._answer is None:
            # Nobody has asked for anything.
            self.close()
        else:
            self._answer.feed(data)
            if len(self._answer.waiting) > MARK:
                self.transport.pause_reading()
            self.tell()

    def eof_received(self) -> None:
        """Note that no more comes."""
        self.has_ended = True
        self.is_free = False
        if self._answer is not None:
            self._answer.end()
        self.tell()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it is gone."""
        self.is_free = False
        if self._answer is not None:
            self._answer.end()
        self._gone()

    async def ask(self, method: str, data: bytes) -> AnswerReader:
        """Send a request and return its answer as soon as its head is there.

        Raises:
            UpstreamLostError: no answer came that can be read.
        """
        self.is_free = False
        self._answer = answer = AnswerReader(method)
        await self.write(data)
        while not answer.status:
            self._check(answer)
            await self.news()
        return answer

    async def take(self, answer: AnswerReader) -> bytes:
        """Return what has arrived of the body, empty at its end.

        Raises:
            UpstreamLostError: the rest will not come.
        """
        while not answer.waiting:
            if answer.is_complete:
                return b""
            self._check(answer)
            await self.news()
        taken = bytes(answer.waiting)
        answer.waiting.clear()
        self.transport.resume_reading()
        return taken

    def switch(self, answer: AnswerReader) -> None:
        """Take what follows as bytes of a WebSocket."""
        self._answer = None
        self.raw = [answer.rest] if answer.rest else []

    def release(self, answer: AnswerReader) -> None:
        """Keep the connection for another request, where its state is known; else close it."""
        if answer.is_complete and answer.is_reusable and not answer.waiting and not self.is_lost:
            self._answer = None
            self.is_free = True
        else:
            self.close()

    def close(self) -> None:
        """End it, whatever is on its way."""
        self.is_free = False
        if not self.is_lost:
            self.transport.abort()

    def _check(self, answer: AnswerReader) -> None:
        if answer.error or self.is_lost or self.has_ended:
            raise UpstreamLostError(answer.error or "the connection is gone")


async def connected(
    place: tuple[str, int], tls: SSLContext | None, via: str = ""
) -> UpstreamConnection:
    """Return a new connection to an upstream, or to whoever takes requests on to it.

    Args:
        place: host and port.
        tls: None for an upstream in the clear; not used on the way to who takes requests on.
        via: path of the socket of the latter.

    Raises:
        OSError: there is none.
        TimeoutError: likewise, after a while.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_SECONDS):
        if via:
            return (await loop.create_unix_connection(lambda: UpstreamConnection(place, tls), via))[
                1
            ]
        _, made = await loop.create_connection(
            lambda: UpstreamConnection(place, tls),
            place[0],
            place[1],
            ssl=tls,
            server_hostname=place[0] if tls is not None else None,
        )
    return made


def upstream_tls(trust: str, certificate: str = "") -> SSLContext:
    """Return how TLS is spoken to an upstream.

    Args:
        trust: PEM file of the authorities that its certificate may come from.
        certificate: PEM file with the certificate and key of a writer; empty for none.
    """
    made = ssl.create_default_context(cafile=trust)
    made.set_alpn_protocols(["http/1.1"])
    if certificate:
        made.load_cert_chain(certificate)
    return made


def no_room() -> MessageError:
    """Return why a message is refused that is too much beside the others."""
    message = "the guard holds too much of unfinished messages"
    return MessageError("no_room", message, status=503)
