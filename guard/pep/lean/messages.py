"""HTTP/1.1 messages of one connection, read by httptools (llhttp, strict) and written anew.

No grammar of HTTP is in here: llhttp cuts a connection into messages.  What it leaves open is
refused: versions, transfer codings, trailers, targets of other forms, more than one ``Host``.
Pure: no I/O.
"""

from __future__ import annotations

import re
from collections import deque
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Final

from httptools import (
    HttpParserError,
    HttpParserInvalidURLError,
    HttpParserUpgrade,
    HttpRequestParser,
    HttpResponseParser,
    parse_url,
)

from guard.core.errors import MessageError, OversizeError
from guard.core.frozen import frozen
from guard.pipeline.websocket_messages import opens_websocket
from guard.protocols.framing.json_messages import DRAINED, RequestOutline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

HEAD_LIMIT: Final = 64 * 1024
"""Bytes that the head of a message may have."""
NAMES_REMEMBERED: Final = 128
"""Names of fields, which are few, as they stand on the wire."""
_FIELD_BYTES: Final = 4
"""Bytes of a field besides name and value: colon, space and the end of the line."""
SWITCHING: Final = 101
_FIRST_FINAL: Final = 200
_VERSIONS: Final = frozenset({"1.0", "1.1"})
_BODILESS: Final = frozenset({204, 304})
Fields = tuple[tuple[bytes, bytes], ...]
"""Header fields in the order and the spelling of the wire; values without white space around."""


@frozen
class RequestRead:
    """A request that has arrived whole."""

    method: str
    target: str
    """In origin form, or ``*``."""
    fields: Fields
    body: bytes
    """Without its framing; its content coding is not undone."""
    is_http11: bool
    keeps_alive: bool
    """True if the connection may carry another request."""
    opens_socket: bool
    """True if it is the handshake of a WebSocket."""
    is_oversize: bool = False
    """True if its body was not kept: only its ids and methods are available."""


_LINE_ENDS: Final = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]|(?<![\x80-\xf7])\x85")
"""Line ends beyond ASCII; of those within it the parser takes none."""


@lru_cache(maxsize=NAMES_REMEMBERED)
def field_name(name: bytes) -> str:
    """Return the name of a field in lower case."""
    return name.decode("ascii").lower()


class _Head:
    """The fields of one message while they arrive."""

    __slots__ = ("_arrived", "fields", "is_complete", "size", "values")

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.values: dict[str, list[str]] = {}
        self.size = 0
        self._arrived = 0
        self.is_complete = False

    def add(self, name: bytes, value: bytes) -> None:
        """Take a field.

        Raises:
            MessageError: it stands behind the body, or the head has become too large.
        """
        if self.is_complete:
            raise MessageError("bad_http", "trailers are not accepted")
        self.size += len(name) + len(value) + _FIELD_BYTES
        if self.size > HEAD_LIMIT:
            raise _long_head()
        value = value.strip(b" \t")
        if not value.isascii() and _LINE_ENDS.search(value) is not None:
            raise MessageError("bad_http", "a header has a line end in it")
        self.fields.append((name, value))
        key = field_name(name)
        self.values.setdefault(key, []).append(value.decode("latin-1"))

    def grow(self, size: int) -> None:
        """Count bytes of the head.

        Raises:
            MessageError: there are too many.
        """
        self.size += size
        if max(self.size, self._arrived) > HEAD_LIMIT:
            raise _long_head()

    def arrive(self, size: int) -> None:
        """Count bytes of the wire: a field that does not end is not told of.

        Raises:
            MessageError: there are too many.
        """
        self._arrived += size
        self.grow(0)

    @property
    def held(self) -> int:
        """Bytes that are kept of it."""
        return max(self.size, self._arrived)

    def all(self, name: str) -> Sequence[str]:
        """Return the values of a field, by its name in lower case."""
        return self.values.get(name, ())

    def is_chunked(self, *, is_http11: bool) -> bool:
        """Return whether the body comes in chunks.

        Raises:
            MessageError: it has another transfer coding.
        """
        codings = self.all("transfer-encoding")
        if not codings:
            return False
        if [one.lower() for one in codings] != ["chunked"] or not is_http11:
            ends = len(codings) == 1 and codings[0].lower().endswith(", chunked")
            code = "bad_transfer_encoding" if ends else "bad_http"
            raise MessageError(code, "only chunked bodies are accepted")
        return True


def _long_head() -> MessageError:
    return MessageError("bad_http", "the head is too large", status=431)


