"""The addon: mitmproxy's hooks to the handlers and back.

mitmproxy logs a hook that raises and lets the flow go on, so every hook here catches everything
and ends in a block.  Raw TCP, UDP and DNS are refused; messages of WebSockets are judged where the
policy maps them; tunnels are :mod:`guard.pep.mitm.forward`'s.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import MessageError, OversizeError
from guard.core.metrics import ERRORS, SLOW_CLIENTS, UPSTREAM_SECONDS, Metrics
from guard.pep.mitm.layers import (
    AWAITED,
    CUT,
    HELD,
    LOST,
    NO_ROOM,
    GuardChunkHook,
    GuardFrameHook,
    GuardHeldHook,
    GuardUnreadableHook,
    JudgedFrame,
)
from guard.pep.mitm.translation import (
    answer,
    answer_later,
    check_framing,
    is_handshake,
    outline,
    prepare_request,
    read_request,
    replace_body,
    response_of,
    rewrite_request,
    stream_head,
    unsize_response,
)
from guard.pipeline.exchange import Exchange, UnparsedExchange
from guard.pipeline.holding import HeldRequest, in_events
from guard.pipeline.websocket_messages import WebSocketSession, check_switch
from guard.protocols.framing.content_coding import decode_content
from guard.protocols.framing.sse import message_event
from guard.protocols.http.message import HttpReply
from guard.protocols.refusals import unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from mitmproxy import dns, http, tcp, udp
    from mitmproxy.connection import Client, Connection

    from guard.credentials.write_credentials import WriteCredential
    from guard.pep.mitm.forward import ForwardAddon
    from guard.pipeline.handlers import Enforcement
    from guard.pipeline.response import EventReader

EXCHANGE: Final = "guard.exchange"
READER: Final = "guard.reader"
REFUSED: Final = "guard.refused"
FORWARDED_AT: Final = "guard.forwarded_at"
SENDER: Final = "guard.sender"
"""Principal of a request that was forwarded and whose answer has not come."""
EVENTS: Final = "text/event-stream"
SWITCHING: Final = 101
FRAME_SECONDS: Final = 0.1
"""Seconds that a WebSocket waits while a message of it is judged that may be held open."""
STREAMS: Final = "guard.streams"
"""In a flow's metadata: its answer has been begun as a stream of events while it was held."""
SOCKET: Final = "guard.socket"
"""Key of the open WebSocket in a flow's metadata."""


