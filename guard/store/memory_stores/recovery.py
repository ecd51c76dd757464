"""Finds memory writes whose answers were lost, and settles them without anybody's help.

A guard that dies between the commit and the answer leaves a candidate in flight.  Every worker
says that it is alive; the candidates of one that is not, and those of its own that nobody awaits
any more, are read back from the store (:mod:`guard.store.memory_stores.recovery`).  Nothing
is ever sent again.  What cannot be asked is reported: an audit line, a counter, ``guard memory
resolve``.

The operator's checker of memory writes: a command that is asked about each, and must agree.

It gets one JSON object on standard input (decision id, principal, tool, store, class, source types
and the texts) and commits by ending with exit code 0.  Anything else refuses the write: another
code, a signal, a command that does not start or does not end in time.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from importlib import import_module
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from guard.core.json_values import strings_in_order
from guard.core.jsonpath import compile_path
from guard.core.memory import Candidate, Fate, MemoryClass
from guard.core.metrics import ERRORS, MEMORY_WRITES, RECOVERED, Metrics
from guard.core.model import DEFAULT_TENANT, Json, ToolCall
from guard.store.staging import GateOperator, Reviewed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from guard.core.mappings import MemoryPolicy, ReadBack
    from guard.core.ports import AuditLog
    from guard.store.connection import RedisClient


SECONDS: Final = 5.0


class CommandChecker:
    """Asks a command.

    Args:
        command: program and arguments.
        environment: of the command; nothing of the guard's own.
        seconds: how long it may take.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], seconds: float = SECONDS
    ) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._seconds = seconds

    async def __call__(self, candidate: Candidate, target: MemoryClass) -> bool:
        """Return whether the command agrees."""
        question = {
            "decision_id": candidate.id,
            "principal": candidate.identity.principal,
            "tool": candidate.tool,
            "store": candidate.store,
            "class": target.name,
            "source_types": sorted(kind.value for kind in candidate.evidence.types),
            "texts": [*candidate.texts, *candidate.further],
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._environment,
            )
        except OSError:
            return False
        try:
            async with asyncio.timeout(self._seconds):
                await process.communicate(json.dumps(question).encode())
        except (OSError, TimeoutError):
            return False
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode == 0


if TYPE_CHECKING:
    WrappedStores: TypeAlias = dict[
        tuple[str, str], Callable[[str, Mapping[str, Json]], Awaitable[Json]]
    ]
    """Functions that query a store by a tool and its arguments, by server and session."""
    Ask: TypeAlias = Callable[[str, ReadBack, Mapping[str, Json]], Awaitable[str]]
    """Asks the memory server behind a listener and returns its text; OSError where it cannot."""


ALIVE_SECONDS: Final = 15
"""Seconds that a worker counts as alive after its last report."""
BEAT_SECONDS: Final = 3.0
CLAIM_SECONDS: Final = 5
YOUNG_SECONDS: Final = 1.0
"""A write in flight for less is nobody's concern yet."""
AGAIN_SECONDS: Final = 15.0
"""Pause before a store that did not tell is asked about the same write again."""
AT_ONCE: Final = 16
"""Tenants that one look is about; of more, the next look is about the next."""
EVENT: Final = "guard.memory_resolved"


@dataclass(slots=True)
class _Tenant:
    name: str
    operator: GateOperator
    asked: dict[str, float] = field(default_factory=dict)
    """Age of each write in flight when its store was asked about it last."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One worker in the state store."""

    client: RedisClient
    name: str
    """``GUARD:NUMBER``; workers of the same guard with a lower number are dead."""
    namespace: str = "guard"
    """First part of every key."""


