"""The addon: mitmproxy's hooks to the handlers and back.

mitmproxy logs a hook that raises and lets the flow go on, so every hook here catches everything
and ends in a block.  Raw TCP, UDP and DNS are refused; messages of WebSockets are judged where the
policy maps them; tunnels are :mod:`guard.adapters.mitm.forward`'s.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guard.adapters.mitm.layers import (
    AWAITED,
    CERTIFICATE,
    CUT,
    HELD,
    LOST,
    NO_ROOM,
    StreamedAnswer,
)
from guard.adapters.mitm.translation import (
    answer,
    answer_later,
    check_framing,
    enter_route,
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
from guard.core.errors import MessageError, OversizeError
from guard.core.metrics import ERRORS, UPSTREAM_SECONDS
from guard.enforcement.exchange import Exchange, UnreadExchange
from guard.enforcement.holding import HeldRequest, in_events
from guard.enforcement.websocket_messages import WebSocketSession, check_switch
from guard.protocols.framing.content_coding import decode_content
from guard.protocols.framing.sse import message_event
from guard.protocols.http.message import HttpReply
from guard.protocols.refusals import UNREACHABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mitmproxy import dns, http, tcp, udp
    from mitmproxy.connection import Client

    from guard.adapters.credentials.write_credentials import WriteCredential
    from guard.adapters.mitm.forward import ForwardAddon
    from guard.adapters.mitm.layers import (
        GuardChunkHook,
        GuardFrameHook,
        GuardHeldHook,
        GuardUnreadableHook,
    )
    from guard.core.metrics import Metrics
    from guard.enforcement.handlers import Enforcement
    from guard.enforcement.response import EventReader

EXCHANGE: Final = "guard.exchange"
READER: Final = "guard.reader"
REFUSED: Final = "guard.refused"
FORWARDED_AT: Final = "guard.forwarded_at"
CHALLENGE: Final = "www-authenticate"
SWITCHING: Final = 101
ACCEPTED: Final = 202
STREAMS: Final = "guard.streams"
"""In a flow's metadata: its answer has been begun as a stream of events while it was held."""
SOCKET: Final = "guard.socket"
"""Where a flow's metadata has its open WebSocket."""


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
        enforcement.streams.append(self._send_into)
        self._enforcement = enforcement
        self.forward = forward
        self._credentials = credentials or {}
        self._metrics = metrics
        self._in_flight: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._held: dict[str, set[HeldRequest]] = {}
        """Requests that are held open, by their client connection."""
        self._streams: dict[tuple[str, str, str], http.HTTPFlow] = {}
        """Open event streams in which clients read their answers: listener, principal, session."""
        self.inject: Callable[[StreamedAnswer], object] = _nobody_listens
        """Sends bytes into an answer that streams; set by the master."""

    async def idle(self) -> None:
        """Wait until no request is without its complete answer."""
        await self._idle.wait()

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
        self, flow: http.HTTPFlow, outcome: Exchange | UnreadExchange | HttpReply
    ) -> None:
        """Answer a request, or have it forwarded."""
        if isinstance(outcome, HttpReply):
            self._answer(flow, self._where_it_is_read(outcome))
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
        self._begin(flow)

    def _begin(self, flow: http.HTTPFlow) -> None:
        """Note that a client waits for an answer."""
        if flow.id not in self._in_flight:
            self._in_flight.add(flow.id)
            AWAITED[flow.client_conn.id] += 1
            self._idle.clear()

    # --- held open for a person's answer -------------------------------------------------------

    def _hold(self, flow: http.HTTPFlow, held: HeldRequest) -> None:
        """Hold a request open; the layer asks again and again what became of it."""
        if held.asked.reply.stream is not None:
            held.close()
            self._carry_out(flow, held.asked.reply)
            return
        flow.metadata[HELD] = held
        self._held.setdefault(flow.client_conn.id, set()).add(held)
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
        for held in self._held.pop(client.id, ()):
            held.close()

    def _let_go(self, flow: http.HTTPFlow) -> None:
        """Hold a request no longer."""
        held: HeldRequest | None = flow.metadata.pop(HELD, None)
        self._ended(flow)
        if held is not None:
            held.close()
            others = self._held.get(flow.client_conn.id, set())
            others.discard(held)
            if not others:
                self._held.pop(flow.client_conn.id, None)

    def _answer(self, flow: http.HTTPFlow, reply: HttpReply) -> None:
        """Answer with the guard's own words; in an event, where a stream has been begun."""
        if STREAMS in flow.metadata:
            reply = replace(reply, status=200, body=message_event(reply.body))
        answer(flow, reply)

    def _where_it_is_read(self, reply: HttpReply) -> HttpReply:
        """Send a reply into the open event stream of its client, where that is where it reads.

        Without such a stream the reply is the answer to the request, which nobody else can read.
        """
        if reply.stream is None:
            return reply
        if not self._send_into(reply.stream, reply.body):
            if self._enforcement.elsewhere is None:
                return reply
            self._enforcement.elsewhere(reply.stream, reply.body)
        return HttpReply(ACCEPTED, "text/plain", b"Accepted")

    def _send_into(self, stream: tuple[str, str, str], message: bytes) -> bool:
        """Send a message into an event stream; return whether it is open here."""
        flow = self._streams.get(stream)
        if flow is None:
            return False
        try:
            self.inject(StreamedAnswer(flow, message_event(message)))
        except ValueError:  # The stream's connection is gone.
            return False
        return True

    async def _judge(
        self, flow: http.HTTPFlow
    ) -> Exchange | UnreadExchange | HttpReply | HeldRequest:
        enter_route(flow, self.forward.routes)
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
        outcome: Exchange | UnreadExchange | HttpReply | HeldRequest
        if opens_socket:
            outcome = await self._enforcement.requests.on_request(message)
            if isinstance(outcome, Exchange):
                flow.metadata[SOCKET] = WebSocketSession(outcome, message.url, message.host)
        else:
            outcome = await self._enforcement.requests.on_patient_request(message)
        if not isinstance(outcome, HttpReply | HeldRequest):
            await self._check_name(flow, outcome)
        return outcome

    async def _check_name(self, flow: http.HTTPFlow, outcome: Exchange | UnreadExchange) -> None:
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
        if credential.certificate is not None:
            flow.metadata[CERTIFICATE] = credential.certificate
        elif credential.header:
            flow.request.headers[credential.header] = credential.value
        else:
            flow.request.path = credential.target(flow.request.path)

    # --- HTTP, on the way back ----------------------------------------------------------------

    async def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Let an event stream through event by event; everything else is read whole."""
        try:
            exchange = flow.metadata.get(EXCHANGE)
            if exchange is None or flow.response is None:
                return
            started = flow.metadata.get(FORWARDED_AT)
            if started is not None:
                self._metrics.observe(UPSTREAM_SECONDS, time.perf_counter() - started)
            headers = flow.response.headers
            if CHALLENGE in headers and self.forward.is_reverse(flow):
                self._name_own_metadata(flow, flow.response)
            if isinstance(exchange, Exchange) and "mcp-session-id" in headers:
                self._enforcement.responses.note_token(exchange, headers["mcp-session-id"])
            kind = headers.get("content-type", "").split(";", 1)[0].strip().lower()
            if kind == "text/event-stream" and flow.response.status_code != SWITCHING:
                if isinstance(exchange, UnreadExchange):
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

    def _name_own_metadata(self, flow: http.HTTPFlow, response: http.Response) -> None:
        """Let a challenge lead the client to the listener's own login."""
        login, asked = self._enforcement.login, outline(flow)
        if login is not None:
            said = [login.challenge(asked, one) for one in response.headers.get_all(CHALLENGE)]
            response.headers.set_all(CHALLENGE, said)

    async def guard_chunk(self, hook: GuardChunkHook) -> None:
        """Judge a chunk of a streamed answer; on any error nothing more of it is released."""
        reader: EventReader | None = hook.flow.metadata.get(READER)
        try:
            if isinstance(hook.flow.metadata.get(EXCHANGE), UnreadExchange):
                hook.release = [hook.chunk]
                return
            if reader is None:
                hook.release, hook.stop = [hook.flow.metadata[REFUSED]], True
                return
            hook.release = await (reader.feed(hook.chunk) if hook.chunk else reader.end())
            hook.held = reader.held
            exchange = hook.flow.metadata[EXCHANGE]
            if exchange.answers_for:
                self._streams[_stream_of(exchange)] = hook.flow
        except MessageError as error:
            hook.stop = True
            if reader is not None:
                hook.release = reader.refuse(error)
        except Exception:  # noqa: BLE001  (see module docstring)
            hook.stop = True
            self._metrics.count(ERRORS, "hook")

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
            if isinstance(exchange, UnreadExchange):
                return
            body, status = self._answer_body(flow.response, exchange), flow.response.status_code
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

    def _answer_body(self, response: http.Response, exchange: Exchange) -> bytes:
        """Return the decoded body.

        Raises:
            MessageError: it cannot be decoded: its reader might, and nothing in it has a label.
        """
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
                flow.metadata[LOST] = response_of(self._where_it_is_read(reply))
            elif "disconnected" not in text.lower():
                self._enforcement.requests.refuse(MessageError("bad_http", text), outline(flow))
        except Exception:  # noqa: BLE001  (see module docstring)
            self._metrics.count(ERRORS, "hook")

    def _answer_lost(self, flow: http.HTTPFlow) -> None:
        """Leave the reply to a request whose upstream gave no answer; it names no address."""
        exchange = flow.metadata[EXCHANGE]
        error = MessageError(UNREACHABLE, "the tool server did not answer", status=502)
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
        reply = self._where_it_is_read(reply)
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
            elif hook.from_client:
                hook.release = await sockets.from_client(socket, hook.content)
            else:
                hook.release = await sockets.from_server(socket, hook.content)
        except Exception:  # noqa: BLE001  (mitmproxy would only log it)
            self._metrics.count(ERRORS, "hook")

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
        exchange = flow.metadata.get(EXCHANGE)
        if isinstance(exchange, Exchange) and self._streams.get(_stream_of(exchange)) is flow:
            del self._streams[_stream_of(exchange)]
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
        self._answer(flow, self._where_it_is_read(reply))


def _stream_of(exchange: Exchange) -> tuple[str, str, str]:
    return exchange.server, exchange.identity.principal, exchange.answers_for


def _nobody_listens(event: StreamedAnswer) -> None:
    """Stand in until a master serves."""
    raise ValueError(event.flow.id)
