"""Records of incidents in Redis: each incident, its journals, and the contained items.

A record is only replaced where it is unchanged since it was read: of two operators, one fails.

It also has the propagation graph as operators' tools read and change it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.core.model import Identity, Json
from guard.extensions.propagation.containment import CURSOR, EPOCH, contained_set
from guard.extensions.propagation.containment import ITEM as ITEM_FIELD
from guard.extensions.propagation.events import (
    ENTRY,
    NODE,
    log_of,
    node_of,
    read_text,
    readable,
    texts_of,
)
from guard.extensions.propagation.graph import Graph
from guard.extensions.propagation.incident import (
    Change,
    Incident,
    Step,
    incidents_of,
    journal_of,
    pack_incident,
    pack_journal,
    read_incident,
    read_journal,
)
from guard.store.layout import load_script
from guard.store.staging import MemoryKeys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from guard.core.labels import LabelSet
    from guard.provenance.seal import Seal
    from guard.store.store import RedisSessionStore


_TEXTS: Final = 100
PAGE: Final = 1000
"""Events that one command reads: no command holds Redis for more than a few milliseconds."""


async def read_texts(
    store: RedisSessionStore, seal: Seal, tenant: str, nodes: set[bytes]
) -> dict[bytes, tuple[str, dict[str, Json]]]:
    """Return the saves whose text is kept, by node: the tool and its arguments.

    Raises:
        StateError: the store did not answer.
    """
    area = texts_of(tenant)
    key = store.key_of(tenant, area)
    found: dict[bytes, tuple[str, dict[str, Json]]] = {}
    place: bytes = b"-"
    while True:
        entries = await store.client.rows("XRANGE", key, place, "+", "COUNT", _TEXTS)
        for _, fields in entries:
            if fields[1][:NODE] in nodes:
                text = read_text(seal, area, fields[1])
                if text is not None:
                    found[text[0]] = text[1:]
        if len(entries) < _TEXTS:
            return found
        place = b"(" + entries[-1][0]


async def read_staged(
    store: RedisSessionStore, seal: Seal, tenant: str, nodes: set[bytes]
) -> dict[bytes, tuple[str, dict[str, Json]]]:
    """Return the saves whose text the memory gate still has, by node: the tool and its arguments.

    It keeps what it staged for some days, and without what the policy hides of it.

    Raises:
        StateError: the store did not answer.
    """
    found: dict[bytes, tuple[str, dict[str, Json]]] = {}
    async for page in store.client.scan(MemoryKeys(store.namespace, tenant).candidates):
        for key in page:
            values = await store.client.rows("HMGET", key, "id", "tool", "content")
            # A text that is cut or altered says nothing.
            with suppress(ValueError):
                identifier, tool, content = (one.decode() for one in values if one)
                node, arguments = node_of(seal, identifier), json.loads(content)
                if node in nodes and isinstance(arguments, dict):
                    found[node] = tool, arguments
    return found


@dataclass(frozen=True, slots=True)
class Log:
    """A part of a tenant's log of events."""

    bodies: list[bytes]
    """Bodies of the events whose seals fit."""
    altered: int
    last: bytes
    """Id of the last entry, the one before the part where it is empty."""


async def read_log(store: RedisSessionStore, seal: Seal, tenant: str, after: bytes = b"") -> Log:
    """Return the events of a tenant that came after an entry; left out, all.

    Raises:
        StateError: the store did not answer, or with something else than a log.
    """
    area = log_of(tenant)
    key = store.key_of(tenant, area)
    bodies: list[bytes] = []
    altered, last = 0, after
    place = b"(" + after if after else b"-"
    while True:
        page = await store.client.rows("XRANGE", key, place, "+", "COUNT", PAGE)
        records = [fields[1] if len(fields) > 1 else b"" for _, fields in page]
        for body in seal.opened_all(area, ENTRY, records):
            if body is not None and readable(body):
                bodies.append(body)
            else:
                altered += 1
        if page:
            last = page[-1][0]
            place = b"(" + last
        if len(page) < PAGE:
            return Log(bodies, altered, last)


async def read_graph(store: RedisSessionStore, seal: Seal, tenant: str) -> Graph:
    """Return the graph of a tenant's events, with what is known to be missing from it.

    Raises:
        StateError: the store did not answer, or with something else than a log.
    """
    log = await read_log(store, seal, tenant)
    return Graph(log.bodies, number_of(log.last) - len(log.bodies) - log.altered, log.altered)


def number_of(entry: bytes) -> int:
    """Return how many events a tenant had had with an entry of its log."""
    return int(entry.partition(b"-")[0] or 0)


