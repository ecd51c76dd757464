"""Fate probes: what became of a memory write whose answer was lost, by reading the store back.

A write that is found there is acknowledged, one that is not is abandoned, one that cannot be asked
about is reported as unknown.  Nothing is ever sent again.

Each probe is a process of its own (:mod:`guard.adapters.mcp_client.store_recall`): a memory server
that answers slowly, or garbage, delays no traffic, and what serves traffic imports no MCP client.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from guard.core.json_values import strings_in_order
from guard.core.jsonpath import compile_path
from guard.core.memory import Fate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from guard.adapters.redis.gate_operator import GateOperator, Reviewed
    from guard.core.mappings import MemoryPolicy, ReadBack
    from guard.core.model import Json

    Ask: TypeAlias = Callable[[str, ReadBack, Mapping[str, Json]], Awaitable[str]]
    """Asks the memory server behind a listener and returns its text; OSError where it cannot."""

MISSING: Final = "…"
"""Stands for what the write does not have; no store has it either."""
PROBE_SECONDS: Final = 20.0
PROBE_MODULE: Final = "guard.adapters.mcp_client.store_recall"


class StoreProbe:
    """Calls a recall tool of the memory server behind a listener.

    Args:
        upstreams: the upstream's URL by the port of its reverse listener.
        trust: PEM file of authorities to trust besides the public ones.
    """

    def __init__(self, upstreams: Mapping[str, str], trust: Path | None = None) -> None:
        self._upstreams = dict(upstreams)
        self._trust = trust

    async def ask(self, server: str, read_back: ReadBack, arguments: Mapping[str, Json]) -> str:
        """Return the text that the recall answers.

        Raises:
            OSError: no memory server is known by that name, or it gave no usable answer.
        """
        return text_of(await self.result(server, read_back.tool, read_back.path, arguments))

    async def result(
        self, server: str, tool: str, path: str, arguments: Mapping[str, Json]
    ) -> Json:
        """Return a tool's result; :class:`guard.core.ports.AsksStore`."""
        upstream = self._upstreams.get(server.rpartition(":")[2])
        if upstream is None:
            msg = "only what is behind a reverse listener can be asked"
            raise OSError(msg)
        trust = [str(self._trust)] if self._trust else []
        words = [f"{upstream}{path}", tool, *trust]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            PROBE_MODULE,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                out, _ = await process.communicate(json.dumps(dict(arguments)).encode())
        except TimeoutError:
            out = b""
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode != 0:
            msg = "the memory server did not say"
            raise OSError(msg)
        return json.loads(out)


def text_of(result: Json) -> str:
    """Return the texts of a tool's result."""
    blocks = result.get("content", ()) if isinstance(result, dict) else ()
    return "\n".join(block["text"] for block in blocks if block.get("type") == "text")


async def resolve(
    operator: GateOperator,
    memory: MemoryPolicy,
    ask: Ask,
    older_than: float,
) -> list[tuple[str, Fate]]:
    """Settle every write in flight for so long; return what became of it.

    Args:
        operator: the staging store.
        memory: whose mappings name the recall that reads a write back.
        ask: calls a tool of the memory server.
        older_than: seconds; younger writes may still be answered.
    """
    settled: list[tuple[str, Fate]] = []
    for reviewed in await operator.in_flight(older_than):
        fate = await fate_of(reviewed, memory, ask)
        await operator.settle(reviewed, fate, memory.limits.keep_refused)
        settled.append((reviewed.id, fate))
    return settled


async def fate_of(reviewed: Reviewed, memory: MemoryPolicy, ask: Ask) -> Fate:
    """Return what the store says of a write: there, not there, or nothing that can be relied on."""
    content = reviewed.fields.get("content", "")
    document = json.loads(content) if content else {}
    method, path = str(document.get("method", "")), urlsplit(str(document.get("url", ""))).path
    mapping = memory.write(reviewed.fields["tool"], method, path, reviewed.fields.get("store", ""))
    if mapping is None or mapping.read_back is None or not mapping.content:
        return Fate.UNKNOWN
    arguments = _arguments(mapping.read_back, document)
    try:
        found = await ask(reviewed.fields.get("server", ""), mapping.read_back, arguments)
    except OSError:
        return Fate.UNKNOWN
    wanted = [
        text
        for query in mapping.content
        for _, value in query.find(document)
        for text in strings_in_order(value)
    ]
    # The key itself comes back with every answer of some stores: all texts must be there.
    present = all(text in found or json.dumps(text)[1:-1] in found for text in wanted)
    return Fate.ACKNOWLEDGED if wanted and present else Fate.ABANDONED


def _arguments(read_back: ReadBack, document: Json) -> dict[str, Json]:
    arguments: dict[str, Json] = {}
    for name, source in read_back.arguments.items():
        if not source.startswith("$"):
            arguments[name] = source
            continue
        values = [value for _, value in compile_path(source).find(document)]
        arguments[name] = values[0] if values else MISSING
    return arguments
