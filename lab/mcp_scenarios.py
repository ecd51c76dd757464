"""Scenarios of an MCP client that note everything the client saw.

Run against :mod:`lab.fixture_server`, once directly and once through the guard; whoever
compares the notes sees what the guard changed.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import httpx
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl, BaseModel

from lab.modern_server import REVISION, VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

PATIENCE: Final = timedelta(seconds=30)
OWN_HEADERS: Final = frozenset({"date", "mcp-session-id"})
"""Headers that differ from one request to the next without any guard."""
KEEPS: Final = ("connection", "keep-alive")
"""Headers that HTTP/1.1 need not send, and that describe one connection only (RFC 9110, 7.6.1)."""


class Client:
    """A client that answers whatever the server asks, and notes what it was told."""

    def __init__(self) -> None:
        self.notes: list[Any] = []

    def note(self, seen: BaseModel | tuple[str, Any]) -> None:
        """Record an observation, in order."""
        self.notes.append(seen if isinstance(seen, tuple) else seen.model_dump(mode="json"))

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answer a form."""
        del context
        self.note(("elicit", params.message))
        return types.ElicitResult(action="accept", content={"name": "Ada", "age": 36})

    async def sample(
        self, context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        """Answer as a model."""
        del context
        self.note(("sample", [m.model_dump(mode="json") for m in params.messages]))
        content = types.TextContent(type="text", text="forty-two")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def roots(self, context: Any) -> types.ListRootsResult:
        """Name a root."""
        del context
        self.note(("roots", None))
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///srv/x"}]})

    async def logged(self, params: types.LoggingMessageNotificationParams) -> None:
        """Keep a log line."""
        self.note(("log", params.data))

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Keep a progress notification."""
        self.note(("progress", [progress, total, message]))


@asynccontextmanager
async def session(url: str, client: Client) -> AsyncIterator[ClientSession]:
    """Open an initialised session."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=120) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(
            read,
            write,
            PATIENCE,
            sampling_callback=client.sample,
            elicitation_callback=client.elicit,
            list_roots_callback=client.roots,
            logging_callback=client.logged,
        ) as opened,
    ):
        client.note(await opened.initialize())
        yield opened


STEPS: Final[dict[str, Callable[[ClientSession, Client], Awaitable[Any]]]] = {
    "initialize": lambda mcp, _: mcp.send_ping(),
    "tools-list": lambda mcp, _: mcp.list_tools(),
    "tools-call-text": lambda mcp, _: mcp.call_tool("echo", {"text": "Grüße 😀 \u2028 line"}),
    "tools-call-large": lambda mcp, _: mcp.call_tool("echo", {"text": "x" * 700_000}),
    "tools-call-error": lambda mcp, _: mcp.call_tool("fail", {"text": "no"}),
    "tools-call-unknown": lambda mcp, _: mcp.call_tool("nothing", {}),
    "tools-call-invalid": lambda mcp, _: mcp.call_tool("count", {"to": "many"}),
    "tools-call-progress": lambda mcp, client: mcp.call_tool(
        "count", {"to": 20}, progress_callback=client.progress
    ),
    "elicitation": lambda mcp, _: mcp.call_tool("ask_user", {"question": "who?"}),
    "sampling": lambda mcp, _: mcp.call_tool("ask_model", {"question": "what?"}),
    "roots": lambda mcp, _: mcp.call_tool("ask_roots", {}),
    "resources-list": lambda mcp, _: mcp.list_resources(),
    "resources-templates": lambda mcp, _: mcp.list_resource_templates(),
    "resources-read": lambda mcp, _: mcp.read_resource(AnyUrl("fixture://note")),
    "resources-read-template": lambda mcp, _: mcp.read_resource(AnyUrl("fixture://number/7")),
    "prompts-list": lambda mcp, _: mcp.list_prompts(),
    "prompts-get": lambda mcp, _: mcp.get_prompt("greet", {"name": "Ada"}),
}
"""One request each, by name."""


async def run(url: str, name: str) -> list[Any]:
    """Return everything the client saw in a scenario; a failure is something it saw as well."""
    if name == "raw-bytes":
        return await _raw(url)
    client = Client()
    try:
        async with session(url, client) as mcp:
            client.note(await STEPS[name](mcp, client))
    except Exception as error:  # noqa: BLE001  (what fails directly must fail in the same way)
        client.note(("failed", [type(error).__name__, str(error)]))
    return client.notes


async def _raw(url: str) -> list[Any]:
    """Return status, headers and body as they came, without the headers that always differ."""
    headers = {"accept": "application/json, text/event-stream"}
    seen: list[Any] = []
    info = {"name": "raw", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    async with httpx.AsyncClient(trust_env=False, timeout=120, headers=headers) as http:
        for message in (
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": "two", "method": "tools/list"},
            {"jsonrpc": "2.0", "id": 3, "method": "no/such"},
        ):
            answer = await http.post(url, json=message)
            if known := answer.headers.get("mcp-session-id"):
                http.headers["mcp-session-id"] = known
            seen.append(_noted(answer))
        gone = await http.delete(url)
        seen.append([gone.status_code, gone.text])
    return seen


def _noted(answer: httpx.Response) -> list[Any]:
    """Return status, headers and body, without the headers that always differ."""
    kept = sorted(one for one in answer.headers.items() if one[0] not in OWN_HEADERS)
    return [answer.status_code, [one for one in kept if one != KEEPS], answer.text]


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
    async with httpx.AsyncClient(trust_env=False, timeout=120) as http:
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
            seen.append(_noted(answer))
    return seen


def _named(params: dict[str, Any]) -> str:
    return str(params.get("name") or params.get("uri") or "")
