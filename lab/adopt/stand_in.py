"""A stand-in for a server of ``init_truth``: the tools/list of that server, and short answers.

Run as ``python -m lab.adopt.stand_in NAME`` on standard input and output.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import TextContent, Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER: Final = Path(__file__).with_name("init_truth")


def build(name: str) -> Server[Any, Any]:
    """Return the server."""
    server: Server[Any, Any] = Server(name)
    listed = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))

    async def tools() -> list[Tool]:
        return [Tool.model_validate(tool) for tool in listed]

    async def call(tool: str, arguments: dict[str, Any]) -> Sequence[TextContent]:
        del arguments
        return [TextContent(type="text", text=f"{tool}: done")]

    server.list_tools()(tools)  # type: ignore[no-untyped-call]  # the SDK's decorators are
    server.call_tool(validate_input=False)(call)
    return server


async def _serve(name: str) -> None:
    server = build(name)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
