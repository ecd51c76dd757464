"""Asks the memory servers behind a guard's listeners whether a write arrived.

Each question is a process of its own (:mod:`guard.cli.store_recall`): a server that answers slowly,
or garbage, holds nobody up, and what serves traffic needs no MCP client.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from guard.core.memory_policy import ReadBack
    from guard.core.model import Json

SECONDS: Final = 20.0
MODULE: Final = "guard.cli.store_recall"


class StoreQuestions:
    """Asks by the name of a listener.

    Args:
        upstreams: the upstream's URL by the port of its reverse listener.
        trust: PEM file of authorities to trust besides the public ones.
    """

    def __init__(self, upstreams: Mapping[int, str], trust: Path | None = None) -> None:
        self._upstreams = dict(upstreams)
        self._trust = trust

    async def ask(self, server: str, read_back: ReadBack, arguments: Mapping[str, Json]) -> str:
        """Return what a recall answers.

        Raises:
            OSError: there is nobody to ask, or no answer that says anything.
        """
        port = server.rpartition(":")[2]
        upstream = self._upstreams.get(int(port)) if port.isdigit() else None
        if upstream is None:
            msg = "only what is behind a reverse listener can be asked"
            raise OSError(msg)
        command = [sys.executable, "-m", MODULE, f"{upstream}{read_back.path}", read_back.tool]
        process = await asyncio.create_subprocess_exec(
            *command,
            *([str(self._trust)] if self._trust else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(SECONDS):
                out, _ = await process.communicate(json.dumps(dict(arguments)).encode())
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode != 0:
            msg = "the memory server did not say"
            raise OSError(msg)
        return str(json.loads(out))
