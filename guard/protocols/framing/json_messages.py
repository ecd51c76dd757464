"""JSON that can be read one way only, and the JSON-RPC 2.0 messages written in it.  Pure: no I/O.

RFC 8259 leaves duplicate names, lone surrogates and numbers beyond a double to the reader; two
readers that differ there are how an inspector is walked around.  All of these are refused.
JSON-RPC frames MCP (over HTTP and over stdio) and A2A.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Final, NoReturn

import re2

from guard.core.errors import MessageError
from guard.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from guard.core.model import Json

_BAD_JSON: Final = "bad_json"
_SURROGATE: Final = re2.compile(rb"\\u[Dd][89A-Fa-f]")
"""Half a character by its number; in UTF-8 there is none."""


def parse_json(body: bytes) -> Json:
    """Return the value of a JSON document.

    Raises:
        MessageError: not UTF-8, a byte order mark, not JSON, a duplicate object name, ``NaN`` or
            an infinity, a lone surrogate, or nested too deep.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MessageError(_BAD_JSON, f"the body is not utf-8 at byte {error.start}") from error
    if text.startswith("\ufeff"):
        raise MessageError(_BAD_JSON, "the body starts with a byte order mark")
    try:
        # As `_DECODER.decode` does, in fewer steps where nothing stands before the value.
        text = text.rstrip(" \t\n\r")
        try:
            value, end = _SCAN(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):
            value = _DECODER.decode(text)
    except RecursionError as error:
        raise MessageError(_BAD_JSON, "the body is nested too deep") from error
    except json.JSONDecodeError as error:
        raise MessageError(
            _BAD_JSON, f"the body is not json: {error.msg} at {error.pos}"
        ) from error
    except ValueError as error:
        raise MessageError(_BAD_JSON, f"the body is not json: {error}") from error
    if b"\\" in body and _SURROGATE.search(body) is not None:
        _refuse_surrogates(value)
    return value


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise MessageError("duplicate_key", "the body has a duplicate object name")
    return value


def _constant(name: str) -> NoReturn:
    raise MessageError(_BAD_JSON, f"the body has the constant `{name}`, which is not json")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MessageError(_BAD_JSON, "the body has a number beyond a double")
    return value


def _refuse_surrogates(value: Json) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise MessageError(_BAD_JSON, "the body has a lone surrogate") from error


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float
)
_SCAN: Final[Callable[[str, int], tuple[Json, int]]] = _DECODER.scan_once  # type: ignore[attr-defined]


_NOT_RPC: Final = "bad_jsonrpc"
BATCH_LIMIT: Final = 64
"""Messages one batch may have."""
_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
REFUSED: Final = -32003
"""Implementation-defined server error: the guard refused the request."""


@frozen
class RpcMessage:
    """One message: a request (method and id), a notification (method), or a response."""

    method: str | None
    id: str | int | None
    params: Mapping[str, Json]
    result: Json = None
    error: Json = None
    correlation: str | None = None
    """The id with its type: ``1`` and ``"1"`` are different ids."""


def correlation(identifier: str | int) -> str:
    """Return an id with its type."""
    return f"s:{identifier}" if isinstance(identifier, str) else f"i:{identifier}"


def identified(key: str) -> str | int:
    """Return the id that :func:`correlation` was given."""
    kind, _, value = key.partition(":")
    return int(value) if kind == "i" else value


def read_messages(value: Json) -> tuple[RpcMessage, ...]:
    """Return the messages of a body: one, or a batch.

    Raises:
        MessageError: not JSON-RPC 2.0, an empty or too large batch, two equal ids in one batch.
    """
    items = value if isinstance(value, list) else [value]
    if not items or len(items) > BATCH_LIMIT:
        raise MessageError(_NOT_RPC, f"a batch must have 1 to {BATCH_LIMIT} messages")
    messages: list[RpcMessage] = []
    ids: set[str] = set()
    for item in items:
        message = _read(item)
        if message.method is not None and message.correlation is not None:
            if message.correlation in ids:
                raise MessageError(_NOT_RPC, "two requests of a batch have the same id")
            ids.add(message.correlation)
        messages.append(message)
    return tuple(messages)


_AS_STATUS: Final = frozenset({401, 405, 407, 415, 421})
"""HTTP statuses that a client must see as such: they are about the connection, not the message."""


def is_in_band(error: MessageError) -> bool:
    """Return whether an error is told in an answer to its message, with status 200.

    A JSON-RPC client takes another status for the end of its connection, and its model is told
    nothing, or waits.
    """
    return error.status not in _AS_STATUS


