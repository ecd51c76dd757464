"""An HTTP request and reply as frozen values, whichever PEP they came through.  Pure: no I/O.

Selection of the request headers that go on to the server.  Pure: no I/O.

The guard's own headers and the credential for it concern nobody else.  Forwarding headers are those
by which a server's own reverse proxy tells it about its client: who that is, where it comes from,
and which host, scheme or path it asked for (RFC 7239).  A server behind a proxy believes them, so
the first proxy leaves out what a client says itself.

Query strings, forms and multipart bodies that can be read one way only.  Pure: no I/O.

Servers disagree on duplicate fields, broken escapes, ``;`` as a separator, and on what a multipart
body may have around its parts.  All of that is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes, urlencode

from guard.core.errors import MessageError
from guard.core.frozen import frozen
from guard.protocols.framing.json_messages import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json


_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')


@frozen
class HttpRequest:
    """One HTTP request whose body is complete and decoded.

    INVARIANT (one reading): the body is the content after at most one content coding; every
    header the guard decides on occurs at most once, or the request is refused.
    """

    method: str
    scheme: str
    host: str
    """The authority the request will be sent to: ``host`` or ``host:port``."""
    target: str
    """Path with query, as on the wire."""
    headers: tuple[tuple[str, str], ...]
    """Names in lower case, in wire order."""
    body: bytes
    server: str
    """Name of the listener it came in by."""
    connection: str
    """Names the client connection, unique in this process."""
    chosen: bool = False
    """True if the agent chose the host, not the operator: it came by a forward listener."""
    secure: bool = False
    """True if its client speaks TLS to the listener."""
    certificates: tuple[bytes, ...] = ()
    """Certificates from the client's TLS handshake, leaf first, as DER; they are not verified."""
    names: Mapping[str, str] = field(init=False, compare=False, repr=False)
    """The names of its headers, each with its last value."""
    _memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Look at the headers once."""
        object.__setattr__(self, "names", dict(self.headers))

    @property
    def url(self) -> str:
        """The absolute URL the request goes to."""
        return f"{self.scheme}://{self.host}{self.target}"

    def header(self, name: str) -> str | None:
        """Return the one value of a header, None where it is absent.

        Raises:
            MessageError: it occurs more than once.
        """
        value = self.names.get(name)
        if value is not None and len(self.names) < len(self.headers):
            count = [key for key, _ in self.headers].count(name)
            if count > 1:
                raise MessageError("duplicate_header", f"header `{name}` occurs {count} times")
        return value

    def proved(self, principal: str | None = None) -> str | None:
        """Return the principal that it was found to prove, after noting it where one is given.

        A proof may take an RSA verification, or a look at every secret there is.
        """
        if principal is not None:
            self._memo["principal"] = principal
        return self._memo.get("principal")

    def forget_proof(self) -> None:
        """Have it proved anew: what is held is judged again much later."""
        self._memo.pop("principal", None)

    @property
    def media_type(self) -> str:
        """The media type without parameters, lower case, empty where there is none.

        Raises:
            MessageError: there are several, in one field or in more.
        """
        value = self.header("content-type") or ""
        if "," in value and "," in _QUOTED.sub("", value):
            # A proxy may have joined two fields into one (RFC 9110, section 5.3); this one has no
            # list, so each reader would take another of them.
            raise MessageError("duplicate_header", "header `content-type` has more than one value")
        return value.split(";", 1)[0].strip().lower()

    def parsed(self, value: Json | MessageError) -> None:
        """Note the JSON of the body, or why it has none, as it was read elsewhere."""
        self._memo["json"] = value

    def json(self) -> Json:
        """Return the body as JSON, parsed once.

        Raises:
            MessageError: it is not JSON that can be read one way only.
        """
        if "json" not in self._memo:
            try:
                self._memo["json"] = parse_json(self.body)
            except MessageError as error:
                self._memo["json"] = error
        value = self._memo["json"]
        if isinstance(value, MessageError):
            raise value
        return value

    def lenient_json(self) -> Json:
        """Return the body as one of many readers would see it, None where it is not JSON."""
        try:
            return self.json()
        except MessageError:
            pass
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@frozen
class HttpReply:
    """An answer the guard gives itself."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    stream: tuple[str, str, str] | None = None
    """Listener, principal and session of the open event stream in which the client reads its
    answers; None where it reads them in the answer to its request."""

    @property
    def retry_after(self) -> int:
        """Seconds after which the client is told to try again, 0 where it is not."""
        return next((int(value) for name, value in self.headers if name == "retry-after"), 0)


ACCEPTED: Final = HttpReply(202, "text/plain", b"Accepted")
"""The answer to a request whose own answer is sent into an event stream."""
REDACTION_FAILED: Final = "redaction_failed"


def rewritten(
    request: HttpRequest,
    *,
    body: bytes | None = None,
    target: str | None = None,
    headers: tuple[tuple[str, str], ...] | None = None,
) -> HttpRequest:
    """Return a request with other parts, that has not been read yet."""
    return replace(
        request,
        body=request.body if body is None else body,
        target=request.target if target is None else target,
        headers=request.headers if headers is None else headers,
        _memo={},
    )


