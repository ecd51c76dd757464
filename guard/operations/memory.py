"""Acts on memories: held-back writes, partitions, trust, labels, lineage, findings, structure."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from guard.core.errors import GuardError
from guard.core.mappings import DetectionSettings
from guard.core.memory import Fate, MemoryClass, Trust
from guard.core.model import Identity, Integrity, Json
from guard.extensions.graph_memory.ledger import (
    IMPORTED,
    Change,
    LedgerReader,
    Write,
    Writer,
    ledger_set,
    seal_writes,
)
from guard.extensions.propagation.scope import scope_document, scope_of, select
from guard.operations.approvals import EVENT_FINDING
from guard.operations.deployment import Body, Deployment, HexText, OfTenant, Person
from guard.operations.incidents import Given, IncidentOperator
from guard.operations.lineage import entry_document, traced_document, traced_tree
from guard.provenance.imports import ImportedItem
from guard.store import continuity
from guard.store.label_records import LabelRecords
from guard.store.ledger import RedisLedger
from guard.store.staging import GateOperator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from guard.operations.detection import Watch

LISTED: Final = 50
"""Number of held-back writes per tenant."""
YEAR: Final = 365 * 24 * 3600
_SHOWN: Final = ("id", "fate", "reasons", "principal", "tool", "target", "store", "partition")
_NODE: Final = re.compile(r"[0-9a-f]{16}")
Label = Literal["untrusted", "advisory", "authenticated", "trusted"]
Reason = Annotated[str, Field(min_length=1, pattern=r"\S")]


class Promotion(OfTenant):
    """Refused write whose content is let into a class, once."""

    decision: str
    memory_class: Literal["", "L1", "L2", "L3", "L4"] = ""
    """Memory class; empty for the class that the write named."""
    seconds: int = Field(ge=1, le=YEAR)


class Partition(OfTenant):
    """Partition of a store."""

    store: str = Field(min_length=1)
    partition: str = Field(min_length=1)


class Closing(Partition):
    """Partition that is closed to writes for some time."""

    reason: str = ""
    seconds: int = Field(ge=1, le=YEAR)


class Accepting(OfTenant):
    """Loss of labels that is accepted."""

    reason: Reason


class Restoring(Accepting):
    """Source or principal that is trusted again."""

    kind: Literal["principal", "source"]
    name: str = Field(min_length=1)


class Settling(OfTenant):
    """Fate of a write whose response was lost, as read back from its store."""

    id: str
    fate: Fate
    seconds: int = Field(ge=1, le=YEAR)
    """Lifetime of the record."""


class Item(OfTenant):
    """Text that a memory held before the guard."""

    store: str
    value: str
    label: Label
    services: tuple[str, ...] = Field(default=(), alias="for", max_length=16)
    """Services of the accounts, channels and other handles in the text."""


class Items(OfTenant):
    """Texts that a memory held before the guard."""

    items: tuple[Item, ...]


class Search(OfTenant):
    """Text whose values are looked up."""

    text: str
    store: str = ""
    """Memory whose item the text may name."""
    principal: str = ""
    """Principal whose untrusted reading is searched as well."""
    items: tuple[str, ...] = ()
    """Keys of items that the answer may name."""


class Reach(OfTenant):
    """Saves whose consequences or causes are looked up."""

    text: str
    """A value, a node in hex, or with ``store`` the key of an item."""
    store: str = ""
    up: bool = False


class Clearing(OfTenant):
    """Findings that a person has checked."""

    nodes: tuple[HexText, ...] = Field(min_length=1)


class GraphChange(Body):
    """Change of a graph."""

    change: Literal["node", "edge", "merge", "delete_node", "delete_edge", "derive", "review"]
    one: str
    two: str = ""
    relation: str = ""
    weight: float = 1.0
    item: bool = False
    parents: tuple[str, ...] = ()


class Structure(OfTenant):
    """Structure that a graph memory had before the guard."""

    store: str = Field(min_length=1)
    label: Label = "untrusted"
    principal: str = ""
    """Principal that wrote it, as a policy names it."""
    part: int = Field(default=0, ge=0)
    """Number of the first of these writes in the whole import."""
    at: float
    """Time of the import, in seconds since the epoch."""
    writes: tuple[GraphChange, ...]


class MemoryActions:
    """Memories of all tenants, and what persons do with them.

    Args:
        deployment: its state, key and audit log.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._of = deployment

    def _gate(self, tenant: str) -> GateOperator:
        store = self._of.store
        return GateOperator(store.client, namespace=store.namespace, tenant=tenant)

    def _labels(self, tenant: str) -> LabelRecords:
        return LabelRecords(self._of.store, self._of.seal, self._of.limits, tenant)

    # --- the gate --------------------------------------------------------------------------------

    async def overview(self, tenants: Sequence[str], limit: int = LISTED) -> dict[str, Any]:
        """Return closed partitions, drift and held-back writes of some tenants."""
        found: dict[str, Any] = {"tenants": tenants, "closed": [], "drift": [], "writes": []}
        for tenant in tenants:
            of, operator = {"tenant": tenant}, self._gate(tenant)
            found["closed"] += [{**of, **one._asdict()} for one in await operator.closed()]
            for principal, subject in await operator.drift():
                level = Trust(await operator.trust("principal", principal)).name.lower()
                line = {"principal": principal, "subject": subject, "trust": level}
                found["drift"].append({**of, **line})
            found["writes"] += [
                {**of, **{name: write.fields.get(name, "") for name in (*_SHOWN, "content")}}
                for write in await operator.review(limit)
            ]
        return found

    async def promote(self, person: Person, given: Promotion) -> dict[str, Json]:
        """Let this content of this principal into a class, once; return the token."""
        operator = self._gate(given.tenant)
        fields = (await operator.candidate(given.decision)).fields
        target = MemoryClass[given.memory_class or fields["target"]]
        line: dict[str, Json] = {
            "decision_id": given.decision,
            "principal": fields["principal"],
            "memory_class": target.name,
        }
        person.check_other(fields["principal"])
        with self._of.recorded("guard.memory_promoted", person, **line):
            token = await operator.promote(
                given.decision, target, given.seconds, person.name, self._of.seal
            )
        return {**line, "content": fields.get("content", ""), "token": token}

    async def close(self, person: Person, given: Closing) -> dict[str, Json]:
        """Close a partition: nothing is written to it until it is opened."""
        line = given.model_dump(include={"tenant", "store", "reason"})
        with self._of.recorded("guard.memory_quarantined", person, **line, ttl=f"{given.seconds}s"):
            await self._gate(given.tenant).quarantine(
                given.store, given.partition, given.reason, given.seconds
            )
        return {"closed": True}

    async def open(self, person: Person, given: Partition) -> dict[str, Json]:
        """Open a closed partition.

        Raises:
            GuardError: it is not closed.
        """
        line = given.model_dump(include={"tenant", "store"})
        with self._of.recorded("guard.memory_released", person, **line):
            if not await self._gate(given.tenant).release(given.store, given.partition):
                raise GuardError("this partition is not closed; it may be open again")
        return {"open": True}

    async def restore(self, person: Person, given: Restoring) -> dict[str, Json]:
        """Trust a source or principal again; the gate itself only ever lowers trust."""
        self._of.check_recorded()
        if given.kind == "principal":
            person.check_other(given.name)
        with self._of.recorded("guard.memory_trust_restored", person, **given.model_dump()):
            was = Trust(await self._gate(given.tenant).restore(given.kind, given.name))
        return {"was": was.name}

    async def accept_loss(self, person: Person, given: Accepting) -> dict[str, Json]:
        """Count labels as complete again after the store was lost, replaced or rolled back."""
        self._of.check_recorded()
        store = self._of.store
        with self._of.recorded("guard.labels_loss_accepted", person, reason=given.reason):
            lost = await continuity.accept_loss(store.client, self._of.seal, store.namespace)
        return {"incomplete_until": lost.incomplete_until}

    async def in_flight(self, tenants: Sequence[str], older: float) -> dict[str, Any]:
        """Return forwarded writes whose fate is unknown for some seconds."""
        found = [
            {"tenant": tenant, "fields": one.fields, "age": one.age}
            for tenant in tenants
            for one in await self._gate(tenant).in_flight(older)
        ]
        return {"writes": found}

    async def settle(self, person: Person, given: Settling) -> dict[str, Json]:
        """Record the fate of a write after its store was read back."""
        line: dict[str, Json] = {"decision_id": given.id, "fate": given.fate.value}
        operator = self._gate(given.tenant)
        with self._of.recorded("guard.memory_resolved", person, tenant=given.tenant, **line):
            await operator.settle(await operator.candidate(given.id), given.fate, given.seconds)
        return line

    # --- labels ----------------------------------------------------------------------------------

    async def labels(self, tenants: Sequence[str], limit: int) -> dict[str, Any]:
        """Return the label records of memories; values are fingerprints."""
        found: list[dict[str, Any]] = []
        for tenant in tenants:
            async for record in self._labels(tenant).listed():
                if len(found) < limit:
                    found.append({"tenant": tenant, **entry_document(record)})
        return {"labels": found}

    async def import_items(self, person: Person, given: Items) -> dict[str, Json]:
        """Label what a memory held before the guard: its values then attest, or taint."""
        items = [
            ImportedItem(one.store, one.value, Integrity[one.label.upper()], one.services)
            for one in given.items
        ]
        labels: Json = sorted({one.label for one in given.items})
        line: dict[str, Json] = {"tenant": given.tenant, "items": len(items), "labels": labels}
        with self._of.recorded("guard.memory_imported", person, **line):
            await self._labels(given.tenant).import_items(items, self._of.now())
        return {"labelled": len(items)}

    async def find(self, given: Search) -> dict[str, Any]:
        """Return the labels of every value in a text."""
        found = await self._labels(given.tenant).lookup(
            given.text, self._of.now(), store=given.store, principal=given.principal
        )
        values = {name: [entry_document(one) for one in some] for name, some in found.items()}
        return {"values": values}

    async def trace(self, given: Search) -> dict[str, Any]:
        """Return the path of each value in a text through memory, as data and as a tree."""
        labels = self._labels(given.tenant)
        found = await labels.trace(
            given.text, self._of.now(), store=given.store, principal=given.principal
        )
        reader = Identity(given.principal, "", tenant=given.tenant)
        keys = (given.text, *given.items)
        tree = traced_tree(given.text, found, seal=labels.seal, keys=keys, reader=reader)
        return {"tree": tree, **traced_document(given.text, found)}

    async def reach(self, given: Reach) -> dict[str, Any]:
        """Return what follows from the saves that a text names, or what they follow from.

        Raises:
            GuardError: the text names no save on record.
        """
        operator = IncidentOperator(self._of.store, self._of.seal, given.tenant, self._of.limits)
        graph = await operator.graph()
        selection = Given(item=given.text, store=given.store)
        if not given.store:
            is_node = _NODE.fullmatch(given.text) is not None
            selection = Given(node=given.text) if is_node else Given(value=given.text)
        roots = select(graph, operator.selector(selection))
        if not roots:
            raise GuardError("no save on record has that")
        return scope_document(graph, scope_of(graph, roots, up=given.up))

    # --- findings and structure ------------------------------------------------------------------

    def _watch(self, tenant: str) -> Watch:
        # The import loads numpy.
        from guard.operations.detection import Watch

        return Watch(self._of.store, self._of.seal, DetectionSettings(), tenant)

    async def findings(self, tenants: Sequence[str]) -> dict[str, Any]:
        """Return saves that look poisoned; sends that follow from them are asked about."""
        found = [
            {"tenant": tenant, **one.document()}
            for tenant in tenants
            for one in await self._watch(tenant).findings()
        ]
        return {"findings": sorted(found, key=lambda one: -one["p"])}

    async def clear(self, person: Person, given: Clearing) -> dict[str, Json]:
        """Clear findings."""
        nodes = [bytes.fromhex(one) for one in given.nodes]
        line: dict[str, Json] = {"act": "clear", "tenant": given.tenant, "nodes": list(given.nodes)}
        with self._of.recorded(EVENT_FINDING, person, **line):
            if not await self._watch(given.tenant).clear(nodes):
                raise GuardError("none of these nodes is a finding")
        return {"cleared": list(given.nodes)}

    async def ledger(self, tenant: str, store: str) -> AsyncIterator[bytes]:
        """Yield a store's ledger as JSON lines, then the number of altered entries."""
        area = ledger_set(tenant, store)
        reader = LedgerReader(self._of.seal, area)
        async for entries in RedisLedger(self._of.store).read(tenant, area, 0):
            lines = [json.dumps(write_document(write)) for write in reader.read(entries)]
            yield "".join(f"{line}\n" for line in lines).encode()
        yield f"{json.dumps({'faults': reader.faults})}\n".encode()

    async def append(self, person: Person, given: Structure) -> dict[str, Json]:
        """Add structure that existed before the guard to a store's ledger."""
        label = Integrity[given.label.upper()]
        writer = Writer(given.principal, at=given.at, source=IMPORTED, label=label)
        writes = [
            Write(
                Change[one.change.upper()], one.one, one.two, one.relation, one.weight, one.item,
                writer, one.parents,
            )
            for one in given.writes
        ]  # fmt: skip
        line: dict[str, Json] = given.model_dump(include={"tenant", "store", "label"})
        area = ledger_set(given.tenant, given.store)
        call = f"{IMPORTED} {writer.at} {given.part}"
        sealed = seal_writes(self._of.seal, area, call, writes)
        with self._of.recorded("guard.structure_imported", person, changes=len(writes), **line):
            await RedisLedger(self._of.store).append(given.tenant, area, sealed)
        return {"imported": len(writes)}


def write_document(write: Write) -> dict[str, Any]:
    """Return a change of a graph and its writer as JSON values."""
    return {
        **{name: getattr(write, name) for name in GraphChange.model_fields},
        **asdict(write.writer),
        "change": write.change.name.lower(),
        "session": write.writer.session.hex(),
        "label": write.writer.label.name.lower(),
    }
