"""Fate probes: what became of a memory write whose answer was lost, by reading the store back.

A write that is found there is acknowledged, one that is not is abandoned, one that cannot be asked
about is reported as unknown.  Nothing is ever sent again.

A process of its own asks each store: a memory server that answers slowly, or garbage, delays no
traffic.
"""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from guard.core.json_values import strings_in_order
from guard.core.jsonpath import compile_path
from guard.core.memory import Fate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from guard.core.mappings import MemoryPolicy, ReadBack
    from guard.core.model import Json, ToolCall
    from guard.store.gate_records import Reviewed

    WrappedStores: TypeAlias = dict[
        tuple[str, str], Callable[[str, Mapping[str, Json]], Awaitable[Json]]
    ]
    """What asks a store by a tool and its arguments, by server and session."""
    Ask: TypeAlias = Callable[[str, ReadBack, Mapping[str, Json]], Awaitable[str]]
    """Asks the memory server behind a listener and returns its text; OSError where it cannot."""

MISSING: Final = "…"
"""Stands for what the write does not have; no store has it either."""
ANSWER: Final = 16 * 1024 * 1024
"""Bytes of the longest answer."""


class Apart(Protocol):
    """Another process, :class:`guard.processes.separate_process.SeparateProcess`."""

    async def run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Return what a function returns there."""


class StoreProbe:
    """Calls recall tools of the memory servers behind listeners.

    Args:
        upstreams: the upstream's URL by the port of its reverse listener.
        apart: makes another process, one for each store.
        trust: PEM file of authorities to trust besides the public ones.
    """

    def __init__(
        self, upstreams: Mapping[str, str], apart: Callable[[], Apart], trust: Path | None = None
    ) -> None:
        self._upstreams = dict(upstreams)
        self._apart = apart
        self._trust = str(trust) if trust else ""
        self._processes: dict[str, Apart] = {}
        self.wrapped: WrappedStores = {}
        """Stores on standard input and output, as long as their wrappers run."""

    async def ask(self, server: str, read_back: ReadBack, arguments: Mapping[str, Json]) -> str:
        """Return the text that the recall answers.

        Raises:
            OSError: no memory server is known by that name, or it gave no usable answer.
        """
        return text_of(await self.result(server, read_back.tool, read_back.path, arguments))

    async def again(self, call: ToolCall, path: str, arguments: Mapping[str, Json]) -> Json:
        """Ask the store of a call; :class:`guard.core.ports.AsksStore`."""
        wrapped = self.wrapped.get((call.server, call.identity.session))
        if wrapped is not None:
            return await wrapped(call.tool, arguments)
        return await self.result(call.server, call.tool, path, arguments)

    async def result(
        self, server: str, tool: str, path: str, arguments: Mapping[str, Json]
    ) -> Json:
        """Return the result of a tool of the store behind a listener.

        Raises:
            OSError: as :meth:`ask`.
        """
        upstream = self._upstreams.get(server.rpartition(":")[2])
        if upstream is None:
            raise OSError("only what is behind a reverse listener can be asked")
        url = f"{upstream}{path}"
        process = self._processes.setdefault(url, self._apart())
        try:
            return await process.run(_recalled, url, tool, dict(arguments), self._trust)
        except Exception as error:  # Whatever it was, the store has not said.
            raise OSError("the memory server did not say") from error


def _recalled(url: str, tool: str, arguments: dict[str, Json], trust: str) -> Json:
    """Ask a store, in a process of its own: what serves traffic imports no MCP client.

    Raises:
        OSError: the store did not answer, or at too great a length.
    """
    recall = import_module("guard.runtime.mcp_client.store_recall").recall
    result: Json = asyncio.run(recall(url, tool, arguments, trust))
    if len(json.dumps(result)) > ANSWER:
        raise OSError("the answer is too long")
    return result


def text_of(result: Json) -> str:
    """Return the texts of a tool's result."""
    blocks = result.get("content", ()) if isinstance(result, dict) else ()
    return "\n".join(block["text"] for block in blocks if block.get("type") == "text")


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
