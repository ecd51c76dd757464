"""The lean PEP: reverse listeners over HTTP/1.1, each request judged before a byte of it goes on.

A request is read whole, judged by :mod:`guard.pipeline`, and written anew for the upstream from
what was read; so is its answer.  Nothing is relayed as it came.  Whatever fails here ends in a
refusal, and the upstream has been sent nothing: its connection is opened after the verdict.

One upstream connection belongs to one client connection: what an upstream says out of turn can be
an answer to nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from dataclasses import replace
from functools import lru_cache, partial
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import certifi

from guard.core.errors import GuardError, MessageError
from guard.core.metrics import ERRORS, SLOW_CLIENTS, UPSTREAM_SECONDS, Metrics
from guard.pep.lean.connections import (
    TOO_SOON,
    ClientConnection,
    UpstreamConnection,
    UpstreamLostError,
    connected,
    no_room,
)
from guard.pep.lean.event_stream import ANSWER_FRAMED, EventStream, connection_fields
from guard.pep.lean.messages import (
    SWITCHING,
    AnswerReader,
    RequestRead,
    chunk_bytes,
    head_bytes,
    oversize,
    without,
)
from guard.pep.lean.upstream_requests import (
    Inbound,
    Outbound,
    UpstreamRequest,
    UpstreamRequests,
    client_request,
)
from guard.pep.message_budget import MessageBudget
from guard.pep.routes import Routes
from guard.pipeline.exchange import Exchange, UnparsedExchange
from guard.pipeline.holding import HeldRequest, in_events
from guard.pipeline.websocket_messages import check_switch
from guard.processes.listening_ports import BACKLOG
from guard.protocols.framing.content_coding import decode_content
from guard.protocols.http.message import ACCEPTED, HttpReply, HttpRequest
from guard.protocols.refusals import unanswered
from guard.settings import UNIX, Listener

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from guard.pipeline.handlers import Enforcement
    from guard.pipeline.response import ResponseHandler

PROXY_AUTHENTICATION: Final = 407
CHALLENGE: Final = b"www-authenticate"
IDLE_SECONDS: Final = 600.0
"""Seconds that a client may be silent: between requests, and within one."""
SWEEP_SECONDS: Final = 15.0
IDLE_AT_LIMIT_SECONDS: Final = 5.0
"""Seconds that a connection may be idle while another one needs its slot."""
OLDEST: Final = 64
"""Connections that are looked at for one that is idle."""
FAREWELL_SECONDS: Final = 0.25
"""Seconds that a connection without a request is kept once the process is to end: the answer to a
request that is on its way tells the client that it was the last one."""
DRAIN_SECONDS: Final = 0.02
"""Seconds between checks for calls that must end before the process does."""
_HEADS: Final = 64
"""Heads of the guard's own answers that are remembered."""
_BODILESS: Final = frozenset({204, 304})