class RequestReader:
    """Reads the requests of one connection.

    Args:
        body_limit: bytes one body may have.
    """

    def __init__(self, body_limit: int) -> None:
        self.complete: deque[RequestRead] = deque()
        """Requests that have arrived whole, in order."""
        self.error: MessageError | None = None
        """Why nothing more is read: what follows the complete requests is refused."""
        self.rest: bytes | None = None
        """Bytes after a handshake of a WebSocket; nothing more is read as HTTP then."""
        self.wants_continue = False
        """True if the client holds a body back until it receives ``100 Continue``."""
        self._limit = body_limit
        self._parser = HttpRequestParser(self)
        self._head: _Head | None = None
        self._url = b""
        self._body = BytesIO()  # gives its bytes without a copy
        self._outline: RequestOutline | None = None
        """Outline of a request that is too large, built while its bytes arrive."""

    @property
    def held(self) -> int:
        """Bytes of the request that is not complete."""
        return 0 if self._head is None else self._head.held + self._body.tell()

    def feed(self, data: bytes) -> None:
        """Read what has arrived; never raises, see :attr:`error`."""
        began, arrived = self._head, len(self.complete)
        try:
            self._parser.feed_data(data)
            head = self._head
            is_alone = head is began or (began is None and len(self.complete) == arrived)
            if head is not None and not head.is_complete and is_alone:
                head.arrive(len(data))
            if head is not None and self._parser.get_method() == b"PRI":
                # llhttp waits for the whole preface of HTTP/2, which is refused all the same.
                raise MessageError("bad_http", "HTTP/2 is not spoken here", status=505)
        except HttpParserUpgrade as upgrade:
            self.rest = data[upgrade.args[0] :]
        except MessageError as error:
            self.error = error
        except HttpParserError as error:
            cause = error.__context__
            told = cause if isinstance(cause, MessageError) else None
            spoken = _TLS if began is None and data.startswith(_HELLO) else str(error)
            self.error = told or MessageError("bad_http", spoken)
        if self.error is not None:
            self._body = BytesIO()
            self._head = None
            self.wants_continue = False

    def end(self) -> None:
        """Take note that the connection has ended: nothing is read any more."""
        # The two refer to each other: both would stay until Python looks for garbage.
        del self._parser

    # --- told by httptools ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._head, self._url = _Head(), b""

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        if self._head is not None:
            self._head.grow(len(url))
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field."""
        if self._head is not None:
            self._head.add(name, value)

    def on_headers_complete(self) -> None:
        """Refuse a head that another reader may take for something else."""
        head = self._head
        if head is None:
            raise MessageError("bad_http", "a head ends that never began")
        version = self._parser.get_http_version()
        if version not in _VERSIONS:
            raise MessageError("bad_http", "only HTTP/1.1 and 1.0 are spoken here", status=505)
        is_http11 = version == "1.1"
        method = self._parser.get_method().decode("ascii")
        self._check_target(method)
        hosts = head.all("host")
        if len(hosts) > 1 or (is_http11 and not hosts):
            raise MessageError("bad_http", "exactly one `host` is needed")
        chunked = head.is_chunked(is_http11=is_http11)
        length = head.all("content-length")
        # llhttp takes one length only, of digits, and none beside chunks.
        if length and int(length[0]) > self._limit * (1 if head.all("expect") else DRAINED):
            raise oversize()
        has_body = chunked or (bool(length) and int(length[0]) > 0)
        self._check_upgrade(method, head, has_body=has_body or not is_http11)
        expected = [one.lower() for one in head.all("expect")]
        self.wants_continue = is_http11 and has_body and expected == ["100-continue"]
        head.is_complete = True

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self.wants_continue = False
        if self._outline is None and self._body.tell() + len(body) > self._limit:
            # A client that is still sending reads no answer, and the id may stand last.
            self._outline = RequestOutline()
            self._outline.feed(self._body.getvalue())
            self._body = BytesIO()
        if self._outline is not None:
            self._outline.feed(body)
            if self._outline.size > self._limit * DRAINED:
                raise oversize()
            return
        # Not a list: a body in chunks of one byte would take fifty times its size.
        self._body.write(body)

    def on_message_complete(self) -> None:
        """Finish a request."""
        head, self._head = self._head, None
        if head is None or not head.is_complete:
            raise MessageError("bad_http", "a message ends that never began")
        parser = self._parser
        outline, self._outline = self._outline, None
        self.complete.append(
            RequestRead(
                method=parser.get_method().decode("ascii"),
                target=_path(self._url).decode("ascii"),
                fields=tuple(head.fields),
                body=self._body.getvalue() if outline is None else outline.text(),
                is_oversize=outline is not None,
                is_http11=parser.get_http_version() == "1.1",
                keeps_alive=parser.should_keep_alive(),
                opens_socket=bool(head.all("upgrade")),
            )
        )
        self._body = BytesIO()
        self.wants_continue = False

    def _check_target(self, method: str) -> None:
        if method == "CONNECT":
            raise MessageError("bad_http", "tunnels are not accepted here")
        if not self._url.isascii():
            raise MessageError("bad_http", "the target is not of ASCII")
        if not _path(self._url).startswith(b"/") and (self._url, method) != (b"*", "OPTIONS"):
            raise MessageError("bad_http", "the target is not a path")

    @staticmethod
    def _check_upgrade(method: str, head: _Head, *, has_body: bool) -> None:
        asked = head.all("upgrade")
        opens = bool(asked) and not has_body and opens_websocket(method, head.all)
        if (asked and not opens) or head.all("http2-settings"):
            raise MessageError("upgrade", "protocol upgrades are not accepted", status=403)


class AnswerReader:
    """Reads the answer to one request, of an upstream connection.

    Args:
        method: of the request.
    """

    def __init__(self, method: str) -> None:
        self.status = 0
        """Status of the final answer, once its head is there."""
        self.reason = b""
        self.waiting = bytearray()
        """Bytes of the body that have arrived and that no caller has taken."""
        self.is_complete = False
        self.is_reusable = False
        """True if the connection can carry another request once the answer is complete."""
        self.error = ""
        """Why nothing more is read."""
        self.rest: bytes | None = None
        """Bytes after an answer that switches the protocol."""
        self._is_head = method == "HEAD"
        self._parser = HttpResponseParser(self)
        self._head = _Head()
        self._ends_with_connection = False

    @property
    def fields(self) -> Fields:
        """The fields of its head."""
        return tuple(self._head.fields)

    def all(self, name: str) -> Sequence[str]:
        """Return the values of a field, by its name in lower case."""
        return self._head.all(name)

    def _is_over(self) -> bool:
        return self.is_complete or bool(self.error)

    def feed(self, data: bytes) -> None:
        """Read what has arrived; never raises, see :attr:`error`."""
        if self._is_over():
            # Nobody asked for more: what is on the connection now is no answer to anything.
            self.is_reusable = False
            return
        try:
            self._parser.feed_data(data)
            if not self._head.is_complete:
                self._head.arrive(len(data))
        except HttpParserUpgrade as upgrade:
            self.rest = data[upgrade.args[0] :]
        except (HttpParserError, MessageError) as error:
            self.is_reusable = False
            if not self.is_complete:
                self.error = str(error.__context__ or error)
        if self._is_over():
            # The two refer to each other: the answer would stay until Python looks for garbage.
            del self._parser

    def end(self) -> None:
        """Take note that the connection has ended."""
        self.is_reusable = False
        if self._is_over():
            return
        if self._head.is_complete and self._ends_with_connection:
            self.is_complete = True
        else:
            self.error = "the connection ended within the answer"
        del self._parser

    # --- told by httptools ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin an answer."""
        if self.is_complete:
            raise MessageError("bad_http", "an answer follows that nobody asked for")
        self._head, self.reason = _Head(), b""

    def on_status(self, reason: bytes) -> None:
        """Take a piece of the reason phrase."""
        self._head.grow(len(reason))
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field."""
        if self._head.is_complete:
            return  # A trailer: nobody has read it, nobody gets it.
        self._head.add(name, value)

    def on_headers_complete(self) -> None:
        """Take the head of a final answer; interim ones are not passed on."""
        status = self._parser.get_status_code()
        if status < _FIRST_FINAL and status != SWITCHING:
            return
        is_http11 = self._parser.get_http_version() == "1.1"
        chunked = self._head.is_chunked(is_http11=is_http11)
        self.status = status
        self._head.is_complete = True
        framed = chunked or bool(self._head.all("content-length")) or status in _BODILESS
        self._ends_with_connection = not framed and status != SWITCHING
        if self._is_head:
            # httptools cannot be told that no body follows: the connection is not used again.
            self.is_complete = True

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if not self._is_head:
            self.waiting += body

    def on_message_complete(self) -> None:
        """Finish the final answer."""
        if self._head.is_complete and not self.is_complete:
            self.is_complete = True
            self.is_reusable = self._parser.should_keep_alive() and self.status != SWITCHING


_HELLO: Final = b"\x16\x03"
"""First bytes of a TLS record with a handshake (RFC 8446, section 5.1)."""
_TLS: Final = "TLS is not spoken here: use http://"


def head_bytes(start: str, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a head as it goes on the wire.

    Args:
        start: the request or status line, of latin-1.
        fields: as they were read, or of the guard's own.
    """
    lines = [start.encode("latin-1")]
    lines += [name + b": " + value for name, value in fields]
    lines += [b"", b""]
    return b"\r\n".join(lines)


def chunk_bytes(data: bytes) -> bytes:
    """Return a chunk of a body; the empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def without(fields: Fields, drop: Callable[[bytes], bool]) -> list[tuple[bytes, bytes]]:
    """Return the fields whose names (lower case) are not dropped."""
    return [(name, value) for name, value in fields if not drop(name.lower())]


def _path(target: bytes) -> bytes:
    """Return the path and query of a target: of one in absolute form, who is named does not matter.

    Raises:
        MessageError: it is of no form that has one.
    """
    if target[:1] in {b"/", b"*"}:
        return target
    try:
        parts = parse_url(target)
    except HttpParserInvalidURLError as error:
        raise MessageError("bad_http", "the target is not a path") from error
    # The parser tells of no empty query or fragment: what follows the authority is taken as it is.
    behind = target.partition(b"://")[2]
    path = behind[behind.find(b"/") :]
    whole = parts.path and path.startswith(parts.path)
    if not whole or b"#" in target or parts.userinfo is not None:
        raise MessageError("bad_http", "the target is not a path")
    return path


def oversize() -> OversizeError:
    """Return the error of a body beyond the limit."""
    return OversizeError("the body is larger than the guard's `--body-limit`")
