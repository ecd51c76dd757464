"""Parts of mitmproxy's proxy core, with the hooks the guard needs and mitmproxy lacks.

* An answer that streams calls an awaited hook for each chunk, so that an event carrying a result
  can be judged on fresh state before it is released (docs/adr/0002).  mitmproxy's own stream
  callables are synchronous.
* A request head that cannot be parsed calls a hook, so that it gets an audit line and a counter;
  mitmproxy only logs it.  A head that never ends is cut off.
* A client that waits for an answer is not idle, however quiet the answer is; mitmproxy would cut
  a stream off after ten minutes without a byte.
* Where clients are asked for certificates, TLS sessions are not resumed.
* The messages of a WebSocket wait for their verdict.
* What is held of unfinished messages, over all connections, has a budget.
* What waits for clients counts towards it, and who does not read is closed.

Installed by replacing names in ``mitmproxy.proxy``; :func:`verify` is asked at start, because a
guard whose replacement did not take must not serve.

Bytes that wait for clients behind mitmproxy: counted, bounded, and dropped if unread.

mitmproxy writes what a layer sends and waits for room only where it reads next.  Over HTTP/2 a
client's window keeps bytes in a buffer that has no bound.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import wsproto.events
from mitmproxy.flow import Error
from mitmproxy.net import tls as net_tls
from mitmproxy.net.http.http1 import expected_http_body_size
from mitmproxy.proxy import commands, events, layer, server
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers import websocket
from mitmproxy.proxy.layers.http import (
    HttpLayer,
    RequestData,
    RequestEndOfMessage,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    SendHttp,
    _events,
)
from OpenSSL import SSL
from wsproto.connection import ConnectionState as WebSocketState
from wsproto.utilities import ProtocolError

from guard.core.errors import GuardError
from guard.pep.lean.connections import STALL_SECONDS
from guard.pep.message_budget import MessageBudget
from guard.pep.mitm.forward import NOT_CONNECTED
from guard.protocols.framing.json_messages import DRAINED, RequestOutline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mitmproxy import http
    from mitmproxy.connection import Client
    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layers.websocket import WebsocketConnection
    from mitmproxy.proxy.server import ConnectionHandler


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


HELD: Final = "guard.held"
"""Key under which the addon keeps a request that is held open."""
LOST: Final = "guard.lost"
"""Key under which the addon leaves the reply to a request whose upstream gave no answer."""
POLICY_VIOLATION: Final = 1008
UNREADABLE: Final = 1002
FRAME_BYTES: Final = 200
"""Bytes counted for a waiting message in addition to its content."""


class _GuardHook(commands.StartHook):
    """A hook that the addon answers by setting its fields."""

    name = ""

    def args(self) -> list[object]:
        """Hand the addon the hook itself: mitmproxy passes one argument and no more."""
        return [self]


@dataclass
class GuardFrameHook(_GuardHook):
    """A message has arrived whole, or has grown beyond the limit (``oversize``)."""

    name = "guard_frame"
    flow: http.HTTPFlow
    from_client: bool
    content: bytes
    is_text: bool
    oversize: bool = False
    release: bool = False
    """Set by the addon to let the message through."""
    later: bool = False
    """Set instead where it says so later, by a :class:`JudgedFrame`."""


@dataclass
class JudgedFrame(events.MessageInjected[bool]):
    """True if a client's message that waited for its verdict is released."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """A message in the fragments in which it goes on."""

    fragments: list[bytes]
    is_text: bool