REPLACE: Final = """
local now = redis.call('HGET', KEYS[1], ARGV[1])
if (now or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
"""Replace a field that is unchanged since it was read."""
CHANGED: Final = "somebody else has changed this incident; look at it again"


class IncidentRecords:
    """Incidents of one tenant.

    Args:
        store: a connected store in the guard's namespace.
        seal: the deployment's key.
        tenant: name of the tenant.
    """

    def __init__(self, store: RedisSessionStore, seal: Seal, tenant: str) -> None:
        self._store = store
        self._client = store.client
        self._seal = seal
        self._tenant = tenant
        self._identity = Identity("", "", tenant=tenant)

    async def listed(self) -> list[Incident]:
        """Return the incidents, the oldest first; altered records are left out."""
        fields = await self._store.fields(self._identity, incidents_of(self._tenant))
        found = [
            incident
            for name, raw in fields.items()
            if (incident := read_incident(self._seal, self._tenant, name.decode(), raw)) is not None
        ]
        return sorted(found, key=lambda one: one.opened_at)

    async def read(self, identifier: str) -> tuple[Incident, bytes]:
        """Return an incident and its record.

        Raises:
            GuardError: there is none of that id, or its record was altered.
        """
        raw = await self._client.execute("HGET", self.key(incidents_of(self._tenant)), identifier)
        if not isinstance(raw, bytes):
            raise GuardError(f"there is no incident `{identifier}`; see `guard incident list`")
        incident = read_incident(self._seal, self._tenant, identifier, raw)
        if incident is None:
            raise GuardError(f"the record of `{identifier}` was altered, or is of another key")
        return incident, raw

    async def write(self, incident: Incident, before: bytes) -> Incident:
        """Replace a record; return the incident with its new version.

        Args:
            incident: the new state.
            before: record that was read; empty for a new incident.

        Raises:
            GuardError: the record has changed since.
        """
        key = self.key(incidents_of(self._tenant))
        written = replace(incident, version=incident.version + 1)
        raw = pack_incident(self._seal, self._tenant, written)
        if await self._client.execute("EVAL", REPLACE, 1, key, written.id, before, raw) != 1:
            raise GuardError(CHANGED)
        return written

    async def announce(
        self,
        incident: str,
        step: Step,
        changes: Sequence[Change],
        reached: Callable[[str], None],
    ) -> None:
        """Write the journal of a step, before the step is on record."""
        key = self.key(journal_of(self._tenant, incident))
        for name, raw in pack_journal(self._seal, self._tenant, incident, step, changes):
            await self._client.execute("HSET", key, name, raw)
            reached("journal")

    async def drop_others(self, incident: str, step: Step) -> None:
        """Delete journals of the same number that other operators left: those steps never began."""
        area = journal_of(self._tenant, incident)
        for name in await self._store.fields(self._identity, area):
            if name.startswith(f"{step.number}:".encode()) and not name.startswith(
                step.journal.encode()
            ):
                await self._client.execute("HDEL", self.key(area), name)

    async def journal(
        self, incident: str, step: Step, *, backwards: bool
    ) -> AsyncIterator[list[Change]]:
        """Yield the changes of a step, batch by batch.

        Raises:
            GuardError: the journal was altered.
        """
        fields = await self._store.fields(self._identity, journal_of(self._tenant, incident))
        names = sorted(name for name in fields if name.startswith(step.journal.encode()))
        for name in reversed(names) if backwards else names:
            changes = read_journal(self._seal, self._tenant, incident, name, fields[name])
            if changes is None:
                raise GuardError("the journal of this step was altered; nothing more is changed")
            yield changes

    async def make(self, changes: Sequence[Change]) -> int:
        """Make some changes; return the number of fields that somebody else had changed."""
        arguments: list[bytes | int] = []
        for one in changes:
            arguments += [
                one.name,
                int(one.before is not None),
                one.before or b"",
                int(one.after is not None),
                one.after or b"",
                one.ttl,
            ]
        keys = [one.key for one in changes]
        if not keys:
            return 0
        reply = await self._client.run(load_script("change"), len(keys), *keys, *arguments)
        return len(reply) if isinstance(reply, list) else len(changes)

    async def contained(self) -> dict[bytes, bytes]:
        """Return the contained items of all incidents."""
        fields = await self._store.fields(self._identity, contained_set(self._tenant))
        return {name: raw for name, raw in fields.items() if name.startswith(ITEM_FIELD)}

    async def next_epoch(self) -> None:
        """Have every guard read the contained items again."""
        await self._client.execute("HINCRBY", self.key(contained_set(self._tenant)), EPOCH, 1)

    async def judged(self) -> int | None:
        """Return the number of events that the detector has judged; None: there is no detector."""
        area = contained_set(self._tenant)
        raw = await self._client.execute("HGET", self.key(area), CURSOR)
        if not isinstance(raw, bytes):
            return None
        return number_of(self._seal.opened(area, CURSOR, raw) or b"")

    async def removal(self, part: str, key: bytes, name: bytes) -> Change:
        """Return the change that removes a field, with its time to live."""
        ttl = await self._client.execute("PTTL", key)
        left = ttl if isinstance(ttl, int) and ttl > 0 else 0
        return Change(part, key, name, await self.field(key, name), None, left)

    async def field(self, key: bytes | str, name: bytes | str) -> bytes | None:
        """Return a field of any record, None where there is none."""
        raw = await self._client.execute("HGET", key, name)
        return raw if isinstance(raw, bytes) else None

    def key(self, area: LabelSet) -> bytes:
        """Return the key of a set of the tenant."""
        return self._store.key_of(self._tenant, area)
