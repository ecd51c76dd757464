"""An HTTP request and reply as frozen values, whichever PEP they came through.  Pure: no I/O."""

from __future__ import annotations

import json
import re
from dataclasses import field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

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
                message = f"header `{name}` occurs {count} times"
                raise MessageError("duplicate_header", message)
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
            message = "header `content-type` has more than one value"
            raise MessageError("duplicate_header", message)
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
