"""Asks MCP servers for their tools, through the official SDK.

Calls recall tools of a memory server over MCP, as an agent would; writes nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
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
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

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
    cause = first_cause(error)
    return GuardError(f"server `{server.name}` lists no tools: {type(cause).__name__}: {cause}")


def first_cause(error: BaseException) -> BaseException:
    """Return what happened: the SDK wraps it in groups of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _listed(server: ConfiguredServer) -> list[ListedTool]:
    async with asyncio.timeout(SECONDS), _opened(server) as session:
        tools = await every_page(session.list_tools, "tools")
    shown = (one.model_dump(mode="json", by_alias=True, exclude_unset=True) for one in tools)
    return [*map(listed_tool, shown)]


async def every_page(ask: Callable[[str | None], Awaitable[Any]], member: str) -> list[Any]:
    """Return the entries of all pages of a list.

    Args:
        ask: asks for one page, by its cursor.
        member: of a page that has the entries.
    """
    found: list[Any] = []
    cursor = None
    for _ in range(PAGES):
        page = await ask(cursor)
        found += getattr(page, member)
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
async def _opened(server: ConfiguredServer) -> AsyncIterator[ClientSession]:
    if server.transport == "http":
        async with open_session(server.url, dict(server.headers), SECONDS) as session:
            yield session
        return
    if server.transport == "sse":
        transport = sse_client(server.url, dict(server.headers), SECONDS)
    else:
        command, *words = server.command
        environment = dict(server.environment)
        started = StdioServerParameters(command=command, args=words, env=environment)
        transport = stdio_client(started)
    async with transport as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def open_session(
    url: str, headers: Mapping[str, str], seconds: float, **options: Any
) -> AsyncIterator[ClientSession]:
    """Open a session with a server that speaks Streamable HTTP, and close it at the end.

    Args:
        url: of the endpoint.
        headers: of every request.
        seconds: for each answer.
        options: of the HTTP client.
    """
    async with (
        httpx.AsyncClient(headers=headers, timeout=seconds, **options) as client,
        streamable_http_client(url, http_client=client) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        yield session


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
    context = ssl.create_default_context()
    headers = {"proxy-authorization": f"Bearer {secret}"} if secret else {}
    wait = timedelta(seconds=RECALL_SECONDS)
    try:
        if trust:
            context.load_verify_locations(trust)
        opened = open_session(url, headers, RECALL_SECONDS, verify=context, trust_env=False)
        async with asyncio.timeout(RECALL_SECONDS), opened as session:
            result = await session.call_tool(tool, arguments, read_timeout_seconds=wait)
    except Exception as error:
        cause = first_cause(error)
        # Nothing of what was said is repeated.
        what = type(cause).__name__
        if isinstance(cause, httpx.HTTPStatusError):
            what = f"status {cause.response.status_code}"
        raise OSError(f"the memory server cannot be asked ({what})") from error
    if result.isError:
        raise OSError("the recall failed")
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)
