"""HTTP metadata that can carry data: query and headers of a request.  Pure: no I/O.

A plain request has its notable headers among its arguments.  A message of another protocol whose
query or headers are not those of any client brings one more call with them, ``http.envelope``,
which is judged wherever the policy maps that name.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from guard.content.decoder import content_readings
from guard.content.leak_patterns import find_leaks
from guard.content.secret_forms import OWN_FORMS, SecretForms, looks_random
from guard.core.bounded_cache import bounded_cache
from guard.protocols.messages import ParsedCall

if TYPE_CHECKING:
    from guard.core.model import Json
    from guard.protocols.http.message import HttpRequest

TOOL: Final = "http.envelope"
_FRAMING: Final = frozenset(
    {
        "host",
        "connection",
        "keep-alive",
        "te",
        "accept-encoding",
        "content-length",
        "content-type",
        "content-encoding",
        "transfer-encoding",
    }
)
"""Read, checked or written anew by the guard itself."""
_HANDSHAKE: Final = frozenset(
    {"upgrade", "sec-websocket-extensions", "sec-websocket-key", "sec-websocket-version"}
)
"""Of a request that opens a WebSocket; checked before it is read as one, or taken away."""
_OWN: Final = ("x-guard-", "proxy-")
"""Begin the names of headers that go no further than the guard."""
_ORDINARY: Final = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-language",
        "baggage",
        "cache-control",
        "date",
        "dnt",
        "expect",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-unmodified-since",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "origin",
        "pragma",
        "priority",
        "range",
        "referer",
        "traceparent",
        "tracestate",
        "upgrade-insecure-requests",
        "user-agent",
        "x-request-id",
    }
)
"""Headers of any client; they say nothing more, unless their value looks like it."""
_ORDINARY_PREFIX: Final = "sec-"
_MIRRORED: Final = ("mcp-method", "mcp-name", "mcp-param-")
"""Compared with the body, which is judged."""
_CREDENTIALS: Final = frozenset({"authorization", "x-api-key", "api-key"})
"""For the server that the operator has chosen."""
_VARYING: Final = frozenset(
    {
        "baggage",
        "date",
        "last-event-id",
        "mcp-session-id",
        "traceparent",
        "tracestate",
        "x-request-id",
    }
)
"""Differ in every retry of one request."""
_SESSIONS: Final = frozenset({"session_id", "sessionid"})
_VALUE_LIMIT: Final = 256
_WORD: Final = re.compile(r"[\w.:/=~+-]{1,64}", re.ASCII)
_LONG: Final = re.compile(r"[A-Za-z0-9_-]{20,}")
_ID: Final = re.compile(r"[0-9a-fA-F-]+|[A-Za-z_-]+")
"""A number as programs draw it, or words."""


def notable_headers(request: HttpRequest) -> dict[str, Json]:
    """Return the headers that say more than any client's, values of one name as a list."""
    found: dict[str, Json] = {}
    framing = _FRAMING | _HANDSHAKE if request.has_header("upgrade") else _FRAMING
    for name, value in request.headers:
        if name in framing or name.startswith(_OWN):
            continue
        if (name in _ORDINARY or name.startswith(_ORDINARY_PREFIX)) and is_plain(value):
            continue
        found[name] = value if name not in found else [*_listed(found[name]), value]
    return found


def metadata_call(request: HttpRequest, *, reads_query: bool) -> list[ParsedCall]:
    """Return the metadata of a message that has calls of its own, as one call; none if ordinary.

    Args:
        request: the message.
        reads_query: whether path and query are not among the arguments of its calls.
    """
    headers = {
        name: value
        for name, value in notable_headers(request).items()
        if not name.startswith(_MIRRORED) and name not in _CREDENTIALS
    }
    arguments: dict[str, Json] = {"method": request.method}
    if reads_query and not is_usual(request.target):
        arguments["url"] = request.url
    if headers:
        arguments["headers"] = headers
    return [ParsedCall(TOOL, arguments)] if len(arguments) > 1 else []


def request_context(request: HttpRequest, meta: Json) -> str:
    """Return the digest of what a request says beside its call and repeats in a retry.

    Args:
        request: the message.
        meta: what the call itself says beside its arguments.
    """
    path, _, query = request.target.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    parts = [
        request.method,
        request.scheme,
        request.host.lower(),
        path,
        [pair for pair in pairs if pair[0].lower() not in _SESSIONS],
        {n: v for n, v in notable_headers(request).items() if n not in _VARYING},
        meta,
    ]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def is_usual(target: str) -> bool:
    """Return whether a target is a path with nothing behind it but a session id."""
    path, _, query = target.partition("?")
    names = (name.lower() for name, _ in parse_qsl(query, keep_blank_values=True))
    return is_plain(path) and is_plain(query) and all(name in _SESSIONS for name in names)


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]


@bounded_cache(4096)
def is_plain(value: str) -> bool:
    """Return whether a value has neither the form of a secret nor text under a coding."""
    if len(value) > _VALUE_LIMIT or not value.isascii() or find_leaks(value):
        return False
    if any(looks_random(found) for found in _LONG.findall(value) if not _ID.fullmatch(found)):
        return False
    readings = content_readings(value).texts
    return not any(True for _ in _forms().spans("\n".join(readings))) and all(
        _WORD.fullmatch(reading) or reading == value for reading in readings
    )


@lru_cache(maxsize=1)
def _forms() -> SecretForms:
    return SecretForms(OWN_FORMS)
