"""What a client of revision 2026-07-28 sends, by hand, as scenarios that note what came back.

Run against :mod:`guard.lab.modern_server`, once directly and once through the guard.
"""

from __future__ import annotations

from typing import Any, Final

import httpx

from guard.lab.mcp_scenarios import OWN_HEADERS
from guard.lab.modern_server import REVISION, VERSION

_ABOUT: Final = {
    VERSION: REVISION,
    "io.modelcontextprotocol/clientInfo": {"name": "by hand", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    "progressToken": "t",
}
Step = tuple[str, dict[str, Any], dict[str, str]]
"""Method, parameters, and headers that differ from what the body says."""


def _call(name: str, **more: Any) -> Step:
    return "tools/call", {"name": name, "arguments": {}, **more}, {}


_GIVEN: Final = {"who": {"action": "accept", "content": {"name": "Ada"}}}
MODERN: Final[dict[str, tuple[Step, ...]]] = {
    "discover": (("server/discover", {}, {}),),
    "tools-list": (("tools/list", {}, {}),),
    "tools-call": (_call("echo", arguments={"words": "Grüße 😀 \u2028 line"}),),
    "tools-call-large": (_call("echo", arguments={"words": "x" * 700_000}),),
    "tools-call-error": (_call("fail", arguments={"words": "no"}),),
    "tools-call-progress": (_call("count", arguments={"words": "done"}),),
    "input-required": (
        _call("ask"),
        _call("ask", inputResponses=_GIVEN, requestState="asked"),
        _call("ask", inputResponses=_GIVEN, requestState="forged"),
    ),
    "resources-read": (("resources/read", {"uri": "fixture://note"}, {}),),
    "prompts-get": (("prompts/get", {"name": "greet", "arguments": {}}, {}),),
    "subscriptions-listen": (
        ("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, {}),
    ),
    "unknown-method": (("no/such", {}, {}),),
    "header-mismatch": (("tools/list", {}, {"mcp-method": "tools/call"}),),
    "version-mismatch": (("tools/list", {}, {"mcp-protocol-version": "2025-11-25"}),),
    "notification": (("notifications/cancelled", {"requestId": 1}, {}),),
}
"""The requests of each scenario, by name."""


async def run_modern(url: str, name: str) -> list[Any]:
    """Return status, headers and body of every answer, without the headers that always differ."""
    seen: list[Any] = []
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        for number, (method, params, differing) in enumerate(MODERN[name]):
            message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
            message["params"] = {**params, "_meta": _ABOUT}
            if not method.startswith("notifications/"):
                message["id"] = number
            headers = {
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": REVISION,
                "mcp-method": method,
                **({"mcp-name": _named(params)} if _named(params) else {}),
                **differing,
            }
            try:
                answer = await http.post(url, json=message, headers=headers)
            except httpx.HTTPError as error:
                seen.append(("failed", [type(error).__name__, str(error)]))
                continue
            kept = sorted((k, v) for k, v in answer.headers.items() if k not in OWN_HEADERS)
            seen.append([answer.status_code, kept, answer.text])
    return seen


def _named(params: dict[str, Any]) -> str:
    return str(params.get("name") or params.get("uri") or "")
