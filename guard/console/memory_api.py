"""Memory by the API: writes that were held back, partitions, trust, labels, lineage, structure.

Texts that somebody looks for stand in the body of a request, never in its URL.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field
from starlette.responses import JSONResponse, StreamingResponse

from guard.adapters.redis import continuity
from guard.adapters.redis.gate_operator import GateOperator
from guard.adapters.redis.incidents import Given, IncidentOperator
from guard.adapters.redis.ledger import RedisLedger
from guard.adapters.redis.operators import LabelOperator
from guard.console.access import Role
from guard.console.lineage_texts import entry_document, traced_document, traced_tree
from guard.console.routes import LARGE, Body, Page, by_whom, person_of, read_body
from guard.core.errors import GuardError, InputError
from guard.core.mappings import DetectionSettings
from guard.core.memory import Fate, MemoryClass, Trust
from guard.core.model import Identity, Integrity
from guard.core.policy import StateLimits
from guard.graph_memory.ledger import Change, LedgerReader, Write, Writer, ledger_set, seal_writes
from guard.propagation.scope import scope_document, scope_of, select
from guard.provenance.approvals import UNNAMED
from guard.provenance.imports import ImportedItem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from guard.adapters.redis.detection import Watch
    from guard.console.access import Person
    from guard.console.routes import Deployment
    from guard.core.model import Json

LISTED: Final = 50
"""Writes that were held back, per tenant."""
MOST: Final = 1000
MOST_LABELS: Final = 100_000
YEAR: Final = 365 * 24 * 3600
IMPORTED: Final = "import"
EVENT_FINDING: Final = "guard.finding"
_SHOWN: Final = ("id", "fate", "reasons", "principal", "tool", "target", "store", "partition")
_NODE: Final = re.compile(r"[0-9a-f]{16}")
Label = Literal["untrusted", "advisory", "authenticated", "trusted"]
Tenant = Annotated[str, Field(min_length=1)]


class PromoteBody(Body):
    """A refused write whose content is let into a class, once."""

    tenant: Tenant = "default"
    decision: str
    memory_class: Literal["", "L1", "L2", "L3", "L4"] = ""
    """Empty for the one that was aimed at."""
    seconds: int = Field(ge=1, le=YEAR)


class PartitionBody(Body):
    """A partition of a store."""

    tenant: Tenant = "default"
    store: str = Field(min_length=1)
    partition: str = Field(min_length=1)


class CloseBody(PartitionBody):
    """A partition that nothing is written to for a while."""

    reason: str = ""
    seconds: int = Field(ge=1, le=YEAR)


class TrustBody(Body):
    """A source or principal that is trusted again."""

    tenant: Tenant = "default"
    kind: Literal["principal", "source"]
    name: str = Field(min_length=1)
    reason: str = Field(min_length=1, pattern=r"\S")


class ReasonBody(Body):
    """Why."""

    reason: str = Field(min_length=1, pattern=r"\S")


class FateBody(Body):
    """What became of a write whose answer was lost, as its store says."""

    tenant: Tenant = "default"
    id: str
    fate: Fate
    seconds: int = Field(ge=1, le=YEAR)
    """How long its record is kept."""


class ItemBody(Body):
    """A text that a memory held before the guard."""

    store: str
    value: str
    label: Label
    services: tuple[str, ...] = Field(default=(), alias="for", max_length=16)
    """Services of the accounts, channels and other handles in it."""


class ItemsBody(Body):
    """What a memory held before the guard."""

    tenant: Tenant = "default"
    items: tuple[ItemBody, ...]


class FindBody(Body):
    """A text whose values are looked for."""

    tenant: Tenant = "default"
    text: str
    store: str = ""
    """The memory whose item it may name."""
    principal: str = ""
    """Whose untrusted reading is looked through as well."""
    items: tuple[str, ...] = ()
    """Keys of items that may be named in the answer."""


class ReachBody(Body):
    """Saves whose consequences, or causes, are looked for."""

    tenant: Tenant = "default"
    text: str
    """A value, a node in hex, or with ``store`` the key of an item."""
    store: str = ""
    up: bool = False


class ClearBody(Body):
    """Findings that a person has looked at."""

    tenant: Tenant = "default"
    nodes: tuple[str, ...] = Field(min_length=1)


class WriteBody(Body):
    """A change of a graph."""

    change: Literal["node", "edge", "merge", "delete_node", "delete_edge"]
    one: str
    two: str = ""
    relation: str = ""
    weight: float = 1.0
    item: bool = False
    parents: tuple[str, ...] = ()


class StructureBody(Body):
    """Structure that a graph memory had before the guard."""

    tenant: Tenant = "default"
    store: str = Field(min_length=1)
    label: Label = "untrusted"
    principal: str = ""
    """On whose behalf it was written, as a policy names it."""
    part: int = Field(default=0, ge=0)
    """Number of the first of these writes in the whole import."""
    at: float
    """Of the whole import, in seconds since the epoch."""
    writes: tuple[WriteBody, ...]


class MemoryApi:
    """What the gate keeps out of memories, and what is on record of what is in them.

    Args:
        deployment: whose memories.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._of = deployment

    def table(self) -> list[Page]:
        """Return the routes."""
        view, act, admin = Role.VIEWER, Role.APPROVER, Role.ADMIN
        base, post = "/api/memory", "POST"
        return [
            Page(base, self.overview, view, query=("tenant", "limit")),
            Page(f"{base}/promote", self.promote, act, post, PromoteBody),
            Page(f"{base}/quarantine", self.quarantine, act, post, CloseBody),
            Page(f"{base}/release", self.release, act, post, PartitionBody),
            Page(f"{base}/trust", self.trust, act, post, TrustBody),
            Page(f"{base}/accept-loss", self.accept_loss, admin, post, ReasonBody),
            Page(f"{base}/in-flight", self.in_flight, view, query=("tenant", "older_than")),
            Page(f"{base}/fate", self.settle, act, post, FateBody),
            Page(f"{base}/labels", self.labels, view, query=("tenant", "limit")),
            Page(f"{base}/labels", self.import_items, admin, post, ItemsBody, longest=LARGE),
            Page(f"{base}/find", self.find, view, post, FindBody),
            Page(f"{base}/trace", self.trace, view, post, FindBody),
            Page(f"{base}/reach", self.reach, view, post, ReachBody),
            Page(f"{base}/findings", self.findings, view, query=("tenant",)),
            Page(f"{base}/findings/clear", self.clear, act, post, ClearBody),
            Page(f"{base}/structure", self.structure, admin, query=("tenant", "store")),
            Page(f"{base}/structure", self.append, admin, post, StructureBody, longest=LARGE),
        ]

    def _gate(self, tenant: str) -> GateOperator:
        store = self._of.store
        return GateOperator(store.client, namespace=store.namespace, tenant=tenant)

    def _labels(self, tenant: str) -> LabelOperator:
        limits = self._of.limits() or StateLimits()
        return LabelOperator(self._of.store, self._of.seal, limits, tenant)

    @contextmanager
    def _recorded(self, event: str, person: Person, **fields: Json) -> Iterator[None]:
        """Record an act before it is done, and once more where it then fails."""
        told = {**fields, **by_whom(person)}
        self._of.audit.event(event, told)
        try:
            yield
        except GuardError as error:
            self._of.audit.event(event, {**told, "failed": str(error)[:200]})
            raise

    # --- the gate --------------------------------------------------------------------------------

    async def found(self, tenants: list[str], limit: int = LISTED) -> dict[str, Any]:
        """Return closed partitions, drift and held-back writes of tenants, as JSON values."""
        found: dict[str, Any] = {"tenants": tenants, "closed": [], "drift": [], "writes": []}
        for tenant in tenants:
            operator = self._gate(tenant)
            for one in await operator.closed():
                found["closed"].append({"tenant": tenant, **one._asdict()})
            for principal, subject in await operator.drift():
                level = Trust(await operator.trust("principal", principal)).name.lower()
                told = {"tenant": tenant, "principal": principal, "subject": subject}
                found["drift"].append({**told, "trust": level})
            for write in await operator.review(limit):
                shown = {name: write.fields.get(name, "") for name in (*_SHOWN, "content")}
                found["writes"].append({"tenant": tenant, **shown})
        return found

    async def overview(self, request: Request) -> Response:
        """What is closed, what drifts, what was held back."""
        limit = _limit(request, LISTED, MOST)
        return JSONResponse(await self.found(await self._of.tenants_of(request), limit))

    async def promote(self, request: Request) -> Response:
        """Let exactly this content of this principal into a class, once."""
        body, person = await read_body(request, PromoteBody), person_of(request)
        operator = self._gate(body.tenant)
        fields = (await operator.candidate(body.decision)).fields
        target = MemoryClass[body.memory_class or fields["target"]]
        told: dict[str, Json] = {
            "decision_id": body.decision,
            "principal": fields["principal"],
            "memory_class": target.name,
        }
        _check_other(person, fields["principal"])
        with self._recorded("guard.memory_promoted", person, **told):
            token = await operator.promote(
                body.decision, target, body.seconds, person.name, self._of.seal
            )
        return JSONResponse({**told, "content": fields.get("content", ""), "token": token})

    async def quarantine(self, request: Request) -> Response:
        """Close a partition of a store: nothing is written to it until it is released."""
        await self.close(person_of(request), await read_body(request, CloseBody))
        return JSONResponse({"closed": True})

    async def close(self, person: Person, body: CloseBody) -> None:
        """Close a partition, on record."""
        told: dict[str, Json] = {"tenant": body.tenant, "store": body.store, "reason": body.reason}
        told["ttl"] = f"{body.seconds}s"
        with self._recorded("guard.memory_quarantined", person, **told):
            await self._gate(body.tenant).quarantine(
                body.store, body.partition, body.reason, body.seconds
            )

    async def release(self, request: Request) -> Response:
        """Open a closed partition again."""
        await self.open(person_of(request), await read_body(request, PartitionBody))
        return JSONResponse({"open": True})

    async def open(self, person: Person, body: PartitionBody) -> None:
        """Open a closed partition, on record.

        Raises:
            GuardError: it is not closed.
        """
        where: dict[str, Json] = {"tenant": body.tenant, "store": body.store}
        with self._recorded("guard.memory_released", person, **where):
            if not await self._gate(body.tenant).release(body.store, body.partition):
                raise GuardError("this partition is not closed; it may be open again")

    async def trust(self, request: Request) -> Response:
        """Trust a source or principal again; the gate itself only ever lowers trust."""
        level = await self.restore(person_of(request), await read_body(request, TrustBody))
        return JSONResponse({"was": level.name})

    async def restore(self, person: Person, body: TrustBody) -> Trust:
        """Trust a source or principal again, on record; return what it was."""
        self._of.check_recorded()
        if body.kind == "principal":
            _check_other(person, body.name)
        # The line comes first: trust that nobody recorded must not come back.
        with self._recorded("guard.memory_trust_restored", person, **body.model_dump()):
            return Trust(await self._gate(body.tenant).restore(body.kind, body.name))

    async def accept_loss(self, request: Request) -> Response:
        """Count labels as complete again after the store was lost, replaced or rolled back."""
        body = await read_body(request, ReasonBody)
        self._of.check_recorded()
        # The line comes first: a loss that nobody recorded as accepted must not be forgotten.
        person, store = person_of(request), self._of.store
        with self._recorded("guard.labels_loss_accepted", person, reason=body.reason):
            lost = await continuity.accept_loss(store.client, self._of.seal, store.namespace)
        return JSONResponse({"incomplete_until": lost.incomplete_until})

    async def in_flight(self, request: Request) -> Response:
        """Writes that were forwarded and whose fate is not known, for so many seconds."""
        try:
            older = float(request.query_params.get("older_than", "0"))
        except ValueError as error:
            raise InputError("`older_than` is a number of seconds") from error
        found = [
            {"tenant": tenant, "fields": one.fields, "age": one.age}
            for tenant in await self._of.tenants_of(request)
            for one in await self._gate(tenant).in_flight(older)
        ]
        return JSONResponse({"writes": found})

    async def settle(self, request: Request) -> Response:
        """Record the fate of a write, after its store was read back."""
        body = await read_body(request, FateBody)
        told: dict[str, Json] = {"decision_id": body.id, "fate": body.fate.value}
        person, operator = person_of(request), self._gate(body.tenant)
        with self._recorded("guard.memory_resolved", person, tenant=body.tenant, **told):
            await operator.settle(await operator.candidate(body.id), body.fate, body.seconds)
        return JSONResponse(told)

    # --- labels ----------------------------------------------------------------------------------

    async def labels(self, request: Request) -> Response:
        """Records of labels of a tenant's memories; values are fingerprints."""
        limit, found = _limit(request, 100, MOST_LABELS), list[dict[str, Any]]()
        for tenant in await self._of.tenants_of(request):
            async for record in self._labels(tenant).listed():
                if len(found) < limit:
                    found.append({"tenant": tenant, **entry_document(record)})
        return JSONResponse({"labels": found})

    async def import_items(self, request: Request) -> Response:
        """Label what a memory held before the guard: its values then attest, or taint."""
        body = await read_body(request, ItemsBody)
        items = [
            ImportedItem(one.store, one.value, Integrity[one.label.upper()], one.services)
            for one in body.items
        ]
        told: dict[str, Json] = {"tenant": body.tenant, "items": len(items)}
        told["labels"] = sorted({one.label for one in body.items})
        with self._recorded("guard.memory_imported", person_of(request), **told):
            await self._labels(body.tenant).import_items(items, self._of.now())
        return JSONResponse({"labelled": len(items)})

    async def find(self, request: Request) -> Response:
        """The labels of every value in a text."""
        body = await read_body(request, FindBody)
        found = await self._labels(body.tenant).lookup(
            body.text, self._of.now(), store=body.store, principal=body.principal
        )
        values = {name: [entry_document(one) for one in some] for name, some in found.items()}
        return JSONResponse({"values": values})

    async def trace(self, request: Request) -> Response:
        """The path that the values in a text took, every save of it, as data and as a tree."""
        body = await read_body(request, FindBody)
        operator = self._labels(body.tenant)
        found = await operator.trace(
            body.text, self._of.now(), store=body.store, principal=body.principal
        )
        reader = Identity(body.principal, "", tenant=body.tenant)
        keys = (body.text, *body.items)
        tree = traced_tree(body.text, found, seal=operator.seal, keys=keys, reader=reader)
        return JSONResponse({"tree": tree, **traced_document(body.text, found)})

    async def reach(self, request: Request) -> Response:
        """What follows from the saves that a text names, or what they follow from."""
        body = await read_body(request, ReachBody)
        of = self._of
        operator = IncidentOperator(of.store, of.seal, body.tenant, of.limits())
        graph = await operator.graph()
        given = Given(item=body.text, store=body.store)
        if not body.store:
            is_node = _NODE.fullmatch(body.text) is not None
            given = Given(node=body.text) if is_node else Given(value=body.text)
        roots = select(graph, operator.selector(given))
        if not roots:
            raise GuardError("no save on record has that")
        return JSONResponse(scope_document(graph, scope_of(graph, roots, up=body.up)))

    # --- findings and structure ------------------------------------------------------------------

    def _watch(self, tenant: str) -> Watch:
        # It brings the numbers of a detector along, which nothing else here needs.
        from guard.adapters.redis.detection import Watch

        return Watch(self._of.store, self._of.seal, DetectionSettings(), tenant)

    async def findings(self, request: Request) -> Response:
        """Saves that look poisoned; sends that follow from them are asked about."""
        found = [
            {"tenant": tenant, **one.document()}
            for tenant in await self._of.tenants_of(request)
            for one in await self._watch(tenant).findings()
        ]
        return JSONResponse({"findings": sorted(found, key=lambda one: -one["p"])})

    async def clear(self, request: Request) -> Response:
        """Take findings back."""
        body = await read_body(request, ClearBody)
        try:
            nodes = [bytes.fromhex(one) for one in body.nodes]
        except ValueError as error:
            raise InputError("a node is named in hex digits") from error
        told: dict[str, Json] = {"act": "clear", "tenant": body.tenant, "nodes": list(body.nodes)}
        with self._recorded(EVENT_FINDING, person_of(request), **told):
            if not await self._watch(body.tenant).clear(nodes):
                raise GuardError("none of these nodes is a finding")
        return JSONResponse({"cleared": list(body.nodes)})

    async def structure(self, request: Request) -> Response:
        """A store's ledger: JSON lines of changes and writers, then how many are not whole."""
        tenant = request.query_params.get("tenant", "default")
        store = request.query_params.get("store", "")
        if not store:
            raise InputError("say which store")
        return StreamingResponse(self._ledger(tenant, store), media_type="application/jsonl")

    async def _ledger(self, tenant: str, store: str) -> AsyncIterator[bytes]:
        area = ledger_set(tenant, store)
        reader = LedgerReader(self._of.seal, area)
        async for entries in RedisLedger(self._of.store).read(tenant, area, 0):
            lines = [json.dumps(write_document(write)) for write in reader.read(entries)]
            yield "".join(f"{line}\n" for line in lines).encode()
        yield f"{json.dumps({'faults': reader.faults})}\n".encode()

    async def append(self, request: Request) -> Response:
        """Put structure that existed before the guard into a store's ledger."""
        body = await read_body(request, StructureBody)
        writer = Writer(
            body.principal, at=body.at, source=IMPORTED, label=Integrity[body.label.upper()]
        )
        writes = [
            Write(
                Change[one.change.upper()], one.one, one.two, one.relation, one.weight, one.item,
                writer, one.parents,
            )
            for one in body.writes
        ]  # fmt: skip
        told: dict[str, Json] = {"tenant": body.tenant, "store": body.store, "label": body.label}
        told["changes"] = len(writes)
        area = ledger_set(body.tenant, body.store)
        call = f"{IMPORTED} {writer.at} {body.part}"
        sealed = seal_writes(self._of.seal, area, call, writes)
        with self._recorded("guard.structure_imported", person_of(request), **told):
            await RedisLedger(self._of.store).append(body.tenant, area, sealed)
        return JSONResponse({"imported": len(writes)})


def write_document(write: Write) -> dict[str, Any]:
    """Return a change of a graph and its writer as JSON values."""
    writer = {**asdict(write.writer), "session": write.writer.session.hex()}
    return {
        **{name: getattr(write, name) for name in WriteBody.model_fields},
        "change": write.change.name.lower(),
        **writer,
        "label": write.writer.label.name.lower(),
    }


def _check_other(person: Person, principal: str) -> None:
    """Refuse somebody who signed in by name and would let something of his own agent through.

    Raises:
        GuardError: the principal is this person.
    """
    if person.realm not in UNNAMED and person.approver.is_principal(principal):
        raise GuardError(f"`{person.name}` cannot do that for an agent in the same name")


def _limit(request: Request, usual: int, most: int) -> int:
    text = request.query_params.get("limit", "")
    return min(max(1, int(text)), most) if text.isdigit() else usual