def asked_for(value: Json) -> list[tuple[str | int, str]]:
    """Return id and method of each request in a body.

    Read leniently: nothing of the message is forwarded, and who gets its id back has sent it.

    Args:
        value: of the body, as :meth:`HttpRequest.lenient_json` returns it.
    """
    found: list[tuple[str | int, str]] = []
    for item in _messages(value):
        identifier, method = item.get("id"), item.get("method")
        if isinstance(identifier, bool) or not isinstance(method, str):
            continue
        if isinstance(identifier, str | int):
            found.append((identifier, method))
    return found


def is_unanswered(value: Json) -> bool:
    """Return whether a body holds notifications or answers only, to which nobody expects one."""
    items = _messages(value)
    return bool(items) and all(
        ("method" in item and "id" not in item) or "result" in item or "error" in item
        for item in items
    )


def _messages(value: Json) -> list[dict[str, Json]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items[:BATCH_LIMIT] if isinstance(item, dict)]


_OUTLINED: Final = re.compile(
    rb'"(id|method)"\s*:\s*("(?:[^"\\]|\\.){0,256}"|-?\d{1,18})\s*(?=[,}])', re.DOTALL
)
DRAINED: Final = 4
"""Multiple of a body's limit that is read and dropped, so that its sender gets the reason of the
refusal."""
_KEPT: Final = 4096
"""Bytes that are kept of the begin of such a body, and of its end."""


class RequestOutline:
    """Id and method of a request in a body too large to be read, found as it goes by.

    They stand before the parameters or behind them, so only the begin and the end are kept.  Of a
    batch nothing is found.
    """

    def __init__(self) -> None:
        self.size = 0
        """Bytes that went by."""
        self._begin = self._end = b""

    def feed(self, data: bytes) -> None:
        """Let a piece go by."""
        self.size += len(data)
        self._begin += data[: _KEPT - len(self._begin)]
        self._end = (self._end + data[-_KEPT:])[-_KEPT:]

    def text(self) -> bytes:
        """Return a request with these members and no other, empty where there are none."""
        if not self._begin.lstrip().startswith(b"{"):
            return b""
        before = self._begin.partition(b'"params"')[0]
        behind = self._end.rstrip().removesuffix(b"}").rpartition(b"}")[2]
        found = dict(_OUTLINED.findall(before + behind + b"}"))
        if not found:
            return b""
        members = b",".join(b'"%b":%b' % pair for pair in found.items())
        return b'{"jsonrpc":"2.0",%b}' % members


def _read(item: Json) -> RpcMessage:
    if not isinstance(item, dict):
        raise MessageError(_NOT_RPC, "a json-rpc message must be an object")
    reject_lookalike_keys(item, _MEMBERS)
    if unknown := item.keys() - _MEMBERS:
        raise MessageError(_NOT_RPC, f"unknown member `{min(unknown)[:40]}` in a json-rpc message")
    if item.get("jsonrpc") != "2.0":
        raise MessageError(_NOT_RPC, 'a json-rpc message must have `"jsonrpc": "2.0"`')
    identifier = item.get("id")
    if isinstance(identifier, bool) or not isinstance(identifier, (str, int, type(None))):
        raise MessageError(_NOT_RPC, "a json-rpc id must be a string or an integer")
    if "method" in item:
        return _read_request(item, identifier)
    if "id" not in item or ("result" in item) == ("error" in item):
        raise MessageError(_NOT_RPC, "a json-rpc response must have an id and a result or an error")
    key = None if identifier is None else correlation(identifier)
    return RpcMessage(None, identifier, {}, item.get("result"), item.get("error"), key)


def _read_request(item: dict[str, Json], identifier: str | int | None) -> RpcMessage:
    method, params = item["method"], item.get("params", {})
    if not isinstance(method, str) or not method:
        raise MessageError(_NOT_RPC, "a json-rpc method must be a string")
    if "result" in item or "error" in item:
        raise MessageError(_NOT_RPC, "a json-rpc message is a request or a response, not both")
    if "id" in item and identifier is None:
        raise MessageError(_NOT_RPC, "a json-rpc request must not have the id null")
    if not isinstance(params, dict):
        raise MessageError(_NOT_RPC, "json-rpc params must be an object")
    key = None if identifier is None else correlation(identifier)
    return RpcMessage(method, identifier, params, correlation=key)


def reject_lookalike_keys(value: Mapping[str, Json], names: Iterable[str]) -> None:
    """Refuse keys that differ from a known name, or from each other, in case only.

    A reader that ignores case (Go's ``encoding/json`` does) would take them for the same key.

    Raises:
        MessageError: there is one.
    """
    if isinstance(names, frozenset) and names.issuperset(value):
        return  # Each is a known name as it is written.
    folded = dict(zip(map(str.casefold, value), value, strict=True))
    if len(folded) != len(value):
        raise MessageError("ambiguous_key", "two object names differ in case only")
    for name in names:
        if folded.get(name.casefold(), name) != name:
            raise MessageError("ambiguous_key", f"object name `{name}` is written in another case")
