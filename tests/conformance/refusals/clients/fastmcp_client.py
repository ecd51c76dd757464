"""FastMCP 2, 3 and 4, whose client tells of an error result by a ``ToolError`` with its text."""

from contextlib import asynccontextmanager

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import ToolError
from steps import joined, serve


def _transport(transport, where):
    if transport == "stdio":
        return StdioTransport(command=where[0], args=where[1:])
    return SSETransport(where) if transport == "sse" else StreamableHttpTransport(where)


@asynccontextmanager
async def client(transport, where):
    """Yield how a tool is called."""
    async with Client(_transport(transport, where)) as session:
        await session.list_tools()

        async def call(tool, arguments):
            try:
                return joined((await session.call_tool(tool, arguments)).content)
            except ToolError as error:
                return str(error)

        yield call


serve(client)
