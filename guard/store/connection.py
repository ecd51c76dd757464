"""A small asyncio Redis client: commands of one turn of the event loop leave in one write.

An :class:`Endpoint` says where Redis is and how to be let in.  Replies are matched to commands by
their order alone, so a connection on which anything went wrong (a reply too late, bytes that are no
reply, an answer nobody asked for) is dropped whole: a late reply must never answer another call.
The next call opens a new connection.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar, cast

import hiredis

from guard.core.errors import StateError
from guard.settings import Durability

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping

    from guard.store.layout import Script

P = TypeVar("P", bound=asyncio.BaseProtocol)

_PLAIN_SOCKET: Final = re.compile(r"unix://(/[^?#@%]*)")
"""The URL of a socket with nothing else in it, as that of an embedded Redis is."""
_PLAIN_OPTIONS: Final = frozenset(
    {"connection_class", "db", "host", "password", "path", "port", "username"}
)
_TLS_OPTIONS: Final = frozenset(
    {
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_keyfile",
        "ssl_password",
    }
)
_CLIENT_NAME: Final = "guard"
_WAIT_SHARE: Final = 0.8
"""Part of a reply's time that replicas get."""
_NOT_PRIMARY: Final = frozenset({"READONLY", "MASTERDOWN"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Redis server.  Its text form names no credential."""

    path: str = ""
    """Unix socket; empty for TCP."""
    host: str = "localhost"
    port: int = 6379
    db: int = 0
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"unix://{self.path}" if self.path else f"{self.host}:{self.port}"

    def accepts(self, reply: Reply) -> bool:
        """Return whether this is an answer to the last command of the handshake.

        Servers that forbid CLIENT refuse it, which does no harm.
        """
        return reply is not None

    @property
    def handshake(self) -> tuple[tuple[str, ...], ...]:
        """The commands that open a connection; each but the last must be answered with OK."""
        commands: list[tuple[str, ...]] = []
        if self.username or self.password:
            user = (self.username,) if self.username else ()
            commands.append(("AUTH", *user, self.password))
        if self.db:
            commands.append(("SELECT", str(self.db)))
        commands.append(("CLIENT", "SETNAME", _CLIENT_NAME))
        return tuple(commands)

    async def connect(self, factory: Callable[[], P]) -> P:
        """Open a transport and return its protocol.

        Raises:
            OSError: it cannot be reached, TLS failures included.
        """
        loop = asyncio.get_running_loop()
        if self.path:
            _, protocol = await loop.create_unix_connection(factory, self.path)
        else:
            name = self.host if self.tls else None
            _, protocol = await loop.create_connection(
                factory, self.host, self.port, ssl=self.tls, server_hostname=name
            )
        return protocol


def parse_url_options(url: str) -> Mapping[str, Any]:
    """Return the options of a ``redis://``, ``rediss://`` or ``unix://`` URL, as redis-py has them.

    Raises:
        StateError: it is no such URL, or has an option the guard does not know; an option that
            is dropped in silence could be the one that demands a certificate.
    """
    if (socket := _PLAIN_SOCKET.fullmatch(url)) is not None:
        return {"path": socket[1]}
    # Seven megabytes, for URLs that say more; redis-py does not annotate it.
    from redis.connection import parse_url

    try:
        options = cast("Callable[[str], Mapping[str, Any]]", parse_url)(url)
    except ValueError as error:
        raise StateError(
            "the redis url must look like redis://, rediss:// or unix:// and parse as one"
        ) from error
    if url.startswith("unix://") and not options.get("path"):
        raise StateError("the redis url names no socket; write unix:///path/to/redis.sock")
    secure = url.lower().startswith("rediss://")
    unknown = set(options) - _PLAIN_OPTIONS - (_TLS_OPTIONS if secure else frozenset())
    if unknown:
        raise StateError(f"the redis url has the unknown option `{min(unknown)}`; remove it")
    return options


def parse_endpoint(url: str) -> Endpoint:
    """Return the endpoint of a ``redis://``, ``rediss://`` or ``unix://`` URL.

    Raises:
        StateError: as :func:`parse_url_options`, or a certificate file cannot be used.
    """
    options = parse_url_options(url)
    secure = url.lower().startswith("rediss://")
    return Endpoint(
        path=options.get("path", ""),
        host=options.get("host", "localhost"),
        port=int(options.get("port", 6379)),
        db=int(options.get("db", 0)),
        username=options.get("username") or "",
        password=options.get("password") or "",
        tls=_tls_context(options) if secure else None,
    )


def _tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context that checks certificate and name unless the URL says otherwise."""
    try:
        context = ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path")
        )
        if options.get("ssl_certfile"):
            context.load_cert_chain(
                options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password")
            )
    except OSError as error:
        raise StateError("the certificate files named in the redis url cannot be used") from error
    requirement = options.get("ssl_cert_reqs", "required")
    if requirement not in {"required", "none"}:
        raise StateError(f"ssl_cert_reqs `{requirement}` must be `required` or `none`")
    check = str(options.get("ssl_check_hostname", True)).lower()
    if requirement == "none" or check in {"false", "no", "0"}:
        context.check_hostname = False
    if requirement == "none":
        context.verify_mode = ssl.CERT_NONE
    return context


Reply: TypeAlias = object
"""Reply of Redis: bytes, int, None or a list of these; shapes are checked by the caller."""
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
        self.replicas = 0
        """Replicas that must have what was written before it is answered, from now on."""
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._timeout = timeout
        self._lost = lost
        self._buffer = bytearray(_BUFFER)
        # asyncio puts a second TLS record into a slice, which of a bytearray would be a copy.
        self._view = memoryview(self._buffer)
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._transport: asyncio.WriteTransport | None = None
        self._queued: list[tuple[bytes, asyncio.Future[Reply]]] = []
        self._sent: deque[tuple[asyncio.Future[Reply] | None, float]] = deque()
        """None stands for the WAIT behind the commands of one write."""
        self._unconfirmed: list[tuple[asyncio.Future[Reply], Reply]] = []
        """Answers of Redis whose WAIT has not been answered."""
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, packed: bytes, *, waits: bool = False) -> asyncio.Future[Reply]:
        """Send a packed command; the future is its reply.

        It leaves at once where nothing else is under way, else with all others of this tick.

        Args:
            packed: the command.
            waits: whether others of this tick are expected, and to be sent with it.
        """
        if not self.usable or len(self._sent) + len(self._queued) >= IN_FLIGHT_LIMIT:
            raise StateError("the redis connection is gone or has too many commands in flight")
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
        waiting = [future for future, _ in self._sent if future is not None]
        waiting += [future for _, future in self._queued]
        waiting += [future for future, _ in self._unconfirmed]
        self._sent.clear()
        self._queued.clear()
        self._unconfirmed.clear()
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

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """Return where to put what Redis answers.

        The other kind of protocol gets an object of 256 KiB per reply, which costs as much as
        reading it does.
        """
        return self._view

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
                if future is None:
                    self._confirm(reply)
                elif self.replicas:
                    self._unconfirmed.append((future, reply))
                elif not future.done():
                    future.set_result(reply)
        except hiredis.HiredisError:
            self.drop("redis answered bytes that are not a reply")

    def _confirm(self, replicas: Reply) -> None:
        """Hand out what one write was answered if enough replicas have it, else fail it all."""
        enough = isinstance(replicas, int) and replicas >= self.replicas
        for future, reply in self._unconfirmed:
            if future.done():
                continue
            if enough:
                future.set_result(reply)
            else:
                msg = f"redis has the write, and fewer than {self.replicas} replicas do"
                future.set_exception(StateError(msg))
        self._unconfirmed.clear()

    def _flush(self) -> None:
        if not self._queued or self._transport is None:
            return
        # The deadline counts from the write: a tick that some other task kept busy must not be
        # charged to Redis.  asyncio delivers received bytes before due timers for the same reason.
        deadline = self._loop.time() + self._timeout
        data: list[bytes] = []
        for packed, future in self._queued:
            data.append(packed)
            self._sent.append((future, deadline))
        if self.replicas:
            # One for all commands of the write: it answers for everything sent before it.
            data.append(pack(("WAIT", self.replicas, int(self._timeout * _WAIT_SHARE * 1000))))
            self._sent.append((None, deadline))
        self._transport.write(b"".join(data))
        self.writes += 1
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


