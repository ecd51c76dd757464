"""Calls recall tools of a memory server over MCP, as an agent would; writes nothing."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from guard.core.model import Json

SECONDS: Final = 10.0


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
        async with asyncio.timeout(SECONDS), opened(url, trust, secret) as session:
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
            timeout=SECONDS, trust_env=False, verify=context, headers=headers
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
    wait = timedelta(seconds=SECONDS)
    result = await session.call_tool(tool, arguments, read_timeout_seconds=wait)
    if result.isError:
        raise OSError("the recall failed")
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)
