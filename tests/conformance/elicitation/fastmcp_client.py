"""FastMCP 2 to 4, whose client tells of an error result by a ``ToolError`` with its text."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.exceptions import ToolError
from steps import Person, joined, serve


@asynccontextmanager
async def client(url: str, person: Person) -> Any:
    """Yield how a tool is called."""

    async def asked(message: str, kind: Any, params: Any, context: Any) -> ElicitResult:
        del message, kind, params, context
        action, content = await person.answer()
        return ElicitResult(action=action, content=content)

    async with Client(url, elicitation_handler=asked) as session:

        async def call(tool: str, arguments: dict[str, Any]) -> str:
            try:
                return joined((await session.call_tool(tool, arguments)).content)
            except ToolError as error:
                return str(error)

        yield call


serve(client)
