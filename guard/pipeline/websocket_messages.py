"""Messages of WebSockets, one by one: out as calls, in as text that is read.

Where the policy holds what it asks about (``ask: {hold}``), a message waits for a person's answer,
and what the client sends after it waits behind it: a server reads messages in the order in which
they were sent.  Pings are answered meanwhile, and what the server says goes on.
"""

from __future__ import annotations

import base64
import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import re2

from guard.core.calls import ToolResult, TracedCall
from guard.core.declarations import Declaration
from guard.core.errors import MessageError
from guard.core.model import Json
from guard.pipeline.exchange import Exchange, MessageRoute
from guard.pipeline.outcome import JudgeRequest
from guard.protocols.framing.json_messages import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guard.core.policy import Verdict
    from guard.pipeline.handler_parts import HandlerParts

TOOL: Final = "websocket.message"
"""A message of the client; where no mapping of the policy claims it, no WebSocket is opened."""
_JOINED: Final = frozenset({"joined"})
"""Argument that repeats what was sent before: of a retry it differs."""
EARLIER: Final = 256
TAIL: Final = 512
JOINED: Final = 8192
"""Maximum characters of all earlier messages that are joined with the next one; ``EARLIER`` is the
number of messages, and ``TAIL`` the characters of each."""

CHAINED: Final = 16 * 1024
"""Maximum characters of all chains of messages."""

ENDS: Final = 64
"""Number of the last messages from each of which a joined text begins."""
_BARE: Final = re2.compile(r"[A-Za-z0-9_+/=.-]{3,}")
MEMBERS: Final = 16
"""Members of JSON that are joined over messages."""

