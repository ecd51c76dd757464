"""Messages that go out with other arguments than they came with.  Pure: no I/O.

A protocol module writes the message anew; :class:`Rewriting` then reads it as the upstream will,
and takes it only if it says exactly what it should.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from guard.core.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols import Message, ProtocolModule
    from guard.protocols.http_message import HttpRequest

CODE: Final = "redaction_failed"


class Rewriting:
    """One message that may have to be rewritten; satisfies ``guard.core.redaction.Rewrite``."""

    def __init__(self, protocol: ProtocolModule, request: HttpRequest, message: Message) -> None:
        self._protocol = protocol
        self._original = request
        self._message = message
        self.request: HttpRequest | None = None
        """What to forward instead, once there is something."""

    def __call__(self, arguments: Sequence[Mapping[str, Json] | None]) -> None:
        """Write the message with other arguments for some of its calls.

        Raises:
            MessageError: it cannot be done exactly.
        """
        calls = self._message.calls
        if any(instead is not None for instead in arguments[len(calls) :]):
            raise MessageError(CODE, "what a message says besides its calls is not rewritten")
        wanted = [
            dict(call.arguments if instead is None else instead)
            for call, instead in zip(calls, arguments[: len(calls)], strict=True)
        ]
        written = self._protocol.rewrite(self._original, wanted)
        read = self._protocol.parse(written)
        if [dict(call.arguments) for call in read.calls] != wanted:
            raise MessageError(CODE, "the rewritten message says something else")
        self.request = written


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
        raise MessageError(CODE, "the body has a number that no double is")
    return value
