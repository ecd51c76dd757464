"""The first version of the official Python SDK."""

from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from steps import joined, serve


def _streams(transport, where):
    if transport == "stdio":
        return stdio_client(StdioServerParameters(command=where[0], args=where[1:]))
    return sse_client(where, timeout=60) if transport == "sse" else streamable_http_client(where)


@asynccontextmanager
async def client(transport, where):
    """Yield how a tool is called."""
    async with (
        _streams(transport, where) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        await session.list_tools()

        async def call(tool, arguments):
            return joined((await session.call_tool(tool, arguments)).content)

        yield call


serve(client)
