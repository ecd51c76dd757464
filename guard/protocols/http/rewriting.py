"""Putting other arguments into a request: the parts protocol modules share.  Pure: no I/O."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from guard.core.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json
    from guard.protocols.http.message import HttpRequest

CODE: Final = "redaction_failed"


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
