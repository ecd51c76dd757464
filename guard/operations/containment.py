"""Changes that contain an incident: items, labels, receivers, grants, tokens and trust."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel, LabelRecord, LabelSet
from guard.core.memory import MemoryClass
from guard.core.model import Integrity
from guard.extensions.propagation.containment import contained_field, contained_set
from guard.extensions.propagation.graph import SAVED, Graph
from guard.extensions.propagation.incident import Change
from guard.extensions.propagation.repair import whole_marks
from guard.operations.labels import LabelOperator
from guard.provenance.approvals import GRANT_FIELD, REQUEST_FIELD
from guard.provenance.errands import GRANTED, errand_set
from guard.provenance.label_sets import (
    ATTESTED,
    ESTABLISHED,
    GRANT_KIND,
    ITEM,
    SHOWN,
    TAINTED,
    LabelSets,
    grant,
    request,
)
from guard.provenance.lineage import place_of
from guard.store.staging import GateOperator, MemoryKeys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from guard.core.policy import StateLimits
    from guard.extensions.propagation.events import Event
    from guard.extensions.propagation.scope import Scope
    from guard.provenance.seal import Seal
    from guard.store.incident_records import IncidentRecords
    from guard.store.store import RedisSessionStore

REVIEWED: Final = 1000
"""Number of refused writes whose promotion tokens are searched."""
UNTRUSTED_LEVEL: Final = b"2"


class ContainmentChanges:
    """Changes that contain what an incident reached, read from the state of one tenant.

    Args:
        store: a connected store in the guard's namespace.
        seal: the deployment's key.
        records: records of the tenant's incidents.
        tenant: name of the tenant.
        limits: state limits of the guard's policy.
    """

    def __init__(
        self,
        store: RedisSessionStore,
        seal: Seal,
        records: IncidentRecords,
        tenant: str,
        limits: StateLimits,
    ) -> None:
        self._store = store
        self._client = store.client
        self._seal = seal
        self._records = records
        self._tenant = tenant
        self._sets = LabelSets(limits)
        self._gate = MemoryKeys(store.namespace, tenant)
        self._operator = LabelOperator(store, seal, limits, tenant)

    async def list_again(self, made: Sequence[Change]) -> None:
        """List the requests for approval that some changes have put back."""
        keys = [one.key for one in made if one.part == "request" and one.after is not None]
        await self._operator.list_again(keys)

    async def all(
        self, graph: Graph, scope: Scope, events: Sequence[Event], sends: Sequence[Event]
    ) -> list[Change]:
        """Return the changes that contain what was reached, without those already made.

        Args:
            graph: the tenant's graph.
            scope: scope of the incident.
            events: contained saves.
            sends: contained sends and requests.
        """
        innocent = _innocent(graph, {item.reached.place for item in scope.items})
        values = {v for event in events for v in event.values if v not in innocent}
        parts = (
            self._items(events, innocent),
            self._labels(events, values),
            self._established(sends, values),
            self._grants({event.node for event in sends}, values),
            self._tokens({mark for event in events for mark in event.wholes}),
            self._trust(scope, graph),
        )
        return [one for part in parts for one in [o async for o in part] if one.before != one.after]

    async def _change(self, part: str, key: bytes, name: bytes, after: bytes | None) -> Change:
        return Change(part, key, name, await self._records.field(key, name), after)

    async def _items(self, events: Sequence[Event], innocent: set[bytes]) -> AsyncIterator[Change]:
        held = await self._records.contained()
        key = self._records.key(contained_set(self._tenant))
        for event in events:
            name, raw = contained_field(self._seal, self._tenant, event, innocent)
            if name not in held:
                yield Change("item", key, name, None, raw)

    async def _labels(self, events: Sequence[Event], values: set[bytes]) -> AsyncIterator[Change]:
        """Yield the changes that make derived items and values untrusted."""
        for event in {event.place: event for event in events}.values():
            if event.place != place_of(self._seal, event.store, ""):
                area = self._sets.memory(self._tenant, event.place)
                yield await self._untrusted(area, event.place + ITEM, event, added=False)
        for value in sorted(values):
            area = self._sets.memory(self._tenant, value)
            event = next(one for one in events if value in one.values)
            yield await self._untrusted(area, value + TAINTED, event, added=True)
            yield await self._change("label", self._records.key(area), value + ATTESTED, None)

    async def _untrusted(self, area: LabelSet, name: bytes, event: Event, *, added: bool) -> Change:
        change = await self._change("label", self._records.key(area), name, None)
        record = self._seal.read(area, name, change.before)
        if record is None and added:
            record = LabelRecord(
                Integrity.TRUSTED, Channel.SAVED, event.call, event.at, event.session, event.tool
            )
        if record is None or record.label is Integrity.UNTRUSTED:
            return change._replace(after=change.before)
        _, after = self._seal.write(area, name, replace(record, label=Integrity.UNTRUSTED))
        return change._replace(after=after)

    async def _established(
        self, sends: Sequence[Event], values: set[bytes]
    ) -> AsyncIterator[Change]:
        """Yield the changes that revoke receivers of reached sends, and those that are values."""
        calls = {(event.session, event.call) for event in sends}
        for one in await self._operator.established():
            value = self._seal.fingerprint(f"{one.kind}:{one.receiver}")
            if (one.record.session, one.record.call) in calls or value in values:
                key = self._records.key(self._sets.established(self._tenant, one.mark))
                for name in (one.mark + ESTABLISHED, one.mark + SHOWN):
                    yield await self._records.removal("established", key, name)
        asked = {event.node for event in sends}
        for mark, given in await self._operator.errand_grants():
            value = self._seal.fingerprint(f"{given.kind}:{given.recipient}")
            if value in values or self._seal.digest("node", given.decision) in asked:
                key = self._records.key(errand_set(self._tenant, given.principal))
                yield await self._records.removal("established", key, mark + GRANTED)

    async def _grants(self, asked: set[bytes], values: set[bytes]) -> AsyncIterator[Change]:
        """Yield the changes that take back grants and requests of reached sends."""
        prefix = self._records.key(LabelSet(GRANT_KIND, ("",))).decode().removesuffix(":")
        async for page in self._client.scan(prefix):
            for key in page:
                area = grant(key.decode().removeprefix(prefix).removesuffix(":"), 1)
                raw = await self._records.field(key, GRANT_FIELD)
                body = None if raw is None else self._seal.opened(area, GRANT_FIELD, raw)
                decision = "" if body is None else str(json.loads(body).get("decision", ""))
                if decision and self._seal.digest("node", decision) in asked:
                    yield await self._records.removal("grant", key, GRANT_FIELD)
        for one in await self._operator.waiting():
            receivers = [r for call in one.calls for r in call.receivers]
            marks = {self._seal.fingerprint(f"{r.kind}:{r.receiver}") for r in receivers}
            if marks & values or self._seal.digest("node", one.decision) in asked:
                key = self._records.key(request(self._tenant, one.decision, 1))
                yield await self._records.removal("request", key, REQUEST_FIELD)

    async def _tokens(self, wholes: set[bytes]) -> AsyncIterator[Change]:
        """Yield the changes that spend promotion tokens for the texts of contained items."""
        gate = GateOperator(self._client, namespace=self._store.namespace, tenant=self._tenant)
        for one in await gate.review(REVIEWED):
            try:
                content = json.loads(one.fields.get("content", ""))
            except ValueError:
                continue
            if whole_marks(self._seal, content) & wholes:
                named = one.fields["digest"], one.fields.get("principal", "")
                for target in MemoryClass:
                    name = self._gate.of("binding", named[0], target.name, named[1])
                    change = await self._change("token", name.encode(), b"used", b"1")
                    if change.before == b"0":
                        yield change

    async def _trust(self, scope: Scope, graph: Graph) -> AsyncIterator[Change]:
        """Yield the changes that trust the sources of the roots no more."""
        origins = {graph.event(place).origin for place in scope.roots}
        for origin in sorted(origin for origin in origins if any(origin)):
            key = self._gate.source(origin).encode()
            yield await self._change("trust", key, b"level", UNTRUSTED_LEVEL)


def _innocent(graph: Graph, reached: set[int]) -> set[bytes]:
    """Return the marks of saves outside of the incident."""
    others = (graph.event(place) for place in range(len(graph)) if place not in reached)
    return {mark for event in others if event.what in SAVED for mark in event.marks}