PLACES: Final = 256
"""Principals and hosts of which it is kept what all their WebSockets have said."""
_ANY: Final = "*"
"""Stands for every member; the names of others begin with a slash."""
_RUN: Final = re.compile(r"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]{8,}")
_WIDE: Final = re.compile(rb"(?:[\x20-\x7e\t\r\n]\x00){6,}")
"""Text between bytes that are none, in UTF-8 and in UTF-16."""
_PACKED: Final = (
    *(b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"\x28\xb5\x2f\xfd", b"Rar!"),
    *(b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x04\x22\x4d\x18"),
)
"""First bytes of packed or sealed data, in which nothing is read."""
_HANDSHAKE: Final = ("upgrade", "connection", "sec-websocket-key", "sec-websocket-version")
_KEY_BYTES: Final = 16


def opens_websocket(method: str, values: Callable[[str], Sequence[str]]) -> bool:
    """Return whether a request without a body opens a WebSocket (RFC 6455, section 4.1).

    Args:
        method: of the request, which is HTTP/1.1.
        values: of a header, by its name in lower case.
    """
    once = {name: values(name) for name in _HANDSHAKE}
    if method != "GET" or any(len(found) != 1 for found in once.values()):
        return False
    wanted = once["upgrade"][0].lower() == "websocket" and once["sec-websocket-version"][0] == "13"
    try:
        key = base64.b64decode(once["sec-websocket-key"][0], validate=True)
    except ValueError:
        return False
    return wanted and len(key) == _KEY_BYTES and "upgrade" in once["connection"][0].lower()


def check_switch(values: Callable[[str], Sequence[str]], *, opens_socket: bool) -> None:
    """Refuse an upstream that switches to what was not asked for.

    Args:
        values: of a header of its answer, by its name in lower case.
        opens_socket: whether the request was a handshake that the policy accepts.

    Raises:
        MessageError: it does.
    """
    protocol = [value.lower() for value in values("upgrade")]
    if not opens_socket or protocol != ["websocket"] or values("sec-websocket-extensions"):
        raise MessageError("upgrade", "the upstream switches to a protocol nobody asked for")


@dataclass(slots=True)
class Said:
    """Volume sent by one WebSocket, or by all of one principal to one host."""

    earlier: list[str] = field(default_factory=list)
    """Last messages of the client."""

    members: dict[str, str] = field(default_factory=dict)
    """Values of the members of its JSON messages, each joined in order."""

    sockets: int = 0
    """Number of WebSockets that it covers."""

    def joined(self, text: str, members: Sequence[tuple[str, str]]) -> list[str]:
        """Return what a message makes with those before it, as they stand and member by member."""
        said = [self.members.get(name, "") + value for name, value in members]
        chains = ("".join((*self.earlier, text)), "".join((*self.earlier[-1:], text)))
        found = (*chains, *said, *self._ends(text))
        return list(dict.fromkeys(found))

    def _ends(self, text: str) -> Iterator[str]:
        """Yield a message behind each of the last ones, alone and with all between, line by line.

        So that nothing that was sent before, or between, hides where a secret begins.
        """
        chain, chains, pairs = text, list[str](), list[str]()
        room = CHAINED
        for one in reversed(self.earlier[-ENDS:]):
            chain = one + chain
            room -= len(chain) + len(one) + len(text)
            if room < 0:
                break
            chains.append(chain)
            if _BARE.fullmatch(one) and _BARE.fullmatch(text):
                pairs.append(one + text)
        yield from ("\n".join(found) for found in (chains, pairs) if found)

    def note(self, text: str, members: Sequence[tuple[str, str]]) -> None:
        """Keep a message that went on, and of those before it what there is room for."""
        for name, value in members:
            self.members[name] = (self.members.pop(name, "") + value)[-TAIL:]
        while len(self.members) > MEMBERS:
            self.members.pop(next(iter(self.members)))
        self.earlier = [*self.earlier, text[-TAIL:]][-EARLIER:]
        room = sum(map(len, self.earlier)) - JOINED
        while room > 0:
            room -= len(self.earlier.pop(0))


@dataclass(slots=True)
class WebSocketSession:
    """One open WebSocket."""

    exchange: Exchange
    """The handshake, which was judged as a request."""
    url: str
    host: str
    among: Said
    """Texts that its principal has sent to this host, by any of its WebSockets."""
    said: Said = field(default_factory=Said)
    """Texts that it has sent."""

    def joined(self, text: str, members: Sequence[tuple[str, str]]) -> list[str]:
        """Return what a message makes with those before it, of this WebSocket and of all."""
        both = [self.said, self.among] if self.among.sockets > 1 else [self.said]
        found = [one for said in both if said.earlier for one in said.joined(text, members)]
        return list(dict.fromkeys(found))

    def note(self, text: str, members: Sequence[tuple[str, str]]) -> None:
        """Keep a message that went on."""
        self.said.note(text, members)
        self.among.note(text, members)


def _members(text: str) -> list[tuple[str, str]]:
    """Return name and text of the members of a message that is a JSON object, however deep.

    The last one is all of them together.
    """
    if not text.lstrip().startswith("{"):
        return []
    try:
        stack: list[tuple[str, Json]] = [("", parse_json(text.encode()))]
    except MessageError:
        return []
    found: list[tuple[str, str]] = []
    while stack and len(found) < MEMBERS:
        name, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{name}/{inner}", one) for inner, one in reversed(value.items())]
        elif isinstance(value, list):
            stack += [(name, one) for one in reversed(value)]
        elif isinstance(value, str):
            found.append((name, value))
    # And all of them, whatever they are called.
    return [*found, (_ANY, "".join(value for _, value in found))]


def _text_in(content: bytes) -> str:
    """Return a message as it stands, or the texts in one of bytes (sound, what programs exchange).

    Between texts noise has short runs of signs, in which anything would be found sooner or later.
    """
    with suppress(UnicodeDecodeError):
        return content.decode("utf-8")
    wide = (run.decode("utf-16-le") for run in _WIDE.findall(content))
    return "\n".join((*_RUN.findall(content.decode("utf-8", "replace")), *wide))


class WebSocketHandler:
    """Judges the messages of clients and labels those of servers."""

    def __init__(self, parts: HandlerParts) -> None:
        self._said: OrderedDict[tuple[str, str, str], Said] = OrderedDict()
        self._parts = parts

    @property
    def accepts(self) -> bool:
        """True if the policy in force maps the messages of WebSockets."""
        policy = self._parts.guard.policy
        return policy is not None and policy.mapping(TOOL) is not None

    def opened(self, exchange: Exchange, url: str, host: str) -> WebSocketSession:
        """Return a WebSocket whose handshake was let through."""
        key = exchange.server, exchange.identity.principal, host
        among = self._said.setdefault(key, Said())
        self._said.move_to_end(key)
        if len(self._said) > PLACES:
            self._said.popitem(last=False)
        among.sockets += 1
        return WebSocketSession(exchange, url, host, among)

    def hold_seconds(self, socket: WebSocketSession) -> int:
        """Return for how many seconds a message waits for a person's answer, 0: not at all."""
        return (
            0
            if self._parts.holding is None
            else self._parts.holding.longest(socket.exchange.identity)
        )

    async def from_client(self, socket: WebSocketSession, content: bytes) -> bool:
        """Return whether a message goes on to the server."""
        if content.startswith(_PACKED):
            return self.refuse("unreadable_frame", "a message that is packed", socket)
        text = _text_in(content)
        arguments: dict[str, Json] = {"url": socket.url, "host": socket.host, "body": text}
        members = _members(text)
        if joined := socket.joined(text, members):
            arguments["joined"] = list[Json](joined)

        async def judge() -> tuple[TracedCall, Verdict]:
            call = socket.exchange.call(
                TOOL, arguments, self._parts.clock.now(), protocol="websocket", unbound=_JOINED
            )
            [judged] = await self._parts.guard.judge(JudgeRequest([call]))
            return judged

        judged = await judge()
        if self._parts.holding is not None and (hold_seconds := self.hold_seconds(socket)):
            judged = await self._parts.holding.hold_call(judged, len(content), hold_seconds, judge)
        classified, verdict = judged
        if not verdict.enforced.forwards:
            return False
        socket.note(text, members)
        await self._parts.guard.observe(ToolResult(classified, None, classified.classified.call.at))
        return True

    async def from_server(self, socket: WebSocketSession, content: bytes) -> bool:
        """Return whether a message goes on to the client; its labels are stored then."""
        if self._parts.declarations is None:
            return True
        message = Declaration(TOOL, content.decode("utf-8", "replace"))
        try:
            await self._parts.declarations.note(socket.exchange, message)
        except MessageError as error:
            return self.refuse(error.code, str(error), socket)
        return True

    def refuse(self, code: str, message: str, socket: WebSocketSession | None = None) -> bool:
        """Record a message that is not forwarded; True where it is all the same (monitor mode)."""
        place = socket.exchange.place if socket is not None else MessageRoute()
        error = MessageError(code, message, status=403)
        self._parts.failures.record(error, "websocket", place)
        return socket is not None and self._parts.failures.passes
