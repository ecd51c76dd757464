"""The tool server behind every contestant: MCP enough for any gateway, and little work.

``python -m lab.peers.upstream`` prints its port and serves streamable HTTP without sessions
until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from lab.load import Responder, serve_until_end_of_input

if TYPE_CHECKING:
    from guard.core.model import Json

TOOL: Final = "email_send_email"
_TEXT: Final = {"type": "string"}
_TOOL: Final = {
    "name": TOOL,
    "description": "Sends a mail.",
    "inputSchema": {
        "type": "object",
        "properties": {"to": _TEXT, "subject": _TEXT, "body": _TEXT},
        "required": ["to"],
    },
}
_RESULTS: Final[dict[str, Json]] = {
    "tools/list": {"tools": [_TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "sent"}], "isError": False},
    "prompts/list": {"prompts": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "ping": {},
}
_NOT_ALLOWED: Final = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n"
_ACCEPTED: Final = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"


def answer_of(message: Json) -> dict[str, Json] | None:
    """Return the answer to one JSON-RPC message; None to a notification."""
    if not isinstance(message, dict) or message.get("id") is None:
        return None
    answer: dict[str, Json] = {"jsonrpc": "2.0", "id": message["id"]}
    method, params = message.get("method"), message.get("params")
    if method == "initialize" and isinstance(params, dict):
        return answer | {
            "result": {
                "protocolVersion": params.get("protocolVersion", "2025-06-18"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "tools", "version": "1"},
            }
        }
    if isinstance(method, str) and method in _RESULTS:
        return answer | {"result": _RESULTS[method]}
    return answer | {"error": {"code": -32601, "message": "method not found"}}


class McpResponder(Responder):
    """Answers MCP messages that are posted, and nothing else."""

    def answer(self, head: bytes, body: bytes) -> bytes:
        """Return the whole response to one request."""
        if not head.startswith(b"POST "):
            return _NOT_ALLOWED
        found = answer_of(json.loads(body))
        if found is None:
            return _ACCEPTED
        data = json.dumps(found).encode()
        start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
        return b"%s%d\r\n\r\n%s" % (start, len(data), data)


if __name__ == "__main__":
    asyncio.run(serve_until_end_of_input(McpResponder))