class LeanPep:
    """Serves reverse listeners.

    Args:
        enforcement: judges requests and observes answers.
        metrics: counts failures outside it.
        listeners: all of them.
        inbound: the side of the clients.
        outbound: the side of the upstreams.
    """

    def __init__(
        self,
        enforcement: Enforcement,
        metrics: Metrics,
        listeners: Sequence[Listener],
        inbound: Inbound = Inbound(),  # noqa: B008  (immutable)
        outbound: Outbound = Outbound(),  # noqa: B008  (immutable)
    ) -> None:
        self._connections = inbound.connections
        self._sockets = inbound.sockets or {}
        self._front = inbound.front
        self.tls = inbound.tls
        self._listen = inbound.listen
        self._egress = outbound.egress
        enforcement.streams.append(self._send_into)
        self.budget = MessageBudget(inbound.held_limit)
        self.body_limit = enforcement.body_limit
        self.patience = enforcement.admission.limits.patience
        self._enforcement = enforcement
        self._metrics = metrics
        self._listeners = listeners
        self._routes = Routes(listeners)
        self._credentials = outbound.credentials or {}
        trust = str(outbound.trust or certifi.where())
        self._upstream_requests = UpstreamRequests(
            enforcement.sockets, self._credentials, trust, egress=bool(outbound.egress)
        )
        self._servers: list[asyncio.Server] = []
        self._clients: dict[ClientConnection, None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_draining = False
        self._streams: dict[tuple[str, str, str], ClientConnection] = {}
        """Open event streams in which clients read their answers: listener, principal, session."""

    # --- its life ------------------------------------------------------------------------------

    async def open(self) -> list[str]:
        """Listen, and return the addresses.

        Raises:
            GuardError: a listener could not be opened.
        """
        loop = asyncio.get_running_loop()
        at: dict[str, list[Listener]] = {place: list(self._listeners) for place in self._listen}
        for one in self._listeners:
            if not one.name:
                at.setdefault(f"{one.host}:{one.port}", []).append(one)
        for place, servers in at.items():
            factory = partial(ClientConnection, self, tuple(servers))
            if given := self._sockets.get(place):
                self._servers += [
                    await loop.create_server(factory, sock=one, backlog=BACKLOG) for one in given
                ]
                continue
            host, _, port = place.rpartition(":")
            try:
                opened = await loop.create_server(factory, host.strip("[]"), int(port))
            except OSError as error:
                raise GuardError(f"a listener cannot be opened: {error}") from error
            self._servers.append(opened)
        self.start(self._sweep())
        self.start(self._enforcement.refused_connections.run())
        names = (s.getsockname() for server in self._servers for s in server.sockets)
        return [f"{UNIX}{one}" if isinstance(one, str) else f"{one[0]}:{one[1]}" for one in names]

    async def ended(self) -> None:
        """Wait for ever: no part of it can fail as a whole."""
        await asyncio.get_running_loop().create_future()

    async def drain(self, seconds: float) -> None:
        """Stop listening, give requests on their way a moment, and calls in flight their time.

        A connection without a request is closed after that moment, whether or not it ever had one.
        """
        self._is_draining = True
        for server in self._servers:
            server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if self._clients:
                    await asyncio.sleep(FAREWELL_SECONDS)
                for client in list(self._clients):
                    if client.is_quiet:
                        client.transport.close()
                while not all(one.is_quiet for one in self._clients):  # noqa: ASYNC110  (many connections)
                    await asyncio.sleep(DRAIN_SECONDS)

    @property
    def held(self) -> int:
        """Bytes of unfinished messages and of answers that clients have yet to read."""
        return self.budget.total

    async def close(self) -> None:
        """End every connection and task."""
        for server in self._servers:
            server.close()
        for client in list(self._clients):
            client.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._enforcement.refused_connections.write()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task that lives no longer than the PEP."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # Whoever failed has broken its connection off already.
            self._metrics.count(ERRORS, "hook")

    def admits(self, client: ClientConnection) -> bool:
        """Note an open connection; return False where there is no room for it.

        Where there are too many, an old one on which nothing goes on has to go.
        """
        if self._connections and len(self._clients) >= self._connections:
            before = client.heard - IDLE_AT_LIMIT_SECONDS
            oldest = islice(self._clients, OLDEST)
            idle = next((one for one in oldest if one.is_idle and one.heard < before), None)
            if idle is None:
                self._enforcement.refused_connections.add("{}:{}".format(*client.sockname))
                return False
            del self._clients[idle]
            idle.abort()
        self._clients[client] = None
        return True

    def closed(self, client: ClientConnection) -> None:
        """Note one that has ended."""
        self._clients.pop(client, None)

    def handshake_failed(self, error: BaseException | None) -> None:
        """Record a TLS handshake that failed."""
        if isinstance(error, ssl.SSLCertVerificationError):
            message = "the certificate of the client does not come from a known authority"
            self._enforcement.requests.refuse(MessageError("bad_credential", message, status=407))
        else:
            self._metrics.count(ERRORS, "tls")

    def count_slow(self, why: str) -> None:
        """Count a connection that is closed because its client does not read."""
        self._metrics.count(SLOW_CLIENTS, why)

    async def _sweep(self) -> None:
        """Close connections again and again: see :meth:`sweep`."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep(asyncio.get_running_loop().time())

    def sweep(self, now: float) -> None:
        """Close connections whose client is silent and waits for nothing, or does not read.

        So is the connection to an upstream that does not read its request.
        """
        for client in list(self._clients):
            client.hold_output()
            if client.is_idle and client.heard < now - IDLE_SECONDS:
                client.abort()
            elif client.stalls(now):
                client.close_slow("stalled")
            elif client.upstream is not None and client.upstream.stalls(now):
                client.upstream.close()

    # --- a request -----------------------------------------------------------------------------

    async def refuse(self, client: ClientConnection, error: MessageError) -> None:
        """Answer what could not be read as a request."""
        client.answering = False
        reply = self._enforcement.requests.refuse(error, None)
        await self._reply(client, reply, None)

    async def serve(self, client: ClientConnection, request: RequestRead) -> bool:
        """Judge a request, forward it where it may go, and answer it.

        Returns:
            whether the connection may carry another one.
        """
        client.answering = client.opened = False
        server, message, front = client.servers[0], None, None
        received = asyncio.get_running_loop().time()
        try:
            if self._front is not None:
                server, request, front = self._front.admit(request)
            else:
                server, request = self._routed(server, request)
            message = client_request(client, server, request, front)
            if request.is_oversize:
                raise oversize()
            message = self._admitted(message, request)
            outcome = await self._enforcement.requests.on_holdable_request(message)
            if isinstance(outcome, HeldRequest):
                outcome = await self._held(client, server, request, outcome)
            if isinstance(outcome, HttpReply):
                waited = asyncio.get_running_loop().time() - received
                # Behind a front the connection is of many clients.
                if self._front is None and waited < TOO_SOON * self.patience:
                    client.rests = outcome.retry_after
                return await self._reply(client, self._in_stream_or_reply(outcome), request)
            asked = self._upstream_requests.build(server, request, message, outcome)
        except MessageError as error:
            if message is None and self._front is None:
                message = client_request(client, server, request)
            reply = self._enforcement.requests.refuse(error, message)
            return await self._reply(client, self._in_stream_or_reply(reply), request)
        except UpstreamLostError:
            raise
        except Exception:  # noqa: BLE001  (a request that was not judged must not be sent)
            return await self._fail(client, request, message)
        return await self._forward(client, request, asked)

    async def _held(
        self, client: ClientConnection, server: Listener, request: RequestRead, held: HeldRequest
    ) -> Exchange | UnparsedExchange | HttpReply:
        """Keep a client waiting while its request is held open; return what became of that."""
        if held.asked.reply.stream is not None:
            if self._stream_for(held.asked.reply) is None:
                held.close()
                return held.asked.reply
            self.start(self._later(server, request, held))
            return ACCEPTED
        client.streams = held.signs
        try:
            while (signs := await held.waiting()) is not None:
                if held.signs:
                    await self._open_stream(client, request)
                    await client.write(client.framed(in_events(signs)))
            return held.outcome()
        finally:
            held.close()
            client.streams = False

    async def _open_stream(self, client: ClientConnection, request: RequestRead) -> None:
        """Begin to answer with a stream of events, unless that has begun."""
        if client.opened:
            return
        client.opened = client.answering = True
        client.chunked = request.is_http11
        fields = [(b"Content-Type", b"text/event-stream"), (b"Cache-Control", b"no-store")]
        if request.is_http11:
            fields.append((b"Transfer-Encoding", b"chunked"))
        fields += connection_fields(request, None, keeps=request.is_http11 and request.keeps_alive)
        await client.write(head_bytes("HTTP/1.1 200 OK", fields))

    async def _later(self, server: Listener, request: RequestRead, held: HeldRequest) -> None:
        """Hold a request whose client reads its answer in another stream, and was told 202."""
        reply, message = held.asked.reply, held.asked.request
        try:
            while (signs := await held.waiting()) is not None:
                stream = self._stream_for(reply)
                if stream is None:
                    return
                if not stream.push(stream.framed(in_events(signs))):
                    return
            outcome = held.outcome()
            if isinstance(outcome, HttpReply):
                self._in_stream_or_reply(outcome)
                return
            asked = self._upstream_requests.build(server, request, message, outcome)
            try:
                upstream = await connected(asked.place, asked.tls, self._egress)
                try:
                    answer = await upstream.ask(request.method, asked.data)
                    body = await self._whole(asked, upstream, answer)
                finally:
                    upstream.close()
                    self.budget.release(id(asked))
                if isinstance(outcome, Exchange):
                    await self._responses.on_answer(outcome, body, answer.status)
            except (OSError, TimeoutError, UpstreamLostError):
                self._metrics.count(ERRORS, "upstream")
                failure = unanswered("the tool server did not answer")
            except MessageError as error:
                failure = error
            else:
                return
            refusal = self._responses.refuse(failure, outcome, message)
            self._in_stream_or_reply(replace(refusal, stream=reply.stream))
            await self._lost(outcome)
        finally:
            held.close()

    def _stream_for(self, reply: HttpReply) -> ClientConnection | None:
        """Return the open stream in which a client reads a reply, None where there is none."""
        stream = self._streams.get(reply.stream) if reply.stream is not None else None
        return None if stream is None or stream.is_lost else stream

    def _routed(self, server: Listener, request: RequestRead) -> tuple[Listener, RequestRead]:
        """Return the server that a request goes to, and the request with a target of its own.

        Raises:
            MessageError: the listener has several servers, and this is the path of none.
        """
        found = self._routes.find(server.port, request.target)
        return (server, request) if found is None else (found[0], replace(request, target=found[1]))

    def _admitted(self, message: HttpRequest, request: RequestRead) -> HttpRequest:
        """Return the request as it is to be judged (hop 1).

        Raises:
            MessageError: it cannot be judged, or must not be made.
        """
        if request.opens_socket and not self._enforcement.sockets.accepts:
            raise MessageError("upgrade", "protocol upgrades are not accepted", status=403)
        encoding = message.header("content-encoding")
        if encoding is not None:
            body = decode_content(request.body, encoding, limit=self.body_limit)
            message = replace(message, body=body)
        credential = self._credentials.get(message.server)
        if credential is not None and credential.is_used_by(
            (value for _, value in message.headers), message.target
        ):
            # The agent's side must not hold it; whoever has it has found a way around the guard.
            raise MessageError("write_credential", "this credential is the guard's", status=403)
        return message

    # --- its answer ----------------------------------------------------------------------------

    async def _forward(
        self, client: ClientConnection, request: RequestRead, asked: UpstreamRequest
    ) -> bool:
        """Send a judged request and answer with what comes back, once that has been judged."""
        upstream: UpstreamConnection | None = None
        exchange = asked.exchange
        is_settled = False
        principal = _principal(asked)
        self._enforcement.admission.sent(principal)
        client.principal = principal
        try:
            try:
                upstream = await client.upstream_to(
                    asked.place, asked.tls, fresh=asked.fresh, via=self._egress
                )
                started = time.perf_counter()
                answer = await upstream.ask(request.method, asked.data)
                self._metrics.observe(UPSTREAM_SECONDS, time.perf_counter() - started)
                reply = await self._answered(client, request, asked, upstream, answer)
            except (OSError, TimeoutError, UpstreamLostError) as error:
                if client.is_lost:
                    raise UpstreamLostError("the client is gone") from error
                self._metrics.count(ERRORS, "upstream")
                failure = unanswered("the tool server did not answer")
                reply = self._responses.refuse(failure, exchange, asked.message)
                await self._lost(exchange, is_unsent=upstream is None)
            except MessageError as error:
                await self._lost(exchange)
                reply = self._responses.refuse(error, exchange, asked.message)
            is_settled = True
            if isinstance(reply, bool):
                return reply
            return await self._reply(client, self._in_stream_or_reply(reply), request)
        except UpstreamLostError:
            raise
        except Exception:  # noqa: BLE001  (what was not judged must not be released)
            return await self._fail(client, request, asked.message)
        finally:
            if not is_settled:
                # The client has left, or the guard failed: nobody knows what became of the call.
                self.start(self._lost(exchange))
            if upstream is not None and not (upstream.is_free and upstream is client.upstream):
                upstream.close()
            self.budget.release(id(asked))
            self._enforcement.admission.answered(principal)

    @property
    def _responses(self) -> ResponseHandler:
        return self._enforcement.responses

    async def _lost(
        self, exchange: Exchange | UnparsedExchange, *, is_unsent: bool = False
    ) -> None:
        if isinstance(exchange, Exchange):
            await self._responses.on_lost(exchange, is_unsent=is_unsent)

    async def _answered(
        self,
        client: ClientConnection,
        request: RequestRead,
        asked: UpstreamRequest,
        upstream: UpstreamConnection,
        answer: AnswerReader,
    ) -> bool | HttpReply:
        """Release an answer as it is judged.

        Returns:
            True if the client's connection may carry another request, or the reply to send instead.

        Raises:
            MessageError: the answer cannot be read one way only; nothing of it was released.
            OSError, UpstreamLostError: likewise, it did not come.
        """
        exchange = asked.exchange
        if isinstance(exchange, Exchange):
            await self._responses.on_head(exchange, answer.all)
        if answer.status == SWITCHING:
            check_switch(answer.all, opens_socket=asked.socket is not None)
            return await self._relay(client, asked, upstream, answer)
        kind = ", ".join(answer.all("content-type")).split(";", 1)[0].strip().lower()
        if kind == "text/event-stream" and request.method != "HEAD":
            reader = None
            if isinstance(exchange, Exchange):
                encoding = ", ".join(answer.all("content-encoding"))
                reader = self._responses.event_reader(exchange, encoding)
            stream = EventStream(client, request, asked, upstream, answer, reader)
            return await self._stream(stream)
        body = await self._whole(asked, upstream, answer)
        fields = self._challenged(asked.message, without(answer.fields, ANSWER_FRAMED.__contains__))
        if isinstance(exchange, Exchange):
            instead = await self._responses.on_answer(
                exchange, self._decoded(exchange, answer, body), answer.status
            )
            if instead is not None:
                body = instead
                dropped = {b"content-type", b"content-encoding"}
                fields = [(n, v) for n, v in fields if n.lower() not in dropped]
                fields.append((b"Content-Type", b"application/json"))
        upstream.release(answer)
        if client.opened:
            message = self._responses.in_events(exchange, asked.message, body, answer.status)
            return await self._reply(client, message, request)
        if request.method == "HEAD":
            fields += [pair for pair in answer.fields if pair[0].lower() == b"content-length"]
        elif answer.status not in _BODILESS:
            fields.append((b"Content-Length", str(len(body)).encode()))
        # From here on it counts as what waits for the client.
        self.budget.release(id(asked))
        return await self._send(client, request, answer, fields, body)

    async def _whole(
        self, asked: UpstreamRequest, upstream: UpstreamConnection, answer: AnswerReader
    ) -> bytes:
        """Return the body of an answer.

        Raises:
            UpstreamLostError: it does not come, or there is no end of it.
            MessageError: there is no room for it.
        """
        body = bytearray()
        while piece := await upstream.take(answer):
            body += piece
            if len(body) > self.body_limit:
                raise UpstreamLostError("the answer is larger than the guard's `--body-limit`")
            if not self.budget.hold(id(asked), len(body), _principal(asked)):
                raise no_room()
        return bytes(body)

    def _challenged(
        self, message: HttpRequest, fields: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        """Let a challenge lead the client to the listener's own login."""
        login = self._enforcement.login
        if login is None or not any(name.lower() == CHALLENGE for name, _ in fields):
            return fields
        return [
            (name, login.challenge(message, value.decode("latin-1")).encode("latin-1"))
            if name.lower() == CHALLENGE
            else (name, value)
            for name, value in fields
        ]

    def _decoded(self, exchange: Exchange, answer: AnswerReader, body: bytes) -> bytes:
        """Return a body without its content coding.

        Raises:
            MessageError: it cannot be decoded: its reader might, and nothing in it has a label.
        """
        try:
            encoding = ", ".join(answer.all("content-encoding"))
            return decode_content(body, encoding, limit=self.body_limit)
        except MessageError:
            if exchange.reader is not None or not self._responses.passes:
                raise
            # The call is executed all the same; what it answered has simply not been read.
            self._metrics.count(ERRORS, "parse")
            return b""

    async def _stream(self, stream: EventStream) -> bool:
        """Let a stream of events through, each once it has been judged."""
        client, exchange = stream.client, stream.asked.exchange
        client.streams = True
        try:
            await stream.begin()
            while True:
                chunk = await stream.upstream.take(stream.answer)
                if not await self._released(stream, chunk):
                    await self._lost(exchange)
                    client.abort()
                    return False
                if not chunk:
                    stream.upstream.release(stream.answer)
                    return await stream.end()
                if isinstance(exchange, Exchange) and exchange.answers_for:
                    self._streams[_stream_of(exchange)] = client
        except (OSError, UpstreamLostError):
            if client.is_lost:
                raise
            return await self._cut_off(stream)
        finally:
            client.streams = False
            if stream.reader is not None:
                stream.reader.close()
            if isinstance(exchange, Exchange) and self._streams.get(_stream_of(exchange)) is client:
                del self._streams[_stream_of(exchange)]

    async def _released(self, stream: EventStream, chunk: bytes) -> bool:
        """Pass on what may be released after a chunk; False where nothing more may be."""
        reader, goes_on = stream.reader, True
        try:
            if reader is None:
                released = [chunk]
            else:
                released = await (reader.feed(chunk) if chunk else reader.end())
                while reader.waits:
                    await stream.write(b"".join(released))
                    released = await reader.go_on()
                if not self.budget.hold(id(stream.asked), reader.held, stream.client.principal):
                    raise no_room()
        except MessageError as error:
            goes_on = False
            released = reader.refuse(error) if reader is not None else []
        except UpstreamLostError:  # Its client has left while a call was held.
            raise
        except Exception:  # noqa: BLE001  (what was not judged must not be released)
            self._metrics.count(ERRORS, "hook")
            return False
        for data in released:
            await stream.write(data)
        return goes_on

    async def _cut_off(self, stream: EventStream) -> bool:
        """Say in a stream whose upstream is gone why it ends, to whoever waits for an answer."""
        self._metrics.count(ERRORS, "upstream")
        exchange = stream.asked.exchange
        events: list[bytes] = []
        if isinstance(exchange, Exchange):
            error = unanswered("the tool server did not answer")
            events = self._responses.end_open(error, exchange)
        await self._lost(exchange)
        if not events:
            stream.client.abort()
            return False
        await stream.write(in_events(events))
        await stream.end()
        return False

    async def _relay(
        self,
        client: ClientConnection,
        asked: UpstreamRequest,
        upstream: UpstreamConnection,
        answer: AnswerReader,
    ) -> bool:
        """Relay a WebSocket, message by message."""
        from guard.pep.lean.websocket import Relay  # Its library is slow to import.

        if asked.socket is None:
            raise MessageError("upgrade", "the upstream switches to a protocol nobody asked for")
        await self._responses.on_answer(asked.socket.exchange, b"", SWITCHING)
        client.streams = True
        upstream.switch(answer)
        client.switch()
        dropped = ANSWER_FRAMED | {b"sec-websocket-extensions"}
        fields = without(answer.fields, dropped.__contains__)
        fields += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        client.answering = True
        await client.write(head_bytes("HTTP/1.1 101 Switching Protocols", fields))
        relay = Relay(client, upstream, asked.socket, self._enforcement.sockets, self.budget)
        try:
            await relay.run(self.body_limit)
        except Exception:  # noqa: BLE001  (what was not judged must not be released)
            self._metrics.count(ERRORS, "hook")
            client.abort()
        return False

    # --- answering -----------------------------------------------------------------------------

    async def _send(
        self,
        client: ClientConnection,
        request: RequestRead,
        answer: AnswerReader,
        fields: list[tuple[bytes, bytes]],
        body: bytes,
    ) -> bool:
        keeps = request.keeps_alive and not self._is_draining
        fields += connection_fields(request, answer, keeps=keeps)
        reason = answer.reason.decode("latin-1")
        head = head_bytes(f"HTTP/1.1 {answer.status} {reason}", fields)
        client.answering = True
        await client.write(head if request.method == "HEAD" else head + body)
        return keeps

    async def _reply(
        self, client: ClientConnection, reply: HttpReply, request: RequestRead | None
    ) -> bool:
        """Answer with words of the guard's own; return whether the connection lives on."""
        if client.opened and request is not None:
            client.opened = False
            await client.write(client.framed(in_events([reply.body])))
            if request.is_http11:
                await client.write(chunk_bytes(b""))
            return request.is_http11 and request.keeps_alive
        if client.answering:
            # Behind the head of another answer these words would be taken for its body.
            client.abort()
            return False
        client.answering = True
        keeps = request is not None and request.keeps_alive and not request.opens_socket
        keeps = keeps and not self._is_draining
        begin = _own_head(reply.status, reply.content_type, reply.headers)
        fields = [(b"content-length", b"%d" % len(reply.body))]
        fields += connection_fields(request, None, keeps=keeps)
        body = b"" if request is not None and request.method == "HEAD" else reply.body
        await client.write(head_bytes(begin, fields) + body)
        return keeps

    async def _fail(
        self, client: ClientConnection, request: RequestRead, message: HttpRequest | None
    ) -> bool:
        """Refuse what the guard failed on."""
        self._metrics.count(ERRORS, "hook")
        error = MessageError("guard_error", "the guard failed on this message", status=503)
        try:
            reply = self._enforcement.requests.refuse(error, message)
        except Exception:  # noqa: BLE001  (what failed may be the message itself)
            reply = self._enforcement.requests.refuse(error)
        await self._reply(client, self._in_stream_or_reply(reply), request)
        return False

    def _in_stream_or_reply(self, reply: HttpReply) -> HttpReply:
        return self._enforcement.in_stream_or_reply(reply, self._send_into)

    def _send_into(self, stream: tuple[str, str, str], message: bytes) -> bool:
        """Send a message into an event stream; return whether it is open here."""
        client = self._streams.get(stream)
        if client is None or client.is_lost:
            return False
        return client.push(client.framed(in_events([message])))


@lru_cache(maxsize=_HEADS)
def _own_head(status: int, content_type: str, headers: tuple[tuple[str, str], ...]) -> str:
    """Return the head of an answer of the guard's own, as far as it does not differ by its body."""
    fields = {"content-type": content_type, "cache-control": "no-store"}
    if status == PROXY_AUTHENTICATION:
        fields["proxy-authenticate"] = 'Basic realm="egress guard"'
    fields |= dict(headers)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    return "\r\n".join(lines + [f"{name}: {value}" for name, value in fields.items()])


def _principal(asked: UpstreamRequest) -> str:
    """Return who has sent a request."""
    exchange = asked.exchange
    if isinstance(exchange, Exchange):
        return exchange.identity.principal
    return exchange.place.principal


def _stream_of(exchange: Exchange) -> tuple[str, str, str]:
    return exchange.server, exchange.identity.principal, exchange.answers_for
