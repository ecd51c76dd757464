"""Server-sent events cut out of a byte stream, unchanged.  Pure: no I/O.

WHATWG HTML, section 9.2.6: lines end in LF, CR or CRLF; a blank line ends an event.  The cutter
keeps every byte, so an event that is released is released as it was sent.
"""

from __future__ import annotations

import re
from typing import Final

from guard.core.errors import OversizeError

BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n|\Z))")
"""The end of a line followed by an empty line.  A CR that ends the buffer waits for its LF."""
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_ORDINARY: Final = re.compile(
    r"data(?::|\Z)|event:[\w/ -]{0,64}\Z|id:[\w+/=: -]{0,512}\Z|retry:[0-9 ]{0,16}\Z"
    r"|:[\w\s:+-]{0,64}\Z|\Z"
)
"""Lines of an event that are its data, or say no more than a name, a mark, or that it is there."""


class EventCutter:
    """Cuts a stream into events.

    Args:
        limit: bytes one event may have.
    """

    def __init__(self, limit: int) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._limit = limit

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events completed by a chunk, each with its final blank line.

        Raises:
            OversizeError: an event grew beyond the limit.
        """
        self._buffer += chunk
        events: list[bytes] = []
        start = 0
        position = max(self._scanned - 3, 0)
        while match := _BLANK.search(self._buffer, max(position, start)):
            events.append(bytes(self._buffer[start : match.end()]))
            start = position = match.end()
        del self._buffer[:start]
        self._scanned = len(self._buffer)
        if len(self._buffer) > self._limit:
            raise OversizeError(f"a server-sent event is larger than {self._limit} bytes")
        return events

    @property
    def held(self) -> int:
        """Bytes of an event that is not finished."""
        return len(self._buffer)

    def rest(self) -> bytes:
        """Return what is left when the stream ends: an event that was never finished."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest


def with_data(event: bytes, data: str) -> bytes:
    """Return an event with other data; its id, type and retry stay as they were sent."""
    text = event.decode("utf-8", "replace")
    lines = [line for line in _LINE_END.split(text) if line]
    kept = [line for line in lines if line.removeprefix("\ufeff").partition(":")[0] != "data"]
    return "\n".join([*kept, *(f"data: {line}" for line in data.split("\n")), "", ""]).encode()


def message_event(data: bytes) -> bytes:
    """Return an event named ``message`` with data of one line, as MCP's transports have it."""
    return b"event: message\ndata: " + data + b"\n\n"


def read_event(event: bytes, *, first: bool = False) -> tuple[str, str]:
    """Return name and data of one event: ``message`` where it has no name, data lines joined by LF.

    A name without data is not an event at all for its reader; the data is then empty.

    Args:
        event: its bytes.
        first: whether the stream begins with it: only there a byte order mark is none of its text.
    """
    name, lines = "message", []
    text = event.decode("utf-8", "replace")
    for line in _LINE_END.split(text.removeprefix("\ufeff") if first else text):
        field, _, value = line.partition(":")
        if field == "data":
            lines.append(value.removeprefix(" "))
        elif field == "event":
            name = value.removeprefix(" ") or "message"
    return name, "\n".join(lines)


def text_beside(event: bytes) -> str:
    """Return the lines of an event that say something and are none of its data.

    Comments and fields that nobody knows: who reads the stream as a text is shown them all.
    """
    text = event.decode("utf-8", "replace").removeprefix("\ufeff")
    return "\n".join(line for line in _LINE_END.split(text) if not _ORDINARY.match(line))


def has_unknown_field(event: str) -> bool:
    """Return whether an event has a line that is neither a field of the standard nor a comment."""
    names = (line.partition(":")[0] for line in _LINE_END.split(event) if line)
    return any(name not in _FIELDS for name in names)


_FIELDS: Final = frozenset({"", "data", "event", "id", "retry"})
