"""A WebSocket whose every message waits for its verdict; nothing else of a frame passes.

mitmproxy relays pings, pongs and the words of a close as they are: each is room for data.  Here
pings are answered on the side they come from, the reason of a close is left out, and a message goes
on only when the addon has said so.  A hook that fails has said nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import wsproto.events
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers import websocket
from wsproto.connection import ConnectionState
from wsproto.utilities import ProtocolError

if TYPE_CHECKING:
    from mitmproxy import http
    from mitmproxy.proxy.layers.websocket import WebsocketConnection

POLICY_VIOLATION: Final = 1008
UNREADABLE: Final = 1002


@dataclass
class GuardFrameHook(commands.StartHook):
    """A message has arrived whole, or has grown beyond the limit (``oversize``)."""

    name = "guard_frame"
    blocking = True
    flow: http.HTTPFlow
    from_client: bool
    content: bytes
    is_text: bool
    oversize: bool = False
    release: bool = False
    """Set by the addon to let the message through."""

    def args(self) -> list[object]:
        """Hand the addon the hook itself: it answers by setting a field."""
        return [self]


class GuardedWebsocketLayer(websocket.WebsocketLayer):
    """Relays messages one by one, each after the addon has seen it."""

    def relay_messages(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Take what arrived on one side, and pass on what is released of it."""
        if isinstance(event, events.DataReceived):
            data: bytes | None = event.data
        elif isinstance(event, events.ConnectionClosed):
            data = None
        else:
            return  # Nobody injects messages here.
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
        oversize = sum(map(len, source.frame_buf)) > self._limit
        if not event.message_finished and not oversize:
            if event.frame_finished:
                source.frame_buf.append(b"")
            return
        fragments, source.frame_buf = source.frame_buf, [b""]
        content = b"" if oversize else b"".join(fragments)
        hook = GuardFrameHook(self.flow, from_client, content, is_text, oversize)
        yield hook
        if not hook.release or oversize:
            yield from self._end(POLICY_VIOLATION)
            return
        target = self.server_ws if from_client else self.client_ws
        for piece in websocket.Fragmentizer(fragments, is_text)(content):
            yield target.send2(piece)

    def _end(self, code: int) -> layer.CommandGenerator[None]:
        """Close both sides; whoever's words come with a close, they stay here."""
        if self.flow.websocket is not None:
            self.flow.websocket.timestamp_end = time.time()  # noqa: TID251  (mitmproxy's own mark)
            self.flow.websocket.close_code = code
        for side in (self.server_ws, self.client_ws):
            if side.state in {ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING}:
                yield side.send2(wsproto.events.CloseConnection(code=code))
            yield commands.CloseConnection(side.conn)
        yield websocket.WebsocketEndHook(self.flow)
        self.flow.live = False
        self._handle_event = self.done
