"""What MCP repeats of a message in headers and URLs must say what the body says.  Pure: no I/O.

Revision 2026-07-28 mirrors method, name and some arguments in ``Mcp-Method``, ``Mcp-Name`` and
``Mcp-Param-*``, for gateways that route without reading bodies.  The guard decides on the body; a
header that says something else would send the message elsewhere, so it is refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from guard.core.errors import MessageError
from guard.core.json_values import scalars_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.model import Json
    from guard.protocols.framing.jsonrpc import RpcMessage
    from guard.protocols.http.message import HttpRequest

CODE: Final = "header_mismatch"
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
"""Where ``params._meta`` has the revision, from 2026-07-28 on."""
NAMES: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The member of the params that ``Mcp-Name`` repeats, by method."""
_PARAM: Final = "mcp-param-"
_CODED: Final = re.compile(r"=\?base64\?(.*)\?=")
_SESSION_NAMES: Final = frozenset({"session_id", "sessionid"})


def check_headers(request: HttpRequest, messages: Sequence[RpcMessage]) -> None:
    """Compare the headers that repeat a message with the message.

    Raises:
        MessageError: they differ, or stand above a batch, of which they can say nothing.
    """
    method, name = request.header("mcp-method"), request.header("mcp-name")
    mirrored = [value for header, value in request.headers if header.startswith(_PARAM)]
    version = request.header("mcp-protocol-version")
    if version is not None and any(_revision(m) not in (None, version) for m in messages):
        raise MessageError(CODE, "`mcp-protocol-version` is not the revision of the message")
    if method is None and name is None and not mirrored:
        return
    if len(messages) != 1:
        raise MessageError(CODE, "headers that repeat a message cannot stand above a batch")
    message = messages[0]
    if method is not None and method != message.method:
        raise MessageError(CODE, "`mcp-method` is not the method of the message")
    member = NAMES.get(message.method or "")
    if name is not None and (member is None or _decoded(name) != message.params.get(member)):
        raise MessageError(CODE, "`mcp-name` is not the name in the message")
    if mirrored:
        said = set(_spelt(message.params.get("arguments")))
        if any(_decoded(value) not in said for value in mirrored):
            raise MessageError(CODE, "an `mcp-param-` header is not an argument of the message")


def mirrored(
    headers: tuple[tuple[str, str], ...], changes: Sequence[tuple[Json, Json]]
) -> tuple[tuple[str, str], ...]:
    """Return headers that repeat arguments, after the arguments of some calls have changed.

    Args:
        headers: names in lower case.
        changes: the arguments of each call, before and after; both have the same shape.

    Raises:
        MessageError: a header repeats a value that has become two different ones.
    """
    became: dict[str, set[str]] = {}
    for before, after in changes:
        for old, new in zip(_spelt(before), _spelt(after), strict=True):
            became.setdefault(old, set()).add(new)
    return tuple((name, _mirrored(name, value, became)) for name, value in headers)


def _mirrored(name: str, value: str, became: dict[str, set[str]]) -> str:
    said = _decoded(value) if name.startswith(_PARAM) else None
    now = became.get(said, set()) if said is not None else set()
    if not now or now == {said}:
        return value
    if len(now) > 1:
        raise MessageError(CODE, "a header repeats what is now two different values")
    coded = base64.b64encode(now.pop().encode()).decode()
    return f"=?base64?{coded}?="


def _revision(message: RpcMessage) -> Json:
    meta = message.params.get("_meta")
    return meta.get(VERSION_KEY) if isinstance(meta, dict) else None


def _decoded(value: str) -> str | None:
    """Return a header's value; None where its coding has no one reading."""
    coded = _CODED.fullmatch(value)
    if coded is None:
        return value
    try:
        raw = base64.b64decode(coded[1], validate=True)
        text = raw.decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if base64.b64encode(raw).decode() == coded[1] else None


def _spelt(value: Json) -> Iterator[str]:
    """Yield every scalar in a value as a header would spell it."""
    for item in scalars_in(value):
        yield str(item).lower() if isinstance(item, bool) else str(item)


def query_session(target: str) -> str | None:
    """Return the session id in the query of a URL, as HTTP+SSE (2024-11-05) has it.

    Raises:
        MessageError: there are two.
    """
    pairs = parse_qsl(urlsplit(target).query)
    found = {value for key, value in pairs if key.lower() in _SESSION_NAMES}
    if len(found) > 1:
        raise MessageError("bad_session_id", "the url has two session ids")
    return next(iter(found), None)


def meta_session(messages: Sequence[RpcMessage]) -> str | None:
    """Return the session id in ``_meta``, if the messages agree on one."""
    found: set[str] = set()
    for message in messages:
        meta = message.params.get("_meta")
        if isinstance(meta, dict):
            for key in ("session_id", "sessionId", "session.id"):
                if isinstance(meta.get(key), str):
                    found.add(meta[key])
    return found.pop() if len(found) == 1 else None