class GuardedWebsocketLayer(websocket.WebsocketLayer):
    """A WebSocket whose every message waits for its verdict; nothing else of a frame passes.

    mitmproxy relays pings, pongs and the words of a close as they are: each is room for data.  Here
    pings are answered on the side they come from, the reason of a close is left out, and a message
    goes on only when the addon has said so.  A hook that fails has said nothing.  While a message
    of the client is judged later, what the client sends next waits behind it.
    """

    _later: _Frame | None = None
    """The message of the client that is judged later."""

    def __init__(self, context: Context, flow: http.HTTPFlow) -> None:
        super().__init__(context, flow)
        self._behind: deque[_Frame] = deque()
        """Messages that it has sent since."""

    def done(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Take nothing any more."""
        yield from ()

    def relay_messages(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Take what arrived on one side, and pass on what is released of it."""
        if isinstance(event, JudgedFrame):
            yield from self._judged(released=event.message)
            return
        if isinstance(event, events.DataReceived):
            data: bytes | None = event.data
        elif isinstance(event, events.ConnectionClosed):
            data = None
        else:
            return  # Nobody else injects messages here.
        from_client = event.connection == self.context.client
        source = self.client_ws if from_client else self.server_ws
        try:
            source.receive_data(data)
            for one in source.events():
                yield from self._take(one, source, from_client=from_client)
                if self._handle_event == self.done:
                    return
        except (ProtocolError, UnicodeError):
            yield from self._end(UNREADABLE)

    @property
    def _limit(self) -> int:
        """Bytes one message may have: as many as a body."""
        return int(self.context.options.body_size_limit)

    def _take(
        self, event: wsproto.events.Event, source: WebsocketConnection, *, from_client: bool
    ) -> layer.CommandGenerator[None]:
        if isinstance(event, wsproto.events.Message):
            yield from self._message(event, source, from_client=from_client)
        elif isinstance(event, wsproto.events.Ping):
            yield source.send2(event.response())
        elif isinstance(event, wsproto.events.CloseConnection):
            yield from self._end(int(event.code))

    def _message(
        self, event: wsproto.events.Message[Any], source: WebsocketConnection, *, from_client: bool
    ) -> layer.CommandGenerator[None]:
        is_text = isinstance(event.data, str)
        data = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
        source.frame_buf[-1] += data
        held = sum(map(len, source.frame_buf))
        oversize = held > self._limit or not BUDGET.hold(id(source), held)
        if not event.message_finished and not oversize:
            if event.frame_finished:
                source.frame_buf.append(b"")
            return
        BUDGET.release(id(source))
        frame, source.frame_buf = _Frame(source.frame_buf, is_text), [b""]
        if self._later is not None and from_client:
            oversize = oversize or not self._waits_behind(frame)
            if not oversize:
                return
        yield from self._ask(frame, from_client=from_client, oversize=oversize)

    def _ask(
        self, frame: _Frame, *, from_client: bool, oversize: bool
    ) -> layer.CommandGenerator[None]:
        """Ask the addon about a message."""
        content = b"" if oversize else b"".join(frame.fragments)
        hook = GuardFrameHook(self.flow, from_client, content, frame.is_text, oversize)
        yield hook
        if hook.later and not oversize:
            self._later = frame
        elif hook.release and not oversize:
            yield from self._pass(frame, self.server_ws if from_client else self.client_ws)
        else:
            yield from self._end(POLICY_VIOLATION)

    def _pass(self, frame: _Frame, target: WebsocketConnection) -> layer.CommandGenerator[None]:
        content = b"".join(frame.fragments)
        for piece in websocket.Fragmentizer(frame.fragments, frame.is_text)(content):
            yield target.send2(piece)

    def _waits_behind(self, frame: _Frame) -> bool:
        """Keep a message until the one before it has been judged; False where there is no room."""
        self._behind.append(frame)
        held = sum(len(one) for frame in self._behind for one in frame.fragments)
        held += FRAME_BYTES * len(self._behind)
        return held <= self._limit and BUDGET.hold(id(self), held)

    def _judged(self, *, released: bool) -> layer.CommandGenerator[None]:
        """Carry out a later verdict, and go on with what waited behind it."""
        frame, self._later = self._later, None
        if frame is None or not released:
            yield from self._end(POLICY_VIOLATION)
            return
        yield from self._pass(frame, self.server_ws)
        while self._goes_on():
            yield from self._ask(self._behind.popleft(), from_client=True, oversize=False)
        if not self._behind:
            BUDGET.release(id(self))

    def _goes_on(self) -> bool:
        """Return whether a message is next that waited behind another one."""
        return bool(self._behind) and self._later is None and self._handle_event != self.done

    def _end(self, code: int) -> layer.CommandGenerator[None]:
        """Close both sides; whoever's words come with a close, they stay here."""
        if self.flow.websocket is not None:
            self.flow.websocket.timestamp_end = time.time()  # noqa: TID251  (mitmproxy's own mark)
            self.flow.websocket.close_code = code
        BUDGET.release(id(self))
        for side in (self.server_ws, self.client_ws):
            BUDGET.release(id(side))
            if side.state in {WebSocketState.OPEN, WebSocketState.REMOTE_CLOSING}:
                yield side.send2(wsproto.events.CloseConnection(code=code))
            yield commands.CloseConnection(side.conn)
        yield websocket.WebsocketEndHook(self.flow)
        self.flow.live = False
        self._handle_event = self.done


_CODES: Final[Any] = getattr(_events, "ErrorCode", None)
"""The codes of protocol errors: an enumeration since mitmproxy 12, HTTP statuses before."""
CLIENT_CODE: Final[Any] = _CODES.GENERIC_CLIENT_ERROR if _CODES else 400
SERVER_CODE: Final[Any] = _CODES.GENERIC_SERVER_ERROR if _CODES else 502
BUDGET: Final = MessageBudget()
"""Budget of this process."""
OUTPUT: Final = SlowClients(BUDGET)
NO_ROOM: Final = "the guard holds too much of unfinished messages"
TOO_LARGE: Final = "the request body exceeds the guard's limit"
CUT: Final = "the guard ended this answer"
"""The message of the error that ends a streamed answer nothing more of which may be released."""
HEAD_LIMIT: Final = 64 * 1024
"""Bytes a request head may have before its blank line."""


class _Status(int):
    """An HTTP status that every version takes for the code of an error."""

    def http_status_code(self) -> int:
        """Return it, as mitmproxy 12 asks for it."""
        return int(self)


@dataclass
class GuardChunkHook(_GuardHook):
    """A chunk of a streamed answer has arrived, or its end (``chunk`` is empty)."""

    name = "guard_chunk"
    flow: http.HTTPFlow
    chunk: bytes
    release: list[bytes] = field(default_factory=list)
    """Chunks that the addon releases, in order."""
    stop: bool = False
    """Set to end the answer here: nothing more of it is released."""
    held: int = 0
    """Bytes of the answer that wait for their verdict."""
    waits: bool = False
    """Set where a call in it is held open: the hook is called again, with ``again``."""
    again: bool = False


@dataclass
class GuardHeldHook(_GuardHook):
    """A request is held open for a person's answer; the hook returns again and again until then."""

    name = "guard_held"
    flow: http.HTTPFlow
    head: http.Response | None = None
    """Set by the addon to begin the answer, before there is any, as a stream."""
    release: bytes = b""
    """Bytes of that answer for the client."""


@dataclass
class GuardUnreadableHook(_GuardHook):
    """A request head could not be parsed."""

    name = "guard_unreadable"
    client: Client
    message: str


class GuardedHttpStream(http_layers.HttpStream):
    """An HTTP stream whose streamed answer passes the guard chunk by chunk.

    What it holds of request and answer counts towards :data:`BUDGET`.
    """

    _outline: RequestOutline | None = None
    """Outline of a request that is too large, built while its bytes arrive."""

    def check_body_size(self, request: bool) -> layer.CommandGenerator[bool]:  # noqa: FBT001  (mitmproxy's)
        """Refuse a body that is too large, and one for which there is no room beside the others."""
        fits = request and self._request_size() <= int(self.context.options.body_size_limit)
        # That is all that mitmproxy would look for, once more.
        if not fits and (
            (request and self._goes_by()) or (yield from super().check_body_size(request))
        ):
            return True
        sent = self.flow.request.data.content or b""
        if self._holds(len(sent) + len(self.request_body_buf) + len(self.response_body_buf)):
            return False
        yield from self._no_room(request=request)
        return True

    def _request_size(self) -> int:
        """Return the bytes of a request's body that are held, or announced while none are."""
        return len(self.request_body_buf) or expected_http_body_size(self.flow.request) or 0

    def _goes_by(self) -> bool:
        """Begin to let a request's body go by that is too large; False where nothing goes by.

        A client that is still sending reads no answer, and the id of its message may stand last.
        """
        limit = int(self.context.options.body_size_limit)
        held = bytes(self.request_body_buf)
        asks_first = not held and "expect" in self.flow.request.headers
        is_large = not asks_first and (bool(held) or self._request_size() <= limit * DRAINED)
        if is_large:
            self.request_body_buf.clear()
            self._outline = RequestOutline()
            self._outline.feed(held)
            self.client_state = self.state_pass_request_body
        return is_large

    def state_pass_request_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Let the rest of a request that is too large go by, and answer at its end."""
        outline = self._outline
        if outline is None:
            return
        if isinstance(event, RequestData):
            outline.feed(event.data)
        is_endless = outline.size > int(self.context.options.body_size_limit) * DRAINED
        if not isinstance(event, RequestEndOfMessage) and not is_endless:
            return
        self._outline = None
        self.flow.request.data.content = outline.text()
        self.flow.error = Error(TOO_LARGE)
        yield http_layers.HttpErrorHook(self.flow)
        lost = self.flow.metadata.get(LOST)
        if is_endless or lost is None:
            refused = ResponseProtocolError(self.stream_id, TOO_LARGE, _Status(413))
            yield SendHttp(refused, self.context.client)
        else:
            yield from self._send_reply(lost)
        self.client_state = self.server_state = self.state_errored
        self.flow.live = False

    def _holds(self, size: int) -> bool:
        """Return whether there is room for what is held of this stream."""
        if self._finalizer is None:
            self._finalizer = weakref.finalize(self, BUDGET.release, id(self))
        return BUDGET.hold(id(self), size)

    _finalizer: weakref.finalize[Any, Any] | None = None

    def _no_room(self, *, request: bool) -> layer.CommandGenerator[None]:
        """End the stream: 503, and on to nobody."""
        self.request_body_buf.clear()
        self.response_body_buf.clear()
        self.flow.error = Error(NO_ROOM)
        yield http_layers.HttpErrorHook(self.flow)
        failed = ResponseProtocolError(self.stream_id, NO_ROOM, _Status(503))
        yield SendHttp(failed, self.context.client)
        self.client_state = self.state_errored
        if not request:
            ended = RequestProtocolError(self.stream_id, NO_ROOM, CLIENT_CODE)
            yield SendHttp(ended, self.context.server)
        self.server_state = self.state_errored
        self.flow.live = False

    def flow_done(self) -> layer.CommandGenerator[None]:
        """Give back what was held."""
        BUDGET.release(id(self))
        yield from super().flow_done()

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Handle an event; a request that is held open waits behind its hook."""
        generator = super()._handle_event(event)
        reply = None
        while True:
            try:
                command = generator.send(reply)
            except StopIteration:
                return
            reply = None
            if self._opened and _is_head(command):
                continue
            reply = yield command
            if isinstance(command, http_layers.HttpRequestHook) and HELD in self.flow.metadata:
                yield from self._hold()

    _opened = False
    """True if the answer has been begun while the request was held open."""

    def _hold(self) -> layer.CommandGenerator[None]:
        """Keep the client waiting until the addon takes the request out of its metadata."""
        client = self.context.client
        while HELD in self.flow.metadata:
            hook = GuardHeldHook(self.flow)
            yield hook
            if any(isinstance(event, RequestProtocolError) for event in self._paused_event_queue):
                # The client has left: nobody is told, and what is released now goes nowhere.
                self.flow.metadata.pop(HELD, None)
                return
            if hook.head is not None and not self._opened:
                self._opened = True
                yield SendHttp(ResponseHeaders(self.stream_id, hook.head, end_stream=False), client)
            if hook.release:
                yield SendHttp(ResponseData(self.stream_id, hook.release), client)

    def state_stream_response_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Ask the addon about every chunk before it is sent."""
        if isinstance(event, ResponseData):
            yield from self._pass(event.data)
        elif isinstance(event, ResponseEndOfMessage):
            yield from self._pass(b"")
            if self.server_state != self.state_errored:
                yield from self.send_response(already_streamed=True)

    def handle_protocol_error(
        self, event: RequestProtocolError | ResponseProtocolError
    ) -> layer.CommandGenerator[None]:
        """Say 403, not 502, where it was the guard that did not connect."""
        BUDGET.release(id(self))
        if isinstance(event, ResponseProtocolError) and NOT_CONNECTED in event.message:
            vars(event)["code"] = _Status(403)
        generator = super().handle_protocol_error(event)
        reply = None
        while True:
            try:
                command = generator.send(reply)
            except StopIteration:
                return
            reply = None
            lost = self.flow.metadata.get(LOST)
            if lost is not None and isinstance(command, SendHttp) and command.event is event:
                yield from self._send_lost(lost)
            else:
                reply = yield command

    def _send_lost(self, lost: http.Response | bytes) -> layer.CommandGenerator[None]:
        """Answer, or say in the answer that streams already why it ends here, and end it."""
        client = self.context.client
        if not isinstance(lost, bytes):
            yield from self._send_reply(lost)
            return
        yield SendHttp(ResponseData(self.stream_id, lost), client)
        yield SendHttp(ResponseEndOfMessage(self.stream_id), client)

    def _send_reply(self, response: http.Response) -> layer.CommandGenerator[None]:
        """Answer with the guard's own words where mitmproxy would send a page of its own."""
        client = self.context.client
        yield SendHttp(ResponseHeaders(self.stream_id, response, end_stream=False), client)
        yield SendHttp(ResponseData(self.stream_id, response.raw_content or b""), client)
        yield SendHttp(ResponseEndOfMessage(self.stream_id), client)

    _is_waiting = _is_flooded = False
    """Two flags: a chunk is judged or waits; more data have arrived meanwhile than are kept."""

    def handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Keep what comes while a part of the answer is judged or held open, within bounds."""
        if self._is_waiting and isinstance(event, ResponseData):
            queued = self._paused_event_queue
            kept = sum(len(one.data) for one in queued if isinstance(one, ResponseData))
            kept += len(event.data)
            if kept > int(self.context.options.body_size_limit) or not self._holds(kept):
                self._is_flooded = True
                return
        yield from super().handle_event(event)

    def _pass(self, chunk: bytes) -> layer.CommandGenerator[None]:
        hook, self._is_waiting = GuardChunkHook(self.flow, chunk), True
        yield hook
        while hook.waits and not hook.stop and not self._is_flooded:
            if hook.release:
                released = b"".join(hook.release)
                yield SendHttp(ResponseData(self.stream_id, released), self.context.client)
            hook = GuardChunkHook(self.flow, b"", again=True)
            yield hook
        self._is_waiting = False
        if self._is_flooded:
            hook.stop, hook.release = True, []
        if not hook.stop and not self._holds(hook.held):
            hook.stop = True
            self.flow.error = Error(NO_ROOM)
            yield http_layers.HttpErrorHook(self.flow)
        # An empty chunk would end a chunked body: never send one.
        for data in hook.release:
            if data:
                yield SendHttp(ResponseData(self.stream_id, data), self.context.client)
        if hook.stop:
            yield from self._cut()

    def _cut(self) -> layer.CommandGenerator[None]:
        """End both sides of this answer; other streams of the connections live on."""
        ended = RequestProtocolError(self.stream_id, CUT, CLIENT_CODE)
        yield SendHttp(ended, self.context.server)
        failed = ResponseProtocolError(self.stream_id, CUT, SERVER_CODE)
        yield from self.handle_protocol_error(failed)


class GuardedHttp1Server(http_layers.Http1Server):
    """An HTTP/1 server that reports heads it cannot parse, and cuts off those that never end."""

    def read_headers(self, event: events.ConnectionEvent) -> layer.CommandGenerator[None]:
        """Parse the head; report what mitmproxy would only log."""
        # The refusal and the close come before the log line, and a closed connection runs no more
        # hooks: hold them until it is known whether one is due.
        held: list[commands.Command] = []
        for command in self._read_head(event):
            if isinstance(command, (commands.SendData, commands.CloseConnection)):
                held.append(command)
                continue
            if isinstance(command, commands.Log):
                yield GuardUnreadableHook(self.context.client, command.message)
            yield from held
            held.clear()
            yield command
        yield from held

    def read_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Read the body; refuse trailers, which mitmproxy does not implement and crashes on."""
        try:
            yield from super().read_body(event)
        except NotImplementedError:
            yield GuardUnreadableHook(self.context.client, "request trailers are not accepted")
            self.state = self.done
            yield commands.SendData(self.conn, b"HTTP/1.1 400 Trailers Not Accepted\r\n\r\n")
            yield commands.CloseConnection(self.conn)

    def _read_head(self, event: events.ConnectionEvent) -> Iterator[commands.Command]:
        if len(self.buf) > HEAD_LIMIT and b"\r\n\r\n" not in bytes(self.buf)[: HEAD_LIMIT + 4]:
            self.state = self.done
            yield commands.Log("request head is too large")
            yield commands.SendData(self.conn, b"HTTP/1.1 431 Head Too Large\r\n\r\n")
            yield commands.CloseConnection(self.conn)
            return
        yield from super().read_headers(event)


class GuardedHttp1Client(http_layers.Http1Client):
    """An HTTP/1 client that leaves out trailers, which mitmproxy does not implement."""

    def read_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Read the body; nobody has read what follows it, so nobody gets it."""
        try:
            yield from super().read_body(event)
        except NotImplementedError:
            yield http_layers.ReceiveHttp(ResponseEndOfMessage(self.stream_id or 0))
            yield from self.mark_done(response=True)


def _is_head(command: commands.Command) -> bool:
    return isinstance(command, SendHttp) and isinstance(command.event, ResponseHeaders)


AWAITED: Final[Counter[str]] = Counter()
"""Requests without a complete answer, by id of the client connection they came by."""


class PatientWatchdog(server.TimeoutWatchdog):
    """Closes client connections that are idle, and only those."""

    async def watch(self) -> None:
        """Wait until nothing was heard for the time-out and no answer is awaited."""
        client: Client = self.callback.__self__.client  # type: ignore[attr-defined]
        try:
            while True:
                await self.can_timeout.wait()
                await asyncio.sleep(self.remaining())
                if AWAITED[client.id] or not self.can_timeout.is_set():
                    self.last_activity = time.time()  # noqa: TID251  (as in `remaining`)
                elif self.remaining() <= 0:
                    await self.callback()
                    return
        except asyncio.CancelledError:
            return

    def remaining(self) -> float:
        """Return the seconds until the connection has been silent for the time-out."""
        # mitmproxy's own mark of the last activity, on mitmproxy's own clock.
        return self.timeout - (time.time() - self.last_activity)  # noqa: TID251


_server_event = server.ConnectionHandler.server_event


async def server_event(self: server.ConnectionHandler, event: events.Event) -> None:
    """Handle an event, then look at what waits for the client."""
    await _server_event(self, event)
    OUTPUT.look(self)


_client_context: Final[Any] = net_tls.create_client_proxy_context.__wrapped__


@lru_cache(256)
def client_context(**parameters: Any) -> SSL.Context:
    """Return the TLS context of client connections, shared by all with the same parameters.

    Without resumption where certificates are asked for: a resumed handshake shows none, and OpenSSL
    breaks it off, so that clients that keep sessions (Node's agent) could not reconnect.  Set here
    because pyOpenSSL (from version 26 on) refuses to change a context that made a connection.
    """
    context: SSL.Context = _client_context(**parameters)
    if parameters["request_client_cert"]:
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.set_options(SSL.OP_NO_TICKET)
    return context


def install() -> None:
    """Put the guard's layers in the place of mitmproxy's."""
    net_tls.create_client_proxy_context = client_context
    server.TimeoutWatchdog = PatientWatchdog  # type: ignore[misc]
    server.ConnectionHandler.server_event = server_event  # type: ignore[method-assign]
    http_layers.HttpStream = GuardedHttpStream  # type: ignore[misc]
    http_layers.Http1Server = GuardedHttp1Server  # type: ignore[misc]
    http_layers.Http1Client = GuardedHttp1Client  # type: ignore[misc]
    websocket.WebsocketLayer = GuardedWebsocketLayer  # type: ignore[misc]


def verify() -> None:
    """Check that the layers mitmproxy will build are the guard's.

    Raises:
        GuardError: they are not, and no traffic may be served.
    """
    names = http_layers.HttpLayer.make_stream.__globals__
    starts = server.ConnectionHandler.__init__.__globals__
    if (
        names.get("HttpStream") is not GuardedHttpStream
        or starts.get("TimeoutWatchdog") is not PatientWatchdog
        or server.ConnectionHandler.server_event is not server_event
        or names.get("websocket") is not websocket
        or websocket.WebsocketLayer is not GuardedWebsocketLayer
    ):
        raise GuardError(
            "this mitmproxy does not take the guard's http layers; use a supported version"
        )
