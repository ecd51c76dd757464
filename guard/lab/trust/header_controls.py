"""Line ends and NUL in a request's head: a lenient upstream would read a second request there."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, ClassVar, Final

from mitmproxy.connection import Client, Server
from mitmproxy.http import Headers, HTTPFlow, Request

from guard.adapters.mitm import translation
from guard.core.errors import MessageError
from guard.lab.trust.attacks import AttackClass, Attempt, Patch, Switch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from guard.lab.trust.attacks import Play
    from guard.lab.trust.harness import World

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


class HeaderControls(AttackClass):
    """A control character in any part of a head, with something behind it."""

    id: ClassVar[str] = "header_controls"
    switches: ClassVar[tuple[Switch, ...]] = (
        Switch("heads have no line ends", lambda patch: _no_search(patch)),
    )

    def attempts(self, rng: Random) -> Iterator[Attempt]:
        """Yield every combination, in an order of the seed's."""
        made = list(itertools.product(PLACES, CONTROLS, BEHIND, HEADERS))
        rng.shuffle(made)
        for place, control, behind, header in made:
            name = f"{place} {control!r} {behind!r} {header!r}"
            yield Attempt(name, _play(_flow(place, control + behind, header)))


def _no_search(patch: Patch) -> None:
    patch.set(translation, "_LINE_ENDS", re.compile(rb"(?!)"))


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
