"""Line ends and NUL in a request's head, and headers that only a server's own proxy may set.

A lenient upstream would read a second request behind the first; one that stands behind a proxy
believes it about who its client is, and under which name and path he has asked.
"""

from __future__ import annotations

import base64
import itertools
import re
from typing import TYPE_CHECKING, ClassVar, Final

from mitmproxy.connection import Client, Server
from mitmproxy.http import Headers, HTTPFlow, Request

from guard.core.errors import MessageError
from guard.pep.lean import upstream_requests
from guard.pep.mitm import translation
from guard.protocols.http import metadata, sent_headers
from guard.protocols.http.metadata import notable_headers
from guard.protocols.mcp import mcp
from lab.trust.attacks import AttackClass, Attempt, Switch
from lab.trust.unjudged_bytes import LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from lab.trust.attacks import Play
    from lab.trust.harness import World

CONTROLS: Final = (
    *(b"\r", b"\n", b"\r\n", b"\n\r", b"\r\r", b"\n\n", b"\x00", b"\r\n ", b"\n\t"),
    *(b"\x0b", b"\x0c", b"\x1c", b"\x1e", b"\x7f", b"\x85", b"\xc2\x85", b"\xe2\x80\xa8"),
)
BEHIND: Final = (
    b"",
    b"x-guard-session: other",
    b"transfer-encoding: chunked",
    b"POST /mcp HTTP/1.1",
    b"DELETE /v1/customers/42 HTTP/1.1",
)
PLACES: Final = ("name", "value", "first", "last", "path", "method", "authority")
HEADERS: Final = (b"x-note", b"user-agent", b"accept", b"mcp-session-id")
LIMIT: Final = 1 << 20
CODED: Final[dict[str, Callable[[str], str]]] = {
    "plain": lambda text: text,
    "base64": lambda text: base64.b64encode(f"password={text}".encode()).decode(),
    "hex": lambda text: f"password={text}".encode().hex(),
}
FRONTS: Final = (
    *(
        "forwarded",
        "x-forwarded-host",
        "x-forwarded-prefix",
        "x-forwarded-proto",
        "x-original-host",
    ),
    *("x-forwarded-for", "x-real-ip", "true-client-ip", "x-forwarded-user", "x-remote-user"),
    *("x-auth-request-email", "x-ms-client-principal-name", "x-goog-authenticated-user-email"),
    *("x-ssl-client-s-dn", "x-forwarded-client-cert", "x-envoy-original-path", "x-script-name"),
)
SAID: Final = (
    b"other.internal",
    b"admin@corp.example",
    b"127.0.0.1",
    b"host=other.internal;for=::1",
)
BESIDE: Final = (
    *("connection", "keep-alive", "te", "trailer", "accept-encoding", "content-encoding"),
    *("proxy-note", "proxy-authenticate", "proxy-status", "proxy_info", "host", "content-type"),
    *("x-note", "accept", "expect", "sec-fetch-mode", "via", "max-forwards", "date"),
)
"""Headers that a proxy or a server's framework reads, and some that anybody sends."""
AROUND: Final = ("{}", "close, {}", "text/plain; note={}", 'text/plain; charset="{}"', "a=1;{}")
TARGETS: Final = ("x-original-url", "x-rewrite-url", "x-http-method-override", "x-method-override")


