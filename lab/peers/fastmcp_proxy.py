"""A FastMCP proxy, run by the Python that FastMCP is installed for: MODE URL PORT.

``default`` has a new session with the tool server for each request, ``shared`` one for all.
"""

from __future__ import annotations

import asyncio
import importlib
import sys


async def _serve(mode: str, url: str, port: int) -> None:
    fastmcp = importlib.import_module("fastmcp")
    create_proxy = importlib.import_module("fastmcp.server").create_proxy
    how = {"transport": "http", "host": "127.0.0.1", "port": port, "show_banner": False}
    how |= {"stateless_http": True, "json_response": True, "log_level": "error"}
    if mode == "default":
        await create_proxy(url).run_async(**how)
        return
    async with fastmcp.Client(url) as client:
        await create_proxy(client).run_async(**how)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