Argument: TypeAlias = str | bytes | int

SCAN_COUNT: Final = 256
"""Keys that one step of a scan looks at."""
TIMEOUT: Final = 0.25
"""Seconds a reply may take before the connection is given up."""
BACKOFF_FIRST: Final = 0.05
BACKOFF_LAST: Final = 1.0
"""Seconds in which calls fail at once after a failed connect; doubles from first to last."""
# The stub of hiredis allows tuples of one item only.
pack: Final = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)
_ASKING: Final = pack(("ASKING",))


class CommandRefusedError(StateError):
    """Redis answered a command with an error.

    Attributes:
        code: the first word of the error, such as ``NOSCRIPT`` or ``NOPERM``.
        text: the whole of it.
    """

    def __init__(self, text: str) -> None:
        self.code = text.partition(" ")[0]
        self.text = text
        super().__init__(f"redis refused a command: `{text[:200]}`")


class RedisClient:
    """Commands to one Redis server over one connection that reopens itself.

    Belongs to the event loop it is first used in.  No call sleeps: while a failed connect is too
    recent, calls fail at once.

    Args:
        endpoint: the server.
        timeout: seconds for one reply, and for opening a connection.
        backoff: seconds after a failed connect in which no other is tried, first and longest.
        durability: what a write must have reached before its reply counts.
    """

    ends_with_object: ClassVar[bool] = False
    """True if the store is lost with the client."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout: float = TIMEOUT,
        backoff: tuple[float, float] = (BACKOFF_FIRST, BACKOFF_LAST),
        durability: Durability = Durability.RELAXED,
    ) -> None:
        self.endpoint = endpoint
        self.durability = durability
        self._timeout = timeout
        self._backoff_first, self._backoff_last = backoff
        self._backoff = self._backoff_first
        self._retry_at = 0.0
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._connections = 0
        self._past_writes = 0
        self._closed = False
        self._together = 0

    @property
    def opened(self) -> int:
        """Connections opened so far; behind a new one may be another server, or an empty one."""
        return self._connections

    def record_tag(self, tenant_tag: str) -> str:  # noqa: ARG002  (a Cluster has one per tenant)
        """Return the hash tag of the tenant's identity record; empty where one is for all."""
        return ""

    async def servers(self) -> list[RedisClient]:
        """Return a client of each server that holds state: itself."""
        return [self]

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

    def execute(self, *command: Argument) -> Coroutine[Any, Any, Reply]:
        """Send one command and return its reply.

        Raises:
            CommandRefusedError: Redis answered with an error.
            StateError: there was no reply in time, or no connection.
        """
        return self.ask(pack(command))

    async def rows(self, *command: Argument) -> list[Any]:
        """Send one command that is answered with a list.

        Raises:
            StateError: as :meth:`execute`, or it is answered with something else.
        """
        reply = await self.execute(*command)
        if not isinstance(reply, list):
            raise StateError(f"redis answered {command[0]!r} with no list")
        return reply

    async def fields(self, key: Argument) -> dict[bytes, bytes]:
        """Return the fields of a hash.

        Raises:
            StateError: as :meth:`rows`.
        """
        found = await self.rows("HGETALL", key)
        return dict(zip(found[::2], found[1::2], strict=True))

    def run(self, script: Script, *arguments: Argument) -> Coroutine[Any, Any, Reply]:
        """Run a script by its digest; a server that does not know it is taught once.

        Args:
            script: which.
            arguments: what follows the digest in EVALSHA: number of keys, keys, arguments.

        Raises:
            StateError: as :meth:`execute`.
        """
        return self.ask(pack(("EVALSHA", script.sha, *arguments)), script)

    async def ask(
        self, command: bytes, script: Script | None = None, *, asking: bool = False
    ) -> Reply:
        """Send a packed command; what :meth:`execute` and :meth:`run` have in common.

        Args:
            command: the command.
            script: what it runs, sent along where the server does not know it.
            asking: whether a slot is asked for that this server is about to get (Cluster's ASK).

        Raises:
            StateError: as :meth:`execute`.
        """
        link = self._link or await self._connected()
        if asking:
            reply = await self._last(link, _ASKING, command)
        else:
            reply = await link.submit(command, waits=self._together > 0)
        if not isinstance(reply, hiredis.ReplyError):
            return reply
        if script is not None and _code(reply) == "NOSCRIPT":
            # Redis did not run it, so sending it again counts the call once.
            link = self._link or await self._connected()
            before = (_ASKING,) if asking else ()
            reply = await self._last(link, pack(("SCRIPT", "LOAD", script.text)), *before, command)
        if _code(reply) in _NOT_PRIMARY:
            # A failover has made it a replica; the next connection may lead to its successor.
            link.drop("redis is a replica now")
        return _checked(reply)

    async def _last(self, link: Link, *commands: bytes) -> Reply:
        """Send commands in one write; return the last one's reply if those before succeeded."""
        *before, reply = await asyncio.gather(
            *(link.submit(command, waits=True) for command in commands)
        )
        for one in before:
            _checked(one)
        return reply

    async def scan(self, prefix: str, then: str = "") -> AsyncIterator[list[bytes]]:
        """Yield the keys that begin with a prefix, a page at a time and in no order.

        For operators' tools and cleaning up: no call is judged by it.

        Args:
            prefix: how they begin.
            then: what they have somewhere behind it.

        Raises:
            StateError: as :meth:`execute`, or the answer is not a page of keys.
        """
        pattern = "*".join((_literal(prefix), *([_literal(then)] if then else []), ""))
        cursor: bytes = b"0"
        while True:
            match await self.execute("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT):
                case [bytes() as cursor, list() as keys]:
                    yield keys
                case _:
                    raise StateError("redis answered a SCAN with something else")
            if cursor == b"0":
                return

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
            raise StateError("the redis client was closed")
        if self._opening is None:
            loop = asyncio.get_running_loop()
            if loop.time() < self._retry_at:
                raise StateError(f"redis at `{self.endpoint}` could not be reached a moment ago")
            self._opening = loop.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise StateError("the redis client was closed") from None
            raise

    async def _open(self) -> Link:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._handshake()
        except (OSError, TimeoutError, UnicodeError) as error:
            raise StateError(
                f"redis at `{self.endpoint}` cannot be reached ({type(error).__name__})"
            ) from error

    async def _handshake(self) -> Link:
        self._connections += 1
        link = await self.endpoint.connect(lambda: Link(self._timeout, self._forget))
        try:
            commands = self.endpoint.handshake
            pending = [link.submit(pack(command)) for command in commands]
            replies = await asyncio.gather(*pending)
            for reply in replies[:-1]:
                if _checked(reply) != b"OK":
                    raise StateError("redis answered the handshake with something else than OK")
            if not self.endpoint.accepts(replies[-1]):
                raise StateError("redis answered the handshake with something else than is wanted")
            link.replicas = self.durability.replicas
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


def _literal(text: str) -> str:
    return "".join(f"\\{c}" if c in "*?[]\\" else c for c in text)


def _code(reply: Reply) -> str:
    """Return the first word of an error, and nothing for any other reply.

    A server before 7.0 puts the error that a script met behind its own words.
    """
    if not isinstance(reply, hiredis.ReplyError):
        return ""
    text = str(reply)
    return "READONLY" if ": -READONLY " in text else text.partition(" ")[0]


def _checked(reply: Any) -> Reply:
    if isinstance(reply, hiredis.ReplyError):
        raise CommandRefusedError(str(reply))
    return reply
