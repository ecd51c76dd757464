"""Fate probes: what became of a memory write whose answer was lost, by reading the store back.

A write that is found there is acknowledged, one that is not is abandoned, one that cannot be asked
about is reported as unknown.  Nothing is ever sent again.

A process of its own asks each store (:mod:`guard.runtime.mcp_client.store_recall`), and keeps its
session for the next question: a memory server that answers slowly, or garbage, delays no traffic,
and what serves traffic imports no MCP client.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from guard.core.json_values import strings_in_order
from guard.core.jsonpath import compile_path
from guard.core.memory import Fate

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from guard.core.mappings import MemoryPolicy, ReadBack
    from guard.core.model import Json, ToolCall
    from guard.store.gate_records import GateOperator, Reviewed

    WrappedStores: TypeAlias = dict[
        tuple[str, str], Callable[[str, Mapping[str, Json]], Awaitable[Json]]
    ]
    """What asks a store by a tool and its arguments, by server and session."""
    Ask: TypeAlias = Callable[[str, ReadBack, Mapping[str, Json]], Awaitable[str]]
    """Asks the memory server behind a listener and returns its text; OSError where it cannot."""

MISSING: Final = "…"
"""Stands for what the write does not have; no store has it either."""
PROBE_SECONDS: Final = 20.0
ANSWER: Final = 16 * 1024 * 1024
"""Bytes of the longest answer."""
_SILENT: Final = "the memory server did not say"
PROBE_MODULE: Final = "guard.runtime.mcp_client.store_recall"


class StoreProbe:
    """Calls recall tools of the memory servers behind listeners.

    Args:
        upstreams: the upstream's URL by the port of its reverse listener.
        trust: PEM file of authorities to trust besides the public ones.
    """

    def __init__(self, upstreams: Mapping[str, str], trust: Path | None = None) -> None:
        self._upstreams = dict(upstreams)
        self._trust = [str(trust)] if trust else []
        self._askers: dict[str, _Asker] = {}
        """By URL; each keeps a session."""
        self._starting = asyncio.Lock()
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
        while True:
            asker = await self._asker(url)
            try:
                return await asker.ask(tool, arguments)
            except SessionOverError:
                # One that has answered before is worth another session: it reads, no more.
                if not asker.has_answered:
                    raise

    async def _asker(self, url: str) -> _Asker:
        """Return who asks a store, started where there is nobody."""
        async with self._starting:
            asker = self._askers.get(url)
            if asker is None or asker.is_over:
                asker = self._askers[url] = await _Asker.started([url, *self._trust])
            return asker

    async def aclose(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(asker.aclose() for asker in self._askers.values()))


class SessionOverError(OSError):
    """The session with a store has ended, so that a question has no answer."""


class _Asker:
    """A process that has a session with one store."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[dict[str, Json]]] = {}
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self.is_over = False
        """Whether nothing can be asked any more."""
        self.has_answered = False

    @classmethod
    async def started(cls, words: Sequence[str]) -> _Asker:
        """Start one.

        Args:
            words: URL of the store, and a file of authorities to trust.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            PROBE_MODULE,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=ANSWER,
        )
        return cls(process)

    async def ask(self, tool: str, arguments: Mapping[str, Json]) -> Json:
        """Return the result of a tool.

        Raises:
            SessionOverError: the session has ended meanwhile.
            OSError: the store did not say.
        """
        number = next(self._numbers)
        found = asyncio.get_running_loop().create_future()
        self._waiting[number] = found
        question = {"id": number, "tool": tool, "arguments": dict(arguments)}
        try:
            if self._process.stdin is None or self.is_over:
                raise SessionOverError(_SILENT)
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            async with asyncio.timeout(PROBE_SECONDS):
                said = await found
        except TimeoutError as error:
            raise OSError(_SILENT) from error
        finally:
            del self._waiting[number]
        if "result" not in said:
            raise OSError(_SILENT)
        return said["result"]

    async def _read(self) -> None:
        """Hand out answers until the process ends, or says what is none; then it is ended."""
        try:
            while self._process.stdout is not None:
                said = json.loads(await self._process.stdout.readline() or b"null")
                if not isinstance(said, dict):
                    break
                self.has_answered = True
                found = self._waiting.get(said.get("id", -1))
                if found is not None and not found.done():
                    found.set_result(said)
        except (OSError, ValueError):
            pass  # A line that is too long, or no JSON.
        finally:
            self.is_over = True
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.kill()
            for found in self._waiting.values():
                if not found.done():
                    found.set_exception(SessionOverError(_SILENT))
        await self._process.wait()

    async def aclose(self) -> None:
        """End the process."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


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
