"""The second version of the official Python SDK: revision 2026-07-28."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import Client
from steps import Person, joined, serve


@asynccontextmanager
async def client(url: str, person: Person) -> Any:
    """Yield how a tool is called."""

    async def asked(context: Any, params: Any) -> types.ElicitResult:
        del context, params
        action, content = await person.answer()
        return types.ElicitResult(action=action, content=content)

    async with Client(url, elicitation_callback=asked) as session:

        async def call(tool: str, arguments: dict[str, Any]) -> str:
            return joined((await session.call_tool(tool, arguments)).content)

        yield call


serve(client)