class GuardAddon:
    """Stands between mitmproxy and the handlers.

    Args:
        enforcement: judges requests and observes answers.
        metrics: for what fails outside it.
        forward: knows the tunnels of forward listeners.
        credentials: write credentials of memory stores, by listener.
    """

    def __init__(
        self,
        enforcement: Enforcement,
        metrics: Metrics,
        forward: ForwardAddon,
        credentials: Mapping[str, WriteCredential] | None = None,
    ) -> None:
        self._enforcement = enforcement
        self.forward = forward
        self._credentials = credentials or {}
        self._metrics = metrics
        self._in_flight: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._leaving: dict[str, set[Callable[[], object]]] = {}
        """Called when a client leaves for whom something is held open, by its connection."""
        self.inject: Callable[[JudgedFrame], object] = _nobody_listens
        """Tells the layers of a flow something; set by the master."""

    async def idle(self) -> None:
        """Wait until no request is without its complete answer."""
        await self._idle.wait()

    def count_slow(self, why: str) -> None:
        """Count a connection that is closed because its client does not read."""
        self._metrics.count(SLOW_CLIENTS, why)

    # --- HTTP, on the way out -----------------------------------------------------------------

    async def request(self, flow: http.HTTPFlow) -> None:
        """Judge a complete request before mitmproxy connects upstream."""
        try:
            outcome = await self._judge(flow)
        except MessageError as error:
            outcome = self._enforcement.requests.refuse(error, outline(flow))
        except BaseException as error:
            # Also a cancelled task: set the refusal, then let the cancellation go on.
            self._fail(flow, "hook")
            if not isinstance(error, Exception):
                raise
            return
        if isinstance(outcome, HeldRequest):
            self._hold(flow, outcome)
        else:
            self._carry_out(flow, outcome)

    def _carry_out(
        self, flow: http.HTTPFlow, outcome: Exchange | UnparsedExchange | HttpReply
    ) -> None:
        """Answer a request, or have it forwarded."""
        if isinstance(outcome, HttpReply):
            self._answer(flow, outcome)
            return
        try:
            if isinstance(outcome, Exchange) and outcome.rewritten is not None:
                rewrite_request(flow, outcome.rewritten)
            prepare_request(flow)
            if SOCKET in flow.metadata:
                # What is compressed for the upstream would not be what is judged.
                flow.request.headers.pop("sec-websocket-extensions", None)
            self.forward.prepare(flow)
            if isinstance(outcome, Exchange):
                self._add_credential(flow, outcome)
        except Exception:  # noqa: BLE001  (a request that was not cleaned must not be sent)
            self._fail(flow, "hook")
            return
        flow.metadata[EXCHANGE] = outcome
        flow.metadata[FORWARDED_AT] = time.perf_counter()
        flow.metadata[SENDER] = outcome.place.principal
        self._enforcement.admission.sent(outcome.place.principal)
        self._begin(flow)

    def _begin(self, flow: http.HTTPFlow) -> None:
        """Note that a client waits for an answer."""
        if flow.id not in self._in_flight:
            self._in_flight.add(flow.id)
            AWAITED[flow.client_conn.id] += 1
            self._idle.clear()

    # --- held open for a person's answer -------------------------------------------------------

    def _hold(self, flow: http.HTTPFlow, held: HeldRequest) -> None:
        """Hold a request open; the layer asks again and again what became of it.

        One whose client reads its answer in another stream (HTTP+SSE) is not held.
        """
        if held.asked.reply.stream is not None:
            held.close()
            self._carry_out(flow, held.asked.reply)
            return
        flow.metadata[HELD] = held
        self._on_leaving(flow.client_conn, held.close)
        self._begin(flow)

    async def guard_held(self, hook: GuardHeldHook) -> None:
        """Wait for the answer a while; on any error the request is refused."""
        flow = hook.flow
        held: HeldRequest = flow.metadata[HELD]
        try:
            told = await held.waiting()
            if told is not None:
                if held.signs:
                    if STREAMS not in flow.metadata:
                        flow.metadata[STREAMS] = True
                        hook.head = stream_head(flow.request)
                    hook.release = in_events(told)
                return
            outcome = held.outcome()
            if not isinstance(outcome, HttpReply):
                await self._check_name(flow, outcome)
        except MessageError as error:
            outcome = self._enforcement.requests.refuse(error, outline(flow))
        except BaseException as error:
            self._let_go(flow)
            self._fail(flow, "hook")
            if not isinstance(error, Exception):
                raise
            return
        self._let_go(flow)
        self._carry_out(flow, outcome)

    def client_disconnected(self, client: Client) -> None:
        """Give up what a client waited for that has left."""
        for give_up in self._leaving.pop(client.id, ()):
            give_up()

    def _on_leaving(self, client: Connection, give_up: Callable[[], object]) -> None:
        self._leaving.setdefault(client.id, set()).add(give_up)

    def _stays(self, client: Connection, give_up: Callable[[], object]) -> None:
        """Forget what was to be given up, had the client left."""
        others = self._leaving.get(client.id, set())
        others.discard(give_up)
        if not others:
            self._leaving.pop(client.id, None)

    def _let_go(self, flow: http.HTTPFlow) -> None:
        """Hold a request no longer."""
        held: HeldRequest | None = flow.metadata.pop(HELD, None)
        self._ended(flow)
        if held is not None:
            held.close()
            self._stays(flow.client_conn, held.close)

    def _answer(self, flow: http.HTTPFlow, reply: HttpReply) -> None:
        """Answer with the guard's own words; in an event, where a stream has been begun."""
        if STREAMS in flow.metadata:
            reply = replace(reply, status=200, body=message_event(reply.body))
        answer(flow, reply)

    async def _judge(
        self, flow: http.HTTPFlow
    ) -> Exchange | UnparsedExchange | HttpReply | HeldRequest:
        request = flow.request
        opens_socket = self._enforcement.sockets.accepts and is_handshake(request)
        check_framing(request, opens_socket=opens_socket)
        message = self.forward.enter(flow, read_request(flow, self._enforcement.body_limit))
        credential = self._credentials.get(message.server)
        if credential is not None and credential.is_used_by(
            (value for _, value in message.headers), message.target
        ):
            # The agent's side must not hold it; whoever has it has found a way around the guard.
            raise MessageError("write_credential", "this credential is the guard's", status=403)
        outcome: Exchange | UnparsedExchange | HttpReply | HeldRequest
        if opens_socket:
            outcome = await self._enforcement.requests.on_request(message)
            if isinstance(outcome, Exchange):
                flow.metadata[SOCKET] = self._enforcement.sockets.opened(
                    outcome, message.url, message.host
                )
        else:
            outcome = await self._enforcement.requests.on_holdable_request(message)
        if not isinstance(outcome, HttpReply | HeldRequest):
            await self._check_name(flow, outcome)
        return outcome

    async def _check_name(self, flow: http.HTTPFlow, outcome: Exchange | UnparsedExchange) -> None:
        """Look up where a judged request goes.

        Raises:
            MessageError: it must not go there.
        """
        try:
            # After the verdict: to look a name up is to say it.
            request = flow.request
            await self.forward.check_name(flow.client_conn, request.host, request.port)
        except MessageError:
            if isinstance(outcome, Exchange):
                await self._enforcement.responses.on_lost(outcome)
            raise
        if isinstance(outcome, Exchange):
            self.forward.principals[flow.client_conn.id] = outcome.identity.principal

    def _add_credential(self, flow: http.HTTPFlow, exchange: Exchange) -> None:
        """Give a committed memory write, and nothing else, the credential its store asks for."""
        credential = self._credentials.get(exchange.server)
        if credential is None or not exchange.is_write:
            return
        if not credential.is_for(flow.request.host, flow.request.port):
            return
        if credential.header:
            flow.request.headers[credential.header] = credential.value
        else:
            flow.request.path = credential.target(flow.request.path)

    # --- HTTP, on the way back ----------------------------------------------------------------

    def _note_head(self, flow: http.HTTPFlow) -> None:
        """Measure how long an upstream took."""
        started = flow.metadata.get(FORWARDED_AT)
        if started is not None:
            self._metrics.observe(UPSTREAM_SECONDS, time.perf_counter() - started)

    async def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Let an event stream through event by event; everything else is read whole."""
        try:
            exchange = flow.metadata.get(EXCHANGE)
            if exchange is None or flow.response is None:
                return
            self._note_head(flow)
            headers = flow.response.headers
            if isinstance(exchange, Exchange):
                await self._enforcement.responses.on_head(exchange, headers.get_all)
            kind = headers.get("content-type", "").split(";", 1)[0].strip().lower()
            if kind == EVENTS and flow.response.status_code != SWITCHING:
                if isinstance(exchange, UnparsedExchange):
                    flow.response.stream = True
                    return
                encoding = ", ".join(headers.get_all("content-encoding"))
                flow.metadata[READER] = self._enforcement.responses.event_reader(exchange, encoding)
                unsize_response(flow.response, flow.request)
                flow.response.stream = True
        except MessageError as error:
            exchange = flow.metadata[EXCHANGE]
            reply = self._enforcement.responses.refuse(error, exchange, outline(flow))
            if STREAMS in flow.metadata:
                reply = replace(reply, status=200, body=message_event(reply.body))
            flow.metadata[REFUSED] = reply.body
            answer_later(flow, reply)
        except Exception:  # noqa: BLE001  (see module docstring)
            self._fail(flow, "hook")

    async def guard_chunk(self, hook: GuardChunkHook) -> None:
        """Judge a chunk of a streamed answer; on any error nothing more of it is released."""
        reader: EventReader | None = hook.flow.metadata.get(READER)
        try:
            if isinstance(hook.flow.metadata.get(EXCHANGE), UnparsedExchange):
                hook.release = [hook.chunk]
                return
            if reader is None:
                hook.release, hook.stop = [hook.flow.metadata[REFUSED]], True
                return
            if hook.again:
                hook.release = await reader.go_on()
            else:
                hook.release = await (reader.feed(hook.chunk) if hook.chunk else reader.end())
            self._wait_for(hook, reader)
        except MessageError as error:
            hook.stop = True
            if reader is not None:
                hook.release = reader.refuse(error)
        except Exception:  # noqa: BLE001  (see module docstring)
            hook.stop = True
            self._metrics.count(ERRORS, "hook")

    def _wait_for(self, hook: GuardChunkHook, reader: EventReader) -> None:
        """Have the hook called again where a call in the answer is held open."""
        hook.held, hook.waits, hook.stop = reader.held, reader.waits, reader.is_closed
        client = hook.flow.client_conn
        if hook.waits:
            self._on_leaving(client, reader.close)
        elif hook.again:
            self._stays(client, reader.close)

    async def response(self, flow: http.HTTPFlow) -> None:
        """Observe the results in a complete answer."""
        self._ended(flow)
        try:
            exchange = flow.metadata.get(EXCHANGE)
            if flow.response is not None and REFUSED in flow.metadata:
                flow.response.raw_content = flow.metadata[REFUSED]
                return
            if exchange is None or flow.response is None or READER in flow.metadata:
                return
            if flow.response.status_code == SWITCHING:
                check_switch(flow.response.headers.get_all, opens_socket=SOCKET in flow.metadata)
            if isinstance(exchange, UnparsedExchange):
                return
            body = await self._answer_body(flow.response, exchange)
            status = flow.response.status_code
            instead = await self._enforcement.responses.on_answer(exchange, body, status)
            if STREAMS in flow.metadata:
                body = body if instead is None else instead
                responses = self._enforcement.responses
                self._answer(flow, responses.in_events(exchange, outline(flow), body, status))
            elif instead is not None:
                replace_body(flow.response, instead)
        except MessageError as error:
            if isinstance(flow.metadata[EXCHANGE], Exchange):
                await self._enforcement.responses.on_lost(flow.metadata[EXCHANGE])
            flow.websocket = None
            exchange = flow.metadata[EXCHANGE]
            self._answer(flow, self._enforcement.responses.refuse(error, exchange, outline(flow)))
        except Exception:  # noqa: BLE001  (see module docstring)
            self._fail(flow, "hook")

    async def _answer_body(self, response: http.Response, exchange: Exchange) -> bytes:
        """Return the decoded body; what follows it (HTTP/2) is labelled as the head is.

        Raises:
            MessageError: it cannot be decoded: its reader might, and nothing in it has a label.
        """
        if response.trailers:
            await self._enforcement.responses.on_head(exchange, response.trailers.get_all)
        encoding = ", ".join(response.headers.get_all("content-encoding"))
        try:
            return decode_content(
                response.raw_content or b"", encoding, limit=self._enforcement.body_limit
            )
        except MessageError:
            if exchange.reader is not None or not self._enforcement.responses.passes:
                raise
            # The call is executed all the same; what it answered has simply not been read.
            self._metrics.count(ERRORS, "parse")
            return b""

    async def error(self, flow: http.HTTPFlow) -> None:
        """Count what mitmproxy refused or lost by itself; record it where it was never judged."""
        self._ended(flow)
        try:
            text = flow.error.msg if flow.error else ""
            if text == NO_ROOM:
                error = MessageError("no_room", text, status=503)
                self._enforcement.requests.refuse(error, outline(flow))
                if isinstance(exchange := flow.metadata.get(EXCHANGE), Exchange):
                    await self._enforcement.responses.on_lost(exchange)
                return
            if EXCHANGE in flow.metadata:
                if text != CUT:
                    self._answer_lost(flow)
                if isinstance(flow.metadata[EXCHANGE], Exchange):
                    await self._enforcement.responses.on_lost(flow.metadata[EXCHANGE])
                return
            if "body exceeds" in text:
                error = OversizeError("the body is larger than the guard's `--body-limit`")
                reply = self._enforcement.requests.refuse(error, outline(flow))
                flow.metadata[LOST] = response_of(reply)
            elif "disconnected" not in text.lower():
                self._enforcement.requests.refuse(MessageError("bad_http", text), outline(flow))
        except Exception:  # noqa: BLE001  (see module docstring)
            self._metrics.count(ERRORS, "hook")

    def _answer_lost(self, flow: http.HTTPFlow) -> None:
        """Leave the reply to a request whose upstream gave no answer; it names no address."""
        exchange = flow.metadata[EXCHANGE]
        error = unanswered("the tool server did not answer")
        if flow.response is not None:
            self._metrics.count(ERRORS, "upstream")
            if READER in flow.metadata and isinstance(exchange, Exchange):
                told = self._enforcement.responses.end_open(error, exchange)
                if told:
                    flow.metadata[LOST] = b"".join(map(message_event, told))
            return
        # The flow's connection is not the one that was not opened: that one never became its own.
        asked = flow.client_conn.id, flow.request.host, flow.request.port
        refused = self.forward.refused.pop(asked, None)
        if refused is not None:
            reply = self._enforcement.requests.refuse(refused[0], outline(flow), refused[1])
        else:
            self._metrics.count(ERRORS, "upstream")
            reply = self._enforcement.responses.refuse(error, exchange, outline(flow))
        in_stream = STREAMS in flow.metadata
        flow.metadata[LOST] = message_event(reply.body) if in_stream else response_of(reply)

    # --- what is no HTTP message ---------------------------------------------------------------

    async def guard_unreadable(self, hook: GuardUnreadableHook) -> None:
        """Record a request head that could not be parsed; mitmproxy answers 400 and closes."""
        try:
            self._enforcement.requests.refuse(MessageError("bad_http", hook.message))
        except Exception:  # noqa: BLE001  (mitmproxy would only log it)
            self._metrics.count(ERRORS, "hook")

    async def guard_frame(self, hook: GuardFrameHook) -> None:
        """Judge a message of a WebSocket; whatever fails here releases nothing."""
        try:
            socket: WebSocketSession | None = hook.flow.metadata.get(SOCKET)
            sockets = self._enforcement.sockets
            if socket is None or hook.oversize:
                code = "upgrade" if socket is None else "body_too_large"
                sockets.refuse(code, "a message of a websocket is not accepted", socket)
            elif hook.from_client and sockets.hold_seconds(socket):
                await self._judge_frame(hook, sockets.from_client(socket, hook.content))
            elif hook.from_client:
                hook.release = await sockets.from_client(socket, hook.content)
            else:
                hook.release = await sockets.from_server(socket, hook.content)
        except Exception:  # noqa: BLE001  (mitmproxy would only log it)
            self._metrics.count(ERRORS, "hook")

    async def _judge_frame(self, hook: GuardFrameHook, judging: Coroutine[Any, Any, bool]) -> None:
        """Judge a message that may be held open; the rest of its WebSocket goes on meanwhile."""
        judged = asyncio.get_running_loop().create_task(judging)
        try:
            await asyncio.wait([judged], timeout=FRAME_SECONDS)
        except BaseException:
            judged.cancel()
            raise
        if judged.done():
            hook.release = judged.result()
            return
        hook.later = True
        self._on_leaving(hook.flow.client_conn, judged.cancel)
        judged.add_done_callback(partial(self._frame_judged, hook.flow))

    def _frame_judged(self, flow: http.HTTPFlow, judged: asyncio.Task[bool]) -> None:
        """Tell the layer of a WebSocket what became of a message that was held open."""
        self._stays(flow.client_conn, judged.cancel)
        if judged.cancelled():
            return
        if judged.exception() is not None:
            self._metrics.count(ERRORS, "hook")
        released = judged.exception() is None and judged.result()
        with suppress(ValueError):  # Its connection is gone.
            self.inject(JudgedFrame(flow, released))

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """Blank raw bytes; killing the flow alone does not stop them."""
        for message in flow.messages:
            message.content = b""
        self._refuse_bytes("raw_tcp", "raw tcp is not accepted")

    def udp_message(self, flow: udp.UDPFlow) -> None:
        """Blank raw datagrams."""
        for message in flow.messages:
            message.content = b""
        self._refuse_bytes("raw_udp", "raw udp is not accepted")

    def dns_request(self, flow: dns.DNSFlow) -> None:
        """Refuse names: a query is a message to whoever serves the zone."""
        self._refuse_bytes("dns", "dns is not accepted")
        if flow.live:
            flow.kill()

    def _refuse_bytes(self, code: str, message: str) -> None:
        self._enforcement.requests.refuse(MessageError(code, message, status=403))

    def _ended(self, flow: http.HTTPFlow) -> None:
        if (sender := flow.metadata.pop(SENDER, None)) is not None:
            self._enforcement.admission.answered(sender)
        if flow.id in self._in_flight:
            self._in_flight.discard(flow.id)
            AWAITED[flow.client_conn.id] -= 1
            if AWAITED[flow.client_conn.id] <= 0:
                del AWAITED[flow.client_conn.id]
        if not self._in_flight:
            self._idle.set()

    def _fail(self, flow: http.HTTPFlow, stage: str) -> None:
        self._metrics.count(ERRORS, stage)
        flow.metadata.pop(EXCHANGE, None)
        error = MessageError("guard_error", "the guard failed on this message", status=503)
        try:
            reply = self._enforcement.requests.refuse(error, outline(flow))
        except Exception:  # noqa: BLE001  (what failed may be the message itself)
            reply = self._enforcement.requests.refuse(error)
        self._answer(flow, reply)


def _nobody_listens(event: JudgedFrame) -> None:
    """Stand in until a master serves."""
    raise ValueError(event.flow.id)
