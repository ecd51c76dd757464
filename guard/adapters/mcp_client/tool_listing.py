"""Asks MCP servers for their tools, through the official SDK."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from guard.core.errors import GuardError
from guard.policy_files.proposal import ListedTool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from guard.policy_files.client_config import ConfiguredServer

SECONDS: Final = 30.0
PAGES: Final = 50
"""Most pages of a list that are asked for."""


async def list_tools(server: ConfiguredServer) -> list[ListedTool]:
    """Return the tools that a server lists.

    Raises:
        GuardError: it cannot be reached or started, or answers no list.
    """
    try:
        async with (
            asyncio.timeout(SECONDS),
            _streams(server) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return await _all(session)
    except Exception as error:
        # The SDK wraps what happened in groups of exceptions.
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        msg = f"server `{server.name}` lists no tools: {type(error).__name__}: {error}"
        raise GuardError(msg) from error


async def _all(session: ClientSession) -> list[ListedTool]:
    found: list[ListedTool] = []
    cursor = None
    for _ in range(PAGES):
        page = await session.list_tools(cursor)
        for tool in page.tools:
            properties = tool.inputSchema.get("properties")
            found.append(ListedTool(tool.name, properties if isinstance(properties, dict) else {}))
        cursor = page.nextCursor
        if not cursor:
            break
    return found


@asynccontextmanager
async def _streams(server: ConfiguredServer) -> AsyncIterator[tuple[Any, Any]]:
    if server.transport == "stdio":
        command, *words = server.command
        started = StdioServerParameters(command=command, args=words, env=dict(server.environment))
        async with stdio_client(started) as (read, write):
            yield read, write
    elif server.transport == "sse":
        async with sse_client(server.url, headers=dict(server.headers)) as (read, write):
            yield read, write
    else:
        async with (
            httpx.AsyncClient(headers=dict(server.headers), timeout=SECONDS) as client,
            streamable_http_client(server.url, http_client=client) as streams,
        ):
            yield streams[0], streams[1]
