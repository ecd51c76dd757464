"""The second version of the official Python SDK; revision 2026-07-28, the older ones over SSE."""

from contextlib import asynccontextmanager

from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from steps import joined, serve


@asynccontextmanager
async def client(transport, where):
    """Yield how a tool is called."""
    server = where
    if transport == "stdio":
        server = StdioServerParameters(command=where[0], args=where[1:])
    elif transport == "sse":
        server = sse_client(where)
    async with Client(server) as session:
        await session.list_tools()

        async def call(tool, arguments):
            return joined((await session.call_tool(tool, arguments)).content)

        yield call


serve(client)
