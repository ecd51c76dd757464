"""The first version of the official Python SDK: revision 2025-11-25."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from steps import Person, joined, serve


@asynccontextmanager
async def client(url: str, person: Person) -> Any:
    """Yield how a tool is called."""

    async def asked(context: Any, params: Any) -> types.ElicitResult:
        del context, params
        action, content = await person.answer()
        return types.ElicitResult(action=action, content=content)

    async with (
        streamable_http_client(url) as (read, write, _),
        ClientSession(read, write, elicitation_callback=asked) as session,
    ):
        await session.initialize()

        async def call(tool: str, arguments: dict[str, Any]) -> str:
            return joined((await session.call_tool(tool, arguments)).content)

        yield call


serve(client)
