"""An MCP message with other arguments in its calls.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.protocols.framing.jsonrpc import read_messages
from guard.protocols.http.rewriting import json_body, rewritten
from guard.protocols.mcp.headers import mirrored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.framing.jsonrpc import RpcMessage
    from guard.protocols.http.message import HttpRequest


def with_arguments(
    request: HttpRequest,
    arguments: Sequence[Mapping[str, Json]],
    is_call: Callable[[RpcMessage], bool],
) -> HttpRequest:
    """Return a message that has been read, with these arguments in its calls and headers.

    Raises:
        MessageError: a header repeats what has become two different values, or a number of the
            body would come out as another.
    """
    value = request.json()
    items = value if isinstance(value, list) else [value]
    pending = iter(arguments)
    written: list[Json] = []
    instead: list[tuple[Json, Json]] = []
    for item, rpc in zip(items, read_messages(value), strict=True):
        if not is_call(rpc):
            written.append(item)
            continue
        wanted = dict(next(pending))
        changed = {"arguments": wanted} if rpc.method == "tools/call" else wanted
        params = {**rpc.params, **changed}
        instead.append((rpc.params.get("arguments"), params.get("arguments")))
        written.append({**item, "params": params})
    return rewritten(
        request,
        body=json_body(request, written if isinstance(value, list) else written[0]),
        headers=mirrored(request.headers, instead),
    )