def json_body(request: HttpRequest, value: Json) -> bytes:
    """Return a JSON body in place of a request's.

    Raises:
        MessageError: the request has a number that would come out as another.
    """
    json.loads(request.body, parse_float=_exact)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def fields_text(fields: Mapping[str, Json]) -> str:
    """Return fields as a query or a form has them."""
    return urlencode(fields, doseq=True)


def _exact(text: str) -> float:
    value = float(text)
    if Decimal(text) != Decimal(repr(value)):
        raise MessageError(REDACTION_FAILED, "the body has a number that no double is")
    return value


SESSION_HEADER: Final = "x-guard-session"
NONCE_HEADER: Final = "x-guard-nonce"
TOKEN_HEADER: Final = "x-guard-promotion-token"  # noqa: S105  (the name of a header)
"""For memory stores whose tools have no place for a nonce or a promotion token."""
PROXY_CREDENTIAL: Final = "proxy-authorization"
HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding"}
)
"""Fields of one connection (RFC 9110, section 7.6.1); both sides get their own."""
_FOR_THE_GUARD: Final = re.compile(rb"x-guard-.*|proxy-authorization|proxy-connection")
_FORWARDING: Final = re.compile(
    rb"forwarded|remote-user|script-name|front-end-https|ssl-client-.*"
    rb"|(?:x-)?(?:client-ip|remote-(?:user|ip|addr)|authenticated-user)|x-remote-(?:user|group)s?-.*"
    rb"|x-(?:forwarded(?:-.*)?|original-(?:host|forwarded-.*)|real-ip|cluster-client-ip|host)"
    rb"|x-(?:http-host-override|(?:url-)?scheme|script-name|proxyuser-ip|middleware-subrequest)"
    rb"|x-(?:auth-request|webauth|ssl-client|amzn-oidc|goog-authenticated-user|ms-client-principal)"
    rb"(?:-.*)?|x-(?:client-(?:cert|verify|dn).*|arr-clientcert|goog-iap-jwt-assertion|azure-.*ip)"
    rb"|(?:true|cf-connecting|fastly|fly)-(?:client-)?ip(?:v6)?|tailscale-user-.*"
    rb"|cf-access-(?:authenticated-user-email|jwt-assertion)|x-envoy-.*|x-accel-.*"
)


def is_forwarding(name: bytes) -> bool:
    """Return whether a header is a forwarding header.

    Args:
        name: in lower case, with ``-`` for ``_``.
    """
    return _FORWARDING.fullmatch(name) is not None


def is_sent_on(name: bytes, *, trusts_forwarded: bool) -> bool:
    """Return whether a header of a request goes on to its server.

    Args:
        name: in any case; ``_`` counts as ``-``, as for servers that hand headers on as variables
            (CGI, WSGI).
        trusts_forwarded: whether only a proxy that writes forwarding headers itself reaches the
            listener.
    """
    name = name.lower().replace(b"_", b"-")
    return _FOR_THE_GUARD.fullmatch(name) is None and (trusts_forwarded or not is_forwarding(name))


CODE: Final = "bad_fields"
FIELD_LIMIT: Final = 1000
"""Fields of one query or form, parts of one body."""
_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN: Final = re.compile(r"[\x21-\x7e]*", re.ASCII)
_DISPOSITION: Final = re.compile(
    r'form-data; ?name="(?P<name>[^"\\\r\n]*)"(?:; ?filename="(?P<filename>[^"\\\r\n]*)")?'
)
_PART_TYPE: Final = re.compile(r"[\x20-\x7e]{0,200}")
_SETTLED: Final = b"\0boundary"
"""Stands for a boundary; no body that has it is settled."""
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]", re.ASCII)
_UTF8: Final = frozenset({"utf-8", "utf8"})


def parse_fields(text: str, repeat: frozenset[str]) -> dict[str, Json]:
    """Return the fields of ``a=1&b=2``.

    Args:
        text: a query without its ``?``, or the body of a form.
        repeat: names that may occur more than once; their value is a list, however often they do.

    Raises:
        MessageError: a field twice (also in other case), a broken escape, a ``;``, an empty field.
    """
    if not text:
        return {}
    if not _PLAIN.fullmatch(text) or ";" in text or _BROKEN.search(text):
        raise MessageError(CODE, "the fields have a broken escape, a `;` or a raw character")
    pairs: list[tuple[str, Json]] = []
    for piece in text.split("&"):
        name, _, value = piece.partition("=")
        if not name:
            raise MessageError(CODE, "the fields have one without a name")
        pairs.append((_decoded(name), _decoded(value)))
    return collect(pairs, repeat)


