"""Calls a recall tool of a memory server once over MCP, as an agent would; writes nothing.

``python -m guard.adapters.mcp_client.store_recall URL TOOL [CA]`` takes the tool's arguments as
JSON on standard input and prints its result as JSON.  It is a process of its own: what
serves traffic imports no SDK.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from guard.core.model import Json

SECONDS: Final = 10.0
CA_ARGUMENT: Final = 3


async def recall(url: str, tool: str, arguments: dict[str, Json], trust: str = "") -> Json:
    """Return the result of a tool: its content, and its structured form where it has one.

    Args:
        url: of the MCP endpoint.
        tool: a recall.
        arguments: of the recall.
        trust: PEM file of authorities to trust besides the public ones.

    Raises:
        OSError: the server did not answer, or with an error, which says neither yes nor no.
    """
    try:
        async with asyncio.timeout(SECONDS):
            return await _recall(url, tool, arguments, trust)
    except Exception as error:
        msg = f"the memory server cannot be asked ({type(error).__name__})"
        raise OSError(msg) from error


async def _recall(url: str, tool: str, arguments: dict[str, Json], trust: str) -> Json:
    context = ssl.create_default_context()
    if trust:
        context.load_verify_locations(trust)
    async with AsyncExitStack() as stack:
        client = httpx.AsyncClient(timeout=SECONDS, trust_env=False, verify=context)
        web = await stack.enter_async_context(client)
        streams = await stack.enter_async_context(streamable_http_client(url, http_client=web))
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        await session.initialize()
        wait = timedelta(seconds=SECONDS)
        result = await session.call_tool(tool, arguments, read_timeout_seconds=wait)
        if result.isError:
            msg = "the recall failed"
            raise OSError(msg)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def main() -> int:
    """Ask once; return the exit code."""
    trust = sys.argv[CA_ARGUMENT] if len(sys.argv) > CA_ARGUMENT else ""
    try:
        result = asyncio.run(recall(sys.argv[1], sys.argv[2], json.load(sys.stdin), trust))
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    json.dump(result, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
