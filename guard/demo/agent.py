"""The demo's agent: one session of it, speaking MCP with the official client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from guard.demo.stage import Stage

SESSION_HEADER: Final = "X-Guard-Session"
SHARE: Final = "notes.share"
"""The tool of the notes service: no MCP, a plain HTTP request that the policy maps."""
CALL_TIMEOUT: Final = timedelta(seconds=60)
HTTP_TIMEOUT: Final = httpx.Timeout(60)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one tool call, as the agent sees it."""

    is_error: bool
    texts: tuple[str, ...]
    structured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All text the tool (or the guard in its place) answered."""
        return "\n".join(self.texts)


class AgentSession:
    """One session of the agent; tools are found by name on the servers."""

    def __init__(
        self, tools: Mapping[str, ClientSession], client: httpx.AsyncClient, notes_url: str
    ) -> None:
        self._tools = tools
        self._client = client
        self._notes_url = notes_url

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Outcome:
        """Call a tool and return what came back, an error result included."""
        if tool == SHARE:
            return await self._share(arguments)
        result = await self._tools[tool].call_tool(
            tool, dict(arguments), read_timeout_seconds=CALL_TIMEOUT
        )
        texts = tuple(block.text for block in result.content if isinstance(block, TextContent))
        return Outcome(bool(result.isError), texts, result.meta or {})

    async def _share(self, arguments: Mapping[str, Any]) -> Outcome:
        url = f"{self._notes_url}/weekly/share"
        answer = await self._client.post(url, json=dict(arguments))
        return Outcome(answer.is_error, (answer.text,), answer.json() if answer.is_error else {})


@asynccontextmanager
async def agent_session(stage: Stage, name: str) -> AsyncIterator[AgentSession]:
    """Open one session of the agent with both servers, under one guard session id."""
    async with AsyncExitStack() as stack:
        tools: dict[str, ClientSession] = {}
        # An HTTP_PROXY of the user's must not take the demo's loopback traffic elsewhere.
        client = await stack.enter_async_context(
            httpx.AsyncClient(headers={SESSION_HEADER: name}, timeout=HTTP_TIMEOUT, trust_env=False)
        )
        for url in (stage.mail_url, stage.memory_url):
            read, write, _ = await stack.enter_async_context(
                streamable_http_client(url, http_client=client)
            )
            session = await stack.enter_async_context(ClientSession(read, write))
            await session.initialize()
            for tool in (await session.list_tools()).tools:
                tools[tool.name] = session
        yield AgentSession(tools, client, stage.notes_url)
