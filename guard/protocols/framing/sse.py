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
    lines = [line for line in re.split(r"\r\n|\n|\r", text) if line]
    kept = [line for line in lines if line.removeprefix("\ufeff").partition(":")[0] != "data"]
    return "\n".join([*kept, *(f"data: {line}" for line in data.split("\n")), "", ""]).encode()


def message_event(data: bytes) -> bytes:
    """Return an event named ``message`` with data of one line, as MCP's transports have it."""
    return b"event: message\ndata: " + data + b"\n\n"


def read_event(event: bytes, *, first: bool = False) -> tuple[str, str]:
    """Return name and data of one event: ``message`` where it has no name, data lines joined by LF.

    A name without data is no event at all for its reader; the data is then empty.

    Args:
        event: its bytes.
        first: whether the stream begins with it: only there a byte order mark is none of its text.
    """
    name, lines = "message", []
    text = event.decode("utf-8", "replace")
    for line in re.split(r"\r\n|\n|\r", text.removeprefix("\ufeff") if first else text):
        field, _, value = line.partition(":")
        if field == "data":
            lines.append(value.removeprefix(" "))
        elif field == "event":
            name = value.removeprefix(" ") or "message"
    return name, "\n".join(lines)
