"""Has a memory save something through a listener of the guard, as one principal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from guard.core.model import Json


def memory_writer(secret: Path | None) -> Callable[[str, str, dict[str, Json]], Awaitable[object]]:
    """Return what calls a tool; it is given a listener's URL, the tool's name and its arguments.

    Args:
        secret: file with the principal's secret, read at each call; None for nobody's.

    What is returned raises OSError where the file cannot be read, or the tool does not answer well.
    """

    async def write(server: str, tool: str, arguments: dict[str, Json]) -> object:
        # Whoever only looks imports no SDK.
        from guard.runtime.mcp_client.tool_listing import recall

        text = ""
        if secret is not None:
            text = await asyncio.to_thread(secret.read_text, encoding="utf-8")
        return await recall(server, tool, arguments, secret=text.strip())

    return write
