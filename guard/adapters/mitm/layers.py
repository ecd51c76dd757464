"""Two of mitmproxy's HTTP layers, with the hooks the guard needs and mitmproxy lacks.

* An answer that streams calls an awaited hook for each chunk, so that an event carrying a result
  can be judged on fresh state before it is released (docs/adr/0002).  mitmproxy's own stream
  callables are synchronous.
* A request head that cannot be parsed calls a hook, so that it gets an audit line and a counter;
  mitmproxy only logs it.  A head that never ends is cut off.

Installed by replacing two names in ``mitmproxy.proxy.layers.http``; :func:`verify` is asked at
start, because a guard whose replacement did not take must not serve.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers.http import (
    ResponseData,
    ResponseEndOfMessage,
    ResponseTrailers,
    SendHttp,
)

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mitmproxy import http
    from mitmproxy.connection import Client

HEAD_LIMIT: Final = 64 * 1024
"""Bytes a request head may have before its blank line."""


@dataclass
class GuardChunkHook(commands.StartHook):
    """A chunk of a streamed answer has arrived, or its end (``chunk`` is empty)."""

    name = "guard_chunk"
    blocking = True
    flow: http.HTTPFlow
    chunk: bytes
    release: list[bytes] = field(default_factory=list)
    """What the addon lets through, in order."""
    stop: bool = False
    """Set to end the answer here: nothing more of it is released."""

    def args(self) -> list[object]:
        """Hand the addon the hook itself: it answers by setting its fields."""
        return [self]


@dataclass
class GuardUnreadableHook(commands.StartHook):
    """A request head could not be parsed."""

    name = "guard_unreadable"
    blocking = True
    client: Client
    message: str

    def args(self) -> list[object]:
        """Hand the addon the hook itself: mitmproxy passes one argument and no more."""
        return [self]


class GuardedHttpStream(http_layers.HttpStream):
    """An HTTP stream whose streamed answer passes the guard chunk by chunk."""

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Handle an event without the one hook per request that nobody listens to."""
        generator = super()._handle_event(event)
        reply = None
        while True:
            try:
                command = generator.send(reply)
            except StopIteration:
                return
            reply = None
            if not isinstance(command, http_layers.HttpRequestHeadersHook):
                reply = yield command

    def state_stream_response_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Ask the addon about every chunk before it is sent."""
        if isinstance(event, ResponseData):
            yield from self._pass(event.data)
        elif isinstance(event, ResponseEndOfMessage):
            yield from self._pass(b"")
            yield from self.send_response(already_streamed=True)
        elif isinstance(event, ResponseTrailers) and self.flow.response:
            self.flow.response.trailers = event.trailers

    def _pass(self, chunk: bytes) -> layer.CommandGenerator[None]:
        hook = GuardChunkHook(self.flow, chunk)
        yield hook
        # An empty chunk would end a chunked body: never send one.
        for data in hook.release:
            if data:
                yield SendHttp(ResponseData(self.stream_id, data), self.context.client)
        if hook.stop:
            yield commands.CloseConnection(self.context.client)


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

    def _read_head(self, event: events.ConnectionEvent) -> Iterator[commands.Command]:
        if len(self.buf) > HEAD_LIMIT and b"\r\n\r\n" not in bytes(self.buf)[: HEAD_LIMIT + 4]:
            self.state = self.done
            yield commands.Log("request head is too large")
            yield commands.SendData(self.conn, b"HTTP/1.1 431 Head Too Large\r\n\r\n")
            yield commands.CloseConnection(self.conn)
            return
        yield from super().read_headers(event)


def install() -> None:
    """Put the guard's layers in the place of mitmproxy's."""
    http_layers.HttpStream = GuardedHttpStream  # type: ignore[misc]
    http_layers.Http1Server = GuardedHttp1Server  # type: ignore[misc]


def verify() -> None:
    """Check that the layers mitmproxy will build are the guard's.

    Raises:
        GuardError: they are not, and no traffic may be served.
    """
    names = http_layers.HttpLayer.make_stream.__globals__
    if names.get("HttpStream") is not GuardedHttpStream:
        msg = "this mitmproxy does not take the guard's http layers; use a supported version"
        raise GuardError(msg)
