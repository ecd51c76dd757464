"""Changes that contain an incident: items, labels, receivers, grants, tokens and trust."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel, LabelRecord, LabelSet
from guard.core.memory import MemoryClass
from guard.core.model import Integrity
from guard.extensions.propagation.containment import contained_field, contained_set
from guard.extensions.propagation.incident import Change
from guard.extensions.propagation.repair import whole_marks
from guard.extensions.propagation.scope import SAVED
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
from guard.store.gate_records import GateOperator
from guard.store.staging import MemoryKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.policy import StateLimits
    from guard.extensions.propagation.events import Event
    from guard.extensions.propagation.evidence import Tier
    from guard.extensions.propagation.graph import Graph
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

    async def all(self, graph: Graph, scope: Scope, tier: Tier) -> list[Change]:
        """Return the changes that contain what was reached, without those already made."""
        events = [item.event for item in scope.nodes(tier)]
        innocent = _innocent(graph, {item.reached.place for item in scope.items})
        values = {v for event in events for v in event.values if v not in innocent}
        changes = await self._items(events, innocent)
        changes += await self._labels(events, values)
        tiers = [item for item in (*scope.sends, *scope.asked) if item.reached.tier <= tier]
        changes += await self._established([item.event for item in tiers], values)
        changes += await self._grants({item.event.node for item in tiers}, values)
        changes += await self._tokens({mark for event in events for mark in event.wholes})
        changes += await self._trust(scope, graph)
        return [change for change in changes if change.before != change.after]

    async def _items(self, events: list[Event], innocent: set[bytes]) -> list[Change]:
        held = await self._records.contained()
        key = self._store.key_of(self._tenant, contained_set(self._tenant))
        changes: list[Change] = []
        for event in events:
            name, raw = contained_field(self._seal, self._tenant, event, innocent)
            if name not in held:
                changes.append(Change("item", key, name, None, raw))
        return changes

    async def _labels(self, events: list[Event], values: set[bytes]) -> list[Change]:
        """Return the changes that make derived items and values untrusted."""
        changes: list[Change] = []
        for event in {event.place: event for event in events}.values():
            if event.place != place_of(self._seal, event.store, ""):
                area = self._sets.memory(self._tenant, event.place)
                changes += await self._untrusted(area, event.place + ITEM, event, added=False)
        for value in sorted(values):
            area = self._sets.memory(self._tenant, value)
            event = next(one for one in events if value in one.values)
            changes += await self._untrusted(area, value + TAINTED, event, added=True)
            attested = value + ATTESTED
            key = self._store.key_of(self._tenant, area)
            before = await self._records.field(key, attested)
            if before is not None:
                changes.append(Change("label", key, attested, before, None))
        return changes

    async def _untrusted(
        self, area: LabelSet, name: bytes, event: Event, *, added: bool
    ) -> list[Change]:
        key = self._store.key_of(self._tenant, area)
        before = await self._records.field(key, name)
        record = self._seal.read(area, name, before)
        if record is None:
            if not added:
                return []
            record = LabelRecord(
                Integrity.UNTRUSTED, Channel.SAVED, event.call, event.at, event.session, event.tool
            )
        elif record.label is Integrity.UNTRUSTED:
            return []
        _, after = self._seal.write(area, name, replace(record, label=Integrity.UNTRUSTED))
        return [Change("label", key, name, before, after)]

    async def _established(self, sends: list[Event], values: set[bytes]) -> list[Change]:
        """Return the changes that revoke receivers of reached sends, and those that are values."""
        calls = {(event.session, event.call) for event in sends}
        changes: list[Change] = []
        for one in await self._operator.established():
            value = self._seal.fingerprint(f"{one.kind}:{one.receiver}")
            if (one.record.session, one.record.call) not in calls and value not in values:
                continue
            area = self._sets.established(self._tenant, one.mark)
            key = self._store.key_of(self._tenant, area)
            for name in (one.mark + ESTABLISHED, one.mark + SHOWN):
                changes.append(await self._records.removal("established", key, name))
        asked = {event.node for event in sends}
        for mark, given in await self._operator.errand_grants():
            value = self._seal.fingerprint(f"{given.kind}:{given.recipient}")
            if value in values or self._seal.digest("node", given.decision) in asked:
                area = errand_set(self._tenant, given.principal)
                key = self._store.key_of(self._tenant, area)
                changes.append(await self._records.removal("established", key, mark + GRANTED))
        return [change for change in changes if change.before is not None]

    async def _grants(self, asked: set[bytes], values: set[bytes]) -> list[Change]:
        """Return the changes that take back grants and requests of reached sends."""
        changes: list[Change] = []
        area = LabelSet(GRANT_KIND, ("",))
        prefix = self._store.key_of(self._tenant, area).decode().removesuffix(":")
        async for page in self._client.scan(prefix):
            for key in page:
                digest = key.decode().removeprefix(prefix).removesuffix(":")
                raw = await self._client.execute("HGET", key, GRANT_FIELD)
                body = (
                    self._seal.opened(grant(digest, 1), GRANT_FIELD, raw)
                    if isinstance(raw, bytes)
                    else None
                )
                decision = "" if body is None else str(json.loads(body).get("decision", ""))
                if decision and self._seal.digest("node", decision) in asked:
                    changes.append(await self._records.removal("grant", key, GRANT_FIELD))
        for one in await self._operator.waiting():
            receivers = [r for call in one.calls for r in call.receivers]
            marks = {self._seal.fingerprint(f"{r.kind}:{r.receiver}") for r in receivers}
            if marks & values or self._seal.digest("node", one.decision) in asked:
                area = request(self._tenant, one.decision, 1)
                key = self._store.key_of(self._tenant, area)
                changes.append(await self._records.removal("request", key, REQUEST_FIELD))
        return [change for change in changes if change.before is not None]

    async def _tokens(self, wholes: set[bytes]) -> list[Change]:
        """Return the changes that spend promotion tokens for the texts of contained items."""
        gate = GateOperator(self._client, namespace=self._store.namespace, tenant=self._tenant)
        changes: list[Change] = []
        for one in await gate.review(REVIEWED):
            try:
                content = json.loads(one.fields.get("content", ""))
            except ValueError:
                continue
            if not whole_marks(self._seal, content) & wholes:
                continue
            for target in MemoryClass:
                name = self._gate.binding(
                    one.fields["digest"], target, one.fields.get("principal", "")
                )
                used = await self._records.field(name, "used")
                if used == b"0":
                    changes.append(Change("token", name.encode(), b"used", used, b"1"))
        return changes

    async def _trust(self, scope: Scope, graph: Graph) -> list[Change]:
        """Return the changes that trust the sources of the roots no more."""
        origins = {graph.event(place).origin for place in scope.roots}
        changes: list[Change] = []
        for origin in sorted(origin for origin in origins if any(origin)):
            key = self._gate.source(origin)
            before = await self._records.field(key, "level")
            changes.append(Change("trust", key.encode(), b"level", before, UNTRUSTED_LEVEL))
        return changes


def _innocent(graph: Graph, reached: set[int]) -> set[bytes]:
    """Return the marks of saves outside of the incident."""
    found: set[bytes] = set()
    for place in range(len(graph)):
        event = graph.event(place)
        if place not in reached and event.what in SAVED:
            found.update(event.marks)
    return found
