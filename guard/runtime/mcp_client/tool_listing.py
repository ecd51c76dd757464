"""Asks MCP servers for their tools, through the official SDK.

Calls recall tools of a memory server over MCP, as an agent would; writes nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import httpx
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from guard.core.declarations import ToolDefinition
from guard.core.errors import GuardError
from guard.policy.proposal import ListedTool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from guard.core.model import Json
    from guard.policy.client_config import ConfiguredServer


SECONDS: Final = 30.0
PAGES: Final = 50
"""Most pages of a list that are asked for."""


async def list_tools(server: ConfiguredServer) -> tuple[list[ListedTool], ConfiguredServer]:
    """Return the tools that a server lists, and the server with the transport that it speaks.

    One that does not speak Streamable HTTP is asked by HTTP+SSE (2024-11-05), as clients do.

    Raises:
        GuardError: it cannot be reached or started, or answers no list.
    """
    try:
        return await _listed(server), server
    except Exception as error:
        if server.transport != "http":
            raise _failure(server, error) from error
        older = replace(server, transport="sse")
        try:
            return await _listed(older), older
        except Exception:  # noqa: BLE001  (what was said first is what its user can act on)
            raise _failure(server, error) from error


def _failure(server: ConfiguredServer, error: BaseException) -> GuardError:
    # The SDK wraps what happened in groups of exceptions.
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return GuardError(f"server `{server.name}` lists no tools: {type(error).__name__}: {error}")


async def _listed(server: ConfiguredServer) -> list[ListedTool]:
    async with (
        asyncio.timeout(SECONDS),
        _streams(server) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        return await _all(session)


async def _all(session: ClientSession) -> list[ListedTool]:
    found: list[ListedTool] = []
    cursor = None
    for _ in range(PAGES):
        page = await session.list_tools(cursor)
        for tool in page.tools:
            found.append(
                listed_tool(tool.model_dump(mode="json", by_alias=True, exclude_unset=True))
            )
        cursor = page.nextCursor
        if not cursor:
            break
    return found


def listed_tool(document: Mapping[str, Json]) -> ListedTool:
    """Return one entry of a ``tools/list`` with the digest by which the guard pins it."""
    name = str(document["name"])
    schema, annotations = document.get("inputSchema"), document.get("annotations")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return ListedTool(
        name,
        properties if isinstance(properties, dict) else {},
        annotations if isinstance(annotations, dict) else {},
        ToolDefinition(name, document).digest,
    )


@asynccontextmanager
async def _streams(server: ConfiguredServer) -> AsyncIterator[tuple[Any, Any]]:
    if server.transport == "stdio":
        command, *words = server.command
        started = StdioServerParameters(command=command, args=words, env=dict(server.environment))
        async with stdio_client(started) as (read, write):
            yield read, write
    elif server.transport == "sse":
        async with sse_client(server.url, dict(server.headers), SECONDS) as (read, write):
            yield read, write
    else:
        async with (
            httpx.AsyncClient(headers=dict(server.headers), timeout=SECONDS) as client,
            streamable_http_client(server.url, http_client=client) as streams,
        ):
            yield streams[0], streams[1]


RECALL_SECONDS: Final = 10.0


async def recall(
    url: str, tool: str, arguments: dict[str, Json], trust: str = "", secret: str = ""
) -> Json:
    """Return the result of a tool: its content, and its structured form where it has one.

    Args:
        url: of the MCP endpoint.
        tool: a recall.
        arguments: of the recall.
        trust: PEM file of authorities to trust besides the public ones.
        secret: of the principal as whom it is called, at a guard's listener; empty for nobody's.

    Raises:
        OSError: the server did not answer, or with an error, which says neither yes nor no.
    """
    async with _asked(url, trust, secret) as session:
        return await _called(session, tool, arguments)


def _cause(error: Exception) -> str:
    """Return what went wrong, without a word of what was said: the SDK wraps it in groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, httpx.HTTPStatusError):
        return f"status {error.response.status_code}"
    return type(error).__name__


async def listed(
    url: str, tool: str, arguments: dict[str, Json]
) -> tuple[Json, dict[str, frozenset[str]]]:
    """Return the result of a tool, and by tool of the server the names of its arguments.

    Raises:
        OSError: as :func:`recall`.
    """
    async with _asked(url) as session:
        tools = (await session.list_tools()).tools
        names = {one.name: frozenset(one.inputSchema.get("properties", {})) for one in tools}
        return await _called(session, tool, arguments), names


@asynccontextmanager
async def _asked(url: str, trust: str = "", secret: str = "") -> AsyncIterator[ClientSession]:
    """Open a session for one question, which is answered in time or raises OSError."""
    try:
        async with asyncio.timeout(RECALL_SECONDS), opened(url, trust, secret) as session:
            yield session
    except Exception as error:
        raise OSError(f"the memory server cannot be asked ({_cause(error)})") from error


@asynccontextmanager
async def opened(url: str, trust: str, secret: str = "") -> AsyncIterator[ClientSession]:
    """Open a session, and close it at the end."""
    context = ssl.create_default_context()
    if trust:
        context.load_verify_locations(trust)
    async with AsyncExitStack() as stack:
        headers = {"proxy-authorization": f"Bearer {secret}"} if secret else {}
        client = httpx.AsyncClient(
            timeout=RECALL_SECONDS, trust_env=False, verify=context, headers=headers
        )
        web = await stack.enter_async_context(client)
        streams = await stack.enter_async_context(streamable_http_client(url, http_client=web))
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        await session.initialize()
        yield session


async def _called(session: ClientSession, tool: str, arguments: dict[str, Json]) -> Json:
    """Return the result of a tool.

    Raises:
        OSError: the tool answered with an error.
    """
    wait = timedelta(seconds=RECALL_SECONDS)
    result = await session.call_tool(tool, arguments, read_timeout_seconds=wait)
    if result.isError:
        raise OSError("the recall failed")
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)