class Recovery:
    """Resolves the memory writes that a crash has left in flight.

    Args:
        owner: this worker.
        memory: the gate's policy in force; None where nothing is gated.
        holds: whether this worker still awaits the answer of a candidate.
        ask: asks a memory server, by the name of its listener.
        audit: one line for each write that is settled or given up.
        metrics: counts them.
        tenants: in whose memories it looks; the default one where none is named.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        owner: Owner,
        *,
        memory: Callable[[], MemoryPolicy | None],
        holds: Callable[[str], bool],
        ask: Ask,
        audit: AuditLog,
        metrics: Metrics,
        tenants: Sequence[str] = (),
    ) -> None:
        self._client = client = owner.client
        self._owner = owner.name
        namespace = owner.namespace
        self._memory = memory
        self._holds = holds
        self._ask = ask
        self._audit = audit
        self._metrics = metrics
        self._prefix = f"{namespace}:owner:"
        every = [
            _Tenant(name, GateOperator(client, namespace=namespace, tenant=name))
            for name in tenants or (DEFAULT_TENANT,)
        ]
        self._at_once = min(AT_ONCE, len(every))
        self._turns = cycle(every)

    async def watch(self) -> None:
        """Say that this worker is alive and look for lost writes, until cancelled."""
        while True:
            try:
                await self.beat()
                await self.once()
            except Exception:  # noqa: BLE001  (the writes stay in flight; the next look may succeed)
                self._metrics.count(ERRORS, "memory")
            await asyncio.sleep(BEAT_SECONDS)

    async def beat(self) -> None:
        """Say that this worker is alive; before it serves, and then ever again.

        Raises:
            StateError: the store did not answer.
        """
        key = self._prefix + self._owner
        await self._client.execute("SET", key, "1", "PX", ALIVE_SECONDS * 1000)

    async def once(self) -> list[tuple[str, Fate]]:
        """Settle every lost write that can be settled; return what became of them.

        Raises:
            StateError: the store did not answer; what is left stays in flight.
            AuditError: a line could not be written; its write stays in flight.
        """
        memory = self._memory()
        if memory is None:
            return []
        settled: list[tuple[str, Fate]] = []
        for tenant in islice(self._turns, self._at_once):
            settled += await self._settled(tenant, memory)
        return settled

    async def _settled(self, tenant: _Tenant, memory: MemoryPolicy) -> list[tuple[str, Fate]]:
        settled: list[tuple[str, Fate]] = []
        waiting = await tenant.operator.in_flight(YOUNG_SECONDS)
        asked = tenant.asked
        tenant.asked = {one.id: asked[one.id] for one in waiting if one.id in asked}
        for reviewed in waiting:
            is_due = not _is_early(reviewed, tenant.asked)
            if not is_due or await self._is_awaited(reviewed, memory):
                continue
            if not await self._claims(reviewed):
                continue
            fate = await self._fate(reviewed, memory, tenant.asked)
            if fate is None:
                # Another guard may reach a store that this one does not.
                await self._release(reviewed)
            else:
                self._report(reviewed, fate, tenant.name)
                await tenant.operator.settle(reviewed, fate, memory.limits.keep_refused)
                settled.append((reviewed.id, fate))
        return settled

    async def _is_awaited(self, reviewed: Reviewed, memory: MemoryPolicy) -> bool:
        """Return whether a worker that is alive may still get the answer."""
        owner = reviewed.fields.get("owner", "")
        if owner == self._owner:
            return self._holds(reviewed.id)
        if not owner:
            return reviewed.age < memory.limits.unknown_after
        if owner.rpartition(":")[0] == self._owner.rpartition(":")[0]:
            return False  # one guard has one worker at a time
        return await self._client.execute("EXISTS", self._prefix + owner) == 1

    async def _claims(self, reviewed: Reviewed) -> bool:
        """Return whether this worker, and no other, looks after a write for now."""
        key = f"{self._prefix}of:{reviewed.id}"
        claim = ("SET", key, self._owner, "NX", "PX", CLAIM_SECONDS * 1000)
        return await self._client.execute(*claim) is not None

    async def _release(self, reviewed: Reviewed) -> None:
        """End the claim of this worker; one that has expired may be another's by now."""
        key = f"{self._prefix}of:{reviewed.id}"
        await self._client.execute("EVAL", _RELEASE, 1, key, self._owner)

    async def _fate(
        self, reviewed: Reviewed, memory: MemoryPolicy, asked: dict[str, float]
    ) -> Fate | None:
        """Return what became of a write, None where it is not yet time to say."""
        known = reviewed.fields["fate"] == Fate.UNKNOWN.value
        asked[reviewed.id] = reviewed.age
        fate = await fate_of(reviewed, memory, self._ask)
        # It may still be on its way: that it is not there yet says nothing.
        if fate is Fate.ABANDONED and reviewed.age < memory.limits.unknown_after:
            return None
        return None if known and fate is Fate.UNKNOWN else fate

    def _report(self, reviewed: Reviewed, fate: Fate, tenant: str) -> None:
        fields = reviewed.fields
        target = fields.get("class", "")
        self._audit.event(
            EVENT,
            {
                "decision_id": reviewed.id,
                "tenant": tenant,
                "principal": fields["principal"],
                "tool": fields["tool"],
                "store": fields["store"],
                "fate": fate.value,
            },
        )
        self._metrics.count(MEMORY_WRITES, fate.value, RECOVERED, f"L{target}")


def _is_early(reviewed: Reviewed, asked: Mapping[str, float]) -> bool:
    """Return whether a store that did not tell was asked about a write a moment ago."""
    last = asked.get(reviewed.id)
    known = reviewed.fields["fate"] == Fate.UNKNOWN.value
    return known and last is not None and reviewed.age - last < AGAIN_SECONDS


_RELEASE: Final = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)
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
    recall = import_module("guard.runtime.mcp_client.tool_listing").recall
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