class HeaderControls(AttackClass):
    """A control character in any part of a head, with something behind it."""

    id: ClassVar[str] = "header_controls"
    switches: ClassVar[tuple[Switch, ...]] = (
        Switch(
            "heads have no line ends",
            lambda patch: patch.set(translation, "_LINE_ENDS", re.compile(rb"(?!)")),
            among="line end:",
        ),
        Switch(
            "who the client is, the first proxy says",
            lambda patch: patch.set(sent_headers, "is_forwarding", lambda _: False),
            among="front:",
        ),
        Switch(
            "a header gives no other target, in any spelling",
            lambda patch: patch.set(mcp, "OVERRIDING", frozenset(TARGETS)),
            among="target:",
        ),
        Switch(
            "what is said of a connection ends with it",
            lambda patch: patch.set(translation, "HOP", frozenset()),
            among="beside: connection",
        ),
        Switch(
            "a header that goes on is judged, whatever it is called",
            lambda patch: patch.set(metadata, "is_sent_on", lambda *_, **__: False),
            among="beside: proxy-",
        ),
    )

    def attempts(self, rng: Random) -> Iterator[Attempt]:
        """Yield combinations in an order of the seed's; headers take turns behind line ends."""
        ends = [
            Attempt(
                f"line end: {place} {control!r} {behind!r} {header!r}",
                _play(_flow(place, control + behind, header)),
            )
            for (place, control, behind), header in zip(
                itertools.product(PLACES, CONTROLS, BEHIND), itertools.cycle(HEADERS), strict=False
            )
        ]
        fronts = [
            Attempt(f"front: {name}: {said!r}", _front_play(name.encode(), said))
            for header, said in itertools.product(FRONTS, SAID)
            for name in _spellings(header)
        ]
        targets = [
            Attempt(f"target: {name}", _target_play(name))
            for header in TARGETS
            for name in _spellings(header)
        ]
        key = "".join(rng.choices(LETTERS, k=28))
        beside = [
            Attempt(
                f"beside: {name}: {coding}: {around}",
                _beside_play(name, around.format(coded(f"sk_{key}"))),
            )
            for name in BESIDE
            for (coding, coded), around in itertools.product(CODED.items(), AROUND)
        ]
        for kind in (ends, fronts, targets, beside):
            rng.shuffle(kind)
        for group in itertools.zip_longest(ends, fronts, targets, beside):
            yield from (attempt for attempt in group if attempt is not None)


def _spellings(name: str) -> dict[str, None]:
    """Return a name as servers fold it that hand headers on as variables (CGI, WSGI)."""
    folded = name.replace("-", "_")
    mixed = name.replace("-", "_", 1)
    return dict.fromkeys((name, name.title(), folded, folded.upper(), mixed))


def _front_play(name: bytes, said: bytes) -> Play:
    """Play that a client says what only the proxy in front of its server knows."""

    async def play(world: World) -> bool:
        del world
        flow = _flow("value", b"", b"x-note")
        flow.request.headers = Headers(((b"host", b"tools.internal"), (name, said)))
        translation.prepare_request(flow)
        return any(key.lower() == name.lower() for key, _ in flow.request.headers.fields)

    return play


def _beside_play(name: str, said: str) -> Play:
    """Play that a header carries a secret which is sent on and is no argument of any call."""

    async def play(world: World) -> bool:
        del world
        header = name.encode()
        flow = _flow("value", b"", b"x-note")
        flow.request.http_version = "HTTP/1.1"
        flow.request.headers = Headers(
            ((header, said.encode()), *(() if name == "host" else ((b"host", b"tools.internal"),)))
        )
        try:
            judged = notable_headers(translation.read_request(flow, LIMIT))
        except MessageError:
            return False
        translation.prepare_request(flow)
        leaves = upstream_requests.goes_on(header, trusts_forwarded=False) or any(
            value == said.encode() for _, value in flow.request.headers.fields
        )
        return leaves and said not in judged.values()

    return play


def _target_play(name: str) -> Play:
    """Play that a header above a harmless message gives it the target of another request."""

    async def play(world: World) -> bool:
        said = "DELETE" if "ethod" in name.lower() else "/v1/customers/42"
        outcome = await world.agent().message("ping", {}, headers={name: said})
        return outcome.forwarded

    return play


def _flow(place: str, put: bytes, header: bytes) -> HTTPFlow:
    """Return a request with something in one place of its head."""
    parts = {"method": b"GET", "path": b"/mcp", "authority": b"", "name": header, "value": b"a"}
    if place in {"first", "last"}:
        parts["value"] = put + b"a" if place == "first" else b"a" + put
    else:
        parts[place] = parts[place] + put + (b"b" if place == "value" else b"")
    request = Request(
        host="tools.internal",
        port=9000,
        method=parts["method"],
        scheme=b"http",
        authority=parts["authority"],
        path=parts["path"],
        http_version=b"HTTP/2.0",
        headers=Headers(((parts["name"], parts["value"]),)),
        content=b"",
        trailers=None,
        timestamp_start=0.0,
        timestamp_end=0.0,
    )
    client = Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 8801))
    flow = HTTPFlow(client, Server(address=("tools.internal", 9000)))
    flow.request = request
    return flow


def _play(flow: HTTPFlow) -> Play:
    async def play(world: World) -> bool:
        del world
        try:
            translation.read_request(flow, LIMIT)
        except MessageError:
            return False
        return True

    return play
