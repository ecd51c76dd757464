"""A stateless MCP server of revision 2026-07-28, made by hand for the transparency benchmark.

The SDK that the guard supports does not speak this revision, so nothing of it is used here.  The
conformance suite runs against a server of the SDK that does (``make conformance``).
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from guard.processes.loopback import serve_on_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

REVISION: Final = "2026-07-28"
VERSION: Final = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
HEADER_MISMATCH: Final = -32020
UNSUPPORTED: Final = -32022
NOT_FOUND: Final = -32601
_TOOLS: Final = [
    {"name": name, "description": f"Do {name}.", "inputSchema": {"type": "object"}}
    for name in ("echo", "count", "fail", "ask")
]
_ABOUT: Final = {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "1"}}
_HINTS: Final = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
_FORM: Final = {
    "method": "elicitation/create",
    "params": {
        "message": "What is your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}


def build() -> Starlette:
    """Return the server."""
    return Starlette(routes=[Route("/mcp", _answer, methods=["POST"])])


async def _answer(request: Request) -> Response:
    message = await request.json()
    method, params = message.get("method"), message.get("params", {})
    if "id" not in message:
        return Response(status_code=202)
    identifier = message["id"]
    meta = params.get("_meta", {})
    named = request.headers.get("mcp-protocol-version")
    if meta.get(VERSION) != named or request.headers.get("mcp-method") != method:
        return _error(identifier, HEADER_MISMATCH, "headers and body differ", 400)
    if named != REVISION:
        return _error(identifier, UNSUPPORTED, "unsupported protocol version", 400)
    if method == "subscriptions/listen" or params.get("name") == "count":
        events = _changes(identifier) if method != "tools/call" else _counted(identifier, params)
        return StreamingResponse(events, media_type="text/event-stream")
    result = _result(method, params)
    if result is None:
        return _error(identifier, NOT_FOUND, "method not found", 404)
    return JSONResponse({"jsonrpc": "2.0", "id": identifier, "result": {"_meta": _ABOUT, **result}})


def _result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "server/discover":
        capable = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
        return {"supportedVersions": [REVISION], "capabilities": capable, **_HINTS}
    if method == "tools/list":
        return {"tools": _TOOLS, **_HINTS}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "a note"}], **_HINTS}
    if method == "prompts/get":
        said = {"role": "user", "content": {"type": "text", "text": f"Greet {params['name']}."}}
        return {"messages": [said], "resultType": "complete"}
    if method == "tools/call":
        return _called(params)
    return None


def _called(params: dict[str, Any]) -> dict[str, Any]:
    words = str(params.get("arguments", {}).get("words", ""))
    if params["name"] == "ask":
        given = params.get("inputResponses", {}).get("who")
        if given is None or params.get("requestState") != "asked":
            asked = {"inputRequests": {"who": _FORM}, "requestState": "asked"}
            return {"resultType": "input_required", **asked}
        words = f"Hello, {given['content']['name']}!"
    content = [{"type": "text", "text": words}]
    return {"content": content, "isError": params["name"] == "fail", "resultType": "complete"}


async def _counted(identifier: Any, params: dict[str, Any]) -> AsyncIterator[bytes]:
    token = params["_meta"].get("progressToken")
    for number in (1, 2, 3):
        step = {"progressToken": token, "progress": number, "total": 3}
        yield _event({"jsonrpc": "2.0", "method": "notifications/progress", "params": step})
        await asyncio.sleep(0)
    yield _event({"jsonrpc": "2.0", "id": identifier, "result": _called(params)})


async def _changes(identifier: Any) -> AsyncIterator[bytes]:
    meta = {"_meta": {SUBSCRIPTION: identifier}}
    for name in ("subscriptions/acknowledged", "tools/list_changed"):
        yield _event({"jsonrpc": "2.0", "method": f"notifications/{name}", "params": meta})
    result = {"resultType": "complete", **meta}
    yield _event({"jsonrpc": "2.0", "id": identifier, "result": result})


def _event(message: dict[str, Any]) -> bytes:
    return f"event: message\ndata: {json.dumps(message)}\n\n".encode()


def _error(identifier: Any, code: int, message: str, status: int) -> Response:
    error = {"code": code, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": identifier, "error": error}, status)


if __name__ == "__main__":
    serve_on_loopback(build)