def collect(pairs: list[tuple[str, Json]], repeat: frozenset[str]) -> dict[str, Json]:
    """Return fields by name.

    Raises:
        MessageError: too many, or a name twice that is not in ``repeat``.
    """
    if len(pairs) > FIELD_LIMIT:
        raise MessageError(CODE, f"there are more than {FIELD_LIMIT} fields")
    fields: dict[str, Json] = {}
    spelling: dict[str, str] = {}
    for name, value in pairs:
        if spelling.setdefault(name.casefold(), name) != name:
            raise MessageError("ambiguous_key", "two fields differ in case only")
        if name in repeat:
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise MessageError("duplicate_key", "a field occurs twice")
        else:
            fields[name] = value
    return fields


def parameters(content_type: str) -> dict[str, str]:
    """Return the parameters of a content type, names in lower case, quotes removed.

    Raises:
        MessageError: one occurs twice, or is malformed.
    """
    found: dict[str, str] = {}
    for piece in content_type.split(";")[1:]:
        name, equals, value = piece.strip().partition("=")
        name = name.strip().lower()
        if not equals or not name or name in found or "\\" in value:
            raise MessageError("bad_content_type", "the content type is malformed", status=415)
        found[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
        if '"' in found[name]:
            raise MessageError("bad_content_type", "the content type is malformed", status=415)
    return found


def check_charset(content_type: str) -> None:
    """Refuse a charset other than UTF-8.

    Raises:
        MessageError: there is one.
    """
    charset = parameters(content_type).get("charset", "utf-8")
    if charset.lower() not in _UTF8:
        raise MessageError(
            "bad_content_type",
            f"charset `{charset[:40]}` is not understood, send utf-8",
            status=415,
        )


def parse_multipart(body: bytes, content_type: str, repeat: frozenset[str]) -> dict[str, Json]:
    """Return the fields of a ``multipart/form-data`` body.

    A file is an object with ``filename``, ``content_type`` and ``content``; bytes in it that are
    not UTF-8 appear as U+FFFD.

    Raises:
        MessageError: anything but parts between boundaries, or a part that servers may read
            differently.
    """
    boundary = parameters(content_type).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise MessageError("bad_content_type", "the boundary is missing or malformed", status=415)
    mark = b"--" + boundary.encode("ascii")
    pieces = (b"\r\n" + body).split(b"\r\n" + mark)
    if pieces[0] or pieces[-1] not in {b"--", b"--\r\n"}:
        raise MessageError(CODE, "the body has something before its first or after its last part")
    if len(pieces) - 2 > FIELD_LIMIT:
        raise MessageError(CODE, f"there are more than {FIELD_LIMIT} fields")
    return collect([_part(piece) for piece in pieces[1:-1]], repeat)


def without_boundary(body: bytes, content_type: str) -> bytes:
    """Return a ``multipart`` body with the same boundary whatever its client has drawn.

    A body in which the boundary stands elsewhere than between parts is returned as it is: two
    bodies are the same here only if they differ in nothing but the boundary.

    Raises:
        MessageError: the content type is malformed.
    """
    boundary = parameters(content_type).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary) or _SETTLED in body:
        return body
    mark = boundary.encode("ascii")
    pieces = (b"\r\n" + body).split(b"\r\n--" + mark)
    if len(pieces) < 2 or any(mark in piece for piece in pieces):  # noqa: PLR2004  (no boundary)
        return body
    ends = [piece.startswith((b"\r\n", b"--\r\n")) or piece == b"--" for piece in pieces[1:]]
    return (b"\r\n--" + _SETTLED).join(pieces) if all(ends) else body


def _part(piece: bytes) -> tuple[str, Json]:
    head, blank, content = piece.partition(b"\r\n\r\n")
    if not blank or not head.startswith(b"\r\n"):
        raise MessageError(CODE, "a part has no head")
    headers = _part_headers(head[2:])
    disposition = _DISPOSITION.fullmatch(headers.get("content-disposition", ""))
    if disposition is None or "%" in disposition["name"]:
        raise MessageError(CODE, "a part has a disposition that can be read in two ways")
    kind = headers.get("content-type")
    if kind is not None:
        check_charset(kind)
    if disposition["filename"] is not None:
        text = content.decode("utf-8", "replace")
        file = {"filename": disposition["filename"], "content_type": kind or "", "content": text}
        return disposition["name"], file
    return disposition["name"], _utf8(content)


def _part_headers(head: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in _utf8(head).split("\r\n"):
        name, colon, value = line.partition(":")
        name = name.lower()
        # A transfer encoding would have to be undone; nobody sends one in a form.
        known = name in {"content-disposition", "content-type"}
        if not colon or not known or name in headers:
            raise MessageError(CODE, "a part has a header that the guard does not understand")
        headers[name] = value.strip(" ")
    if not _PART_TYPE.fullmatch(headers.get("content-type", "")):
        raise MessageError(CODE, "a part has a malformed content type")
    return headers


def _decoded(text: str) -> str:
    return _utf8(unquote_to_bytes(text.replace("+", " ")))


def _utf8(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MessageError(CODE, "a field is not utf-8") from error
    if "\x00" in text:
        raise MessageError(CODE, "a field has a zero byte")
    return text
