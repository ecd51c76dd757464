"""The same bytes of a connection, read by both enforcement points: no request may be two.

A request is what is judged and written anew for the upstream: method, target, header fields, body.
Each point reads as it does in ``guard run``: mitmproxy's layer for HTTP/1 with the guard's checks
behind it, and httptools with those of the lean one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mitmproxy import http
from mitmproxy.connection import Client, ConnectionState, Server
from mitmproxy.net.http.validate import validate_headers
from mitmproxy.options import Options
from mitmproxy.proxy import commands, context, events
from mitmproxy.proxy.layers.http import (
    ReceiveHttp,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
)

from guard.core.errors import MessageError
from guard.pep.lean.messages import RequestReader
from guard.pep.mitm.layers import GuardedHttp1Server, GuardUnreadableHook
from guard.pep.mitm.translation import check_framing, read_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lab.fuzz_inputs import Mutator

Read = tuple[str, str, tuple[tuple[str, str], ...], bytes]
"""Method, target, fields (names in lower case) and body of a request."""
LIMIT: Final = 4096
_TARGETS: Final = (
    *(b"/mcp", b"/mcp", b"/", b"/a?b=c", b"*", b"//a/b", b"/a b", b"/\xc3\xa4", b"/#f", b"a:80"),
    *(b"http://b/mcp", b"http://b", b"http://b?x=/y", b"http://u@b:1/y", b"", b"/\x00", b"/%0d%0a"),
)
_METHODS: Final = (
    b"POST",
    b"POST",
    b"GET",
    b"PUT",
    b"HEAD",
    b"OPTIONS",
    b"CONNECT",
    b"PRI",
    b"get",
)
_VERSIONS: Final = (*[b"HTTP/1.1"] * 8, b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.10", b"")
_FIELDS: Final = (
    *(b"Host: a", b"Host: b", b"Host:", b"X-Note: a", b"X-Note:\tb \t", b"X-Note:", b"x_y: 1"),
    *(b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: +5", b"Content-Length: 5, 5"),
    *(
        b"Content-Length: 05",
        b"Content-Length : 5",
        b"Content-Length: 0x5",
        b"Content-Length:\x0b5",
    ),
    *(b"Content-Length: 5 ", b"content-length: 6", b"Content-Length: -1", b"Content-Length: 5\x00"),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: Chunked", b"Transfer-Encoding: identity"),
    *(b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding:"),
    *(b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding : chunked", b" folded: 1"),
    *(b"Transfer-Encoding: xchunked", b"Transfer_Encoding: chunked", b"\tfolded", b"no colon"),
    *(b"Connection: close", b"Connection: keep-alive", b"Connection: upgrade", b"Upgrade: h2c"),
    *(b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", b"HTTP2-Settings: AAMA", b": empty"),
    *(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Expect: 100-continue", b"X: a\rY: b"),
    *(b"X-Guard-Session: s", b"X: a\x00b", b"X: \xff\xfe", b"X\xff: a", b"X: a\nY: b", b"X(: a"),
)
_BODIES: Final = (
    *(
        b"",
        b"hello",
        b"hello!",
        b"hell",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"0\r\n\r\n",
        b"5\nhello\n0\n\n",
    ),
    *(
        b"5;a=b\r\nhello\r\n0\r\n\r\n",
        b"05\r\nhello\r\n00\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX: a\r\n\r\n",
    ),
    *(
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhell",
    ),
    *(
        b"FFFFFFFFFFFFFFFF1\r\nhello\r\n0\r\n\r\n",
        b"5;\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r",
    ),
    *(
        b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"\r\n",
        b"GET /x HTTP/1.1\r\n\r\n",
    ),
)
_ENDS: Final = (*[b"\r\n"] * 12, b"\n", b"\r", b"\r\r\n")


def connection(mutator: Mutator) -> list[bytes]:
    """Return the bytes of a connection with up to three requests, cut anywhere or at every byte."""
    data = b"".join(_request(mutator) for _ in range(mutator.pick((1, 1, 2, 3))))
    for _ in range(mutator.pick((0, 0, 0, 1))):
        data = mutator.damaged(data)
    if mutator.below(4) == 0:
        return [data[i : i + 1] for i in range(len(data))]
    return [piece for piece in mutator.chunks(data) if piece]


def _request(mutator: Mutator) -> bytes:
    pick = mutator.pick
    honest = mutator.below(2) == 0
    if honest:
        body = pick((b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n"))
        framing = (
            b"Transfer-Encoding: chunked" if b"\r" in body else b"Content-Length: %d" % len(body)
        )
        start = pick((b"POST /mcp HTTP/1.1", b"PUT /a?b=c HTTP/1.1", b"POST http://b/x HTTP/1.1"))
        fields = [b"Host: a", framing, *(pick(_FIELDS) for _ in range(pick((0, 0, 0, 1))))]
    else:
        body = pick(_BODIES)
        start = b" ".join(
            part for part in (pick(_METHODS), pick(_TARGETS), pick(_VERSIONS)) if part
        )
        fields = [b"Host: a", *(pick(_FIELDS) for _ in range(mutator.below(5)))]
    lines = [start, *fields, b""]
    if honest:
        return b"\r\n".join([*lines, body])
    return b"".join(line + pick(_ENDS) for line in lines) + body


def read_lean(pieces: Iterable[bytes]) -> tuple[list[Read], bool]:
    """Return the requests that the lean point reads, and whether it refuses what follows."""
    reader = RequestReader(LIMIT)
    for piece in pieces:
        if reader.error is None and reader.rest is None:
            reader.feed(piece)
    found: list[Read] = []
    for one in reader.complete:
        if one.opens_socket:
            return found, True
        fields = tuple((n.decode("ascii").lower(), v.decode("latin-1")) for n, v in one.fields)
        found.append((one.method, one.target, fields, one.body))
        if not one.keeps_alive:
            return found, True
    return found, reader.error is not None


def read_mitmproxy(pieces: Iterable[bytes]) -> tuple[list[Read], bool]:
    """Return the requests that mitmproxy and the checks behind it read, and whether it refuses."""
    reading = _Mitmproxy()
    # Behind an empty line mitmproxy waits for another event before it goes on.
    for piece in (*pieces, b"", b"", b""):
        if not reading.refuses:
            reading.feed(piece)
    return reading.found, reading.refuses


class _Mitmproxy:
    """One connection of a client, as mitmproxy's layer reads it."""

    def __init__(self) -> None:
        self.found: list[Read] = []
        self.refuses = False
        self._client = Client(
            peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), timestamp_start=0
        )
        self._client.state = ConnectionState.OPEN
        self._layer = GuardedHttp1Server(context.Context(self._client, _OPTIONS))
        self._request: http.Request | None = None
        self._body = b""
        self._take(self._layer.handle_event(events.Start()))

    def feed(self, data: bytes) -> None:
        """Read what has arrived."""
        self._take(self._layer.handle_event(events.DataReceived(self._client, data)))

    def _take(self, said: Iterable[commands.Command]) -> None:
        ended = False
        for command in said:
            if isinstance(command, GuardUnreadableHook):
                self.refuses = True
                return
            if not isinstance(command, ReceiveHttp):
                continue
            event = command.event
            if isinstance(event, RequestHeaders):
                self._request, self._body = event.request, b""
            elif isinstance(event, RequestData):
                self._body += event.data
            elif isinstance(event, RequestProtocolError):
                self.refuses = True
                return
            elif isinstance(event, RequestEndOfMessage):
                ended = True
        if ended:
            self._judge()
        if ended and not self.refuses:
            self._layer.response = http.Response.make(200)
            self._take(self._layer.mark_done(response=True))

    def _judge(self) -> None:
        """Take a request as the addon does."""
        flow = http.HTTPFlow(self._client, Server(address=("upstream", 80)))
        request = self._request
        if request is None:
            self.refuses = True
            return
        request.raw_content = self._body
        # As a reverse listener with `keep_host_header` sets them: the field stays as it came.
        request.data.host, request.data.port, request.data.scheme = "upstream", 80, b"http"
        flow.request = request
        try:
            validate_headers(request)
            check_framing(request, opens_socket=False)
            read = read_request(flow, LIMIT)
        except (MessageError, ValueError):
            self.refuses = True
            return
        if request.method == "CONNECT":
            self.refuses = True
            return
        self.found.append((read.method, read.target, read.headers, request.raw_content or b""))
        connection_field = request.headers.get("connection", "").lower()
        if connection_field == "close" or not request.is_http11:
            self.refuses = True


_OPTIONS: Final = Options()


def disagreement(pieces: Sequence[bytes]) -> tuple[bool, str]:
    """Read a connection with both points.

    Returns:
        whether both read a request, and what they read differently (empty: nothing).
    """
    (lean, lean_refuses), (other, other_refuses) = read_lean(pieces), read_mitmproxy(pieces)
    for ours, theirs in zip(lean, other, strict=False):
        if ours != theirs:
            return True, f"{ours!r} is read as {theirs!r}"
    both = bool(lean and other)
    if len(lean) > len(other) and not other_refuses:
        return both, f"{lean[len(other)]!r} is read by the lean one alone; mitmproxy waits"
    if len(other) > len(lean) and not lean_refuses:
        return both, f"{other[len(lean)]!r} is read by mitmproxy alone; the lean one waits"
    return both, ""
