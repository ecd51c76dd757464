"""Acts on incidents: open, contain, release, repair, undo, close, export.

Acts that release or write (:data:`LOOSENS`) wait for a second person if the policy says so; one
person is enough to withhold.  A repair is written through a listener of the guard that the operator
has named, so the guard judges it like any other write.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from guard.core.errors import GuardError, InputError
from guard.extensions.propagation.evidence import Tier
from guard.extensions.propagation.export import (
    as_json,
    as_stix,
    document_of,
    is_signed,
)
from guard.extensions.propagation.graph import SAVED
from guard.extensions.propagation.repair import PICK, RESTORED, Proposal, proposal_document
from guard.extensions.propagation.scope import event_document, item_document
from guard.operations.approvals import EVENT_INCIDENT
from guard.operations.deployment import Body, Deployment, Person
from guard.operations.incidents import Given, IncidentOperator, Texts
from guard.provenance.approvals import UNNAMED
from guard.provenance.principal_status import ACTS_PART, asked_set
from guard.store.approval_requests import Awaited

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from guard.core.model import Json

    Writer = Callable[[str, str, dict[str, Json]], Awaitable[object]]
    """Saves something with a tool: takes the listener's URL, the tool and its arguments."""

LOOSENS: Final = frozenset({"release", "repair", "undo"})
TIERS: Final = {
    "contain": Tier.CONFIRMED,
    "contain_likely": Tier.LIKELY,
    "contain_exposed": Tier.EXPOSED,
}
"""Least certain items that each act of containment takes."""
_DONE: Final = frozenset({"written", "repaired", RESTORED})
"""Outcomes of a repair that was done; any other outcome says why it was not."""
WAIT_SECONDS: Final = 24 * 3600.0
"""Time for which an act waits for a second person."""


class IncidentAct(Body):
    """One act on an incident."""

    act: Literal[
        "contain", "contain_likely", "contain_exposed", "close", "release", "repair", "undo"
    ]
    step: int = 0
    """Number of the step to undo."""
    nodes: Annotated[tuple[str, ...], Field(max_length=10_000)] = ()
    """Nodes to release, in hex."""
    item: str = ""
    """Mark of the item to repair, in hex."""
    pick: str = ""
    """Node of the text that a person chose; empty takes the proposed text."""
    server: str = ""
    """Listener for the write: one of those that the operator has named."""


class Opening(Given):
    """Selection that an incident is opened from."""

    tenant: str = "default"
    note: Annotated[str, Field(max_length=500)] = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Act that waits for a second person."""

    id: str
    incident: str
    act: dict[str, Any]
    """Fields of an :class:`IncidentAct`."""
    by: str
    realm: str
    subject: str
    at: float


@dataclass(frozen=True, slots=True)
class Repairs:
    """Listeners for repairs, and the rule of the second person."""

    servers: tuple[str, ...]
    """URLs of the guard's listeners in front of memories."""
    write: Writer
    needs_two: Callable[[], bool]
    """Returns whether the policy in force needs two persons; may read files."""


class IncidentActions:
    """Incidents of all tenants, and what persons do with them.

    Args:
        deployment: its state, key and audit log.
        repairs: listeners for repairs.
    """

    def __init__(self, deployment: Deployment, repairs: Repairs) -> None:
        self._deployment = deployment
        self._audit = deployment.audit
        self.repairs = repairs

    def operator(self, tenant: str) -> IncidentOperator:
        """Return the incidents of a tenant."""
        of = self._deployment
        return IncidentOperator(of.store, of.seal, tenant, of.limits)

    async def listed(self, tenants: Sequence[str]) -> list[dict[str, Any]]:
        """Return the incidents of some tenants, the newest of each first."""
        return [
            {"tenant": tenant, **asdict(one)}
            for tenant in tenants
            for one in reversed(await self.operator(tenant).listed())
        ]

    async def open(self, person: Person, given: Opening) -> dict[str, Any]:
        """Open an incident; return its tenant and id, and the number of its roots."""
        at, tenant = self._deployment.now(), given.tenant
        two = await asyncio.to_thread(self.repairs.needs_two)
        operator = self.operator(tenant)
        incident = await operator.open(given, at, person.name, given.note, two_people=two)
        line = {"incident": incident.id, "act": "open", **person.fields()}
        self._audit.event(EVENT_INCIDENT, line)
        return {"tenant": tenant, "incident": incident.id, "roots": len(incident.roots)}

    async def act(self, person: Person, place: tuple[str, str], act: IncidentAct) -> Wanted | str:
        """Do an act, or keep it for a second person.

        Args:
            person: the person who acts.
            place: tenant and id of the incident.
            act: the act.

        Returns:
            the waiting act, or the outcome of a repair.

        Raises:
            GuardError: the act cannot be done; nothing was changed.
        """
        tenant, name = place
        incident = await self.operator(tenant).incident(name)
        # A command without a console has no policy: the incident records the rule in force.
        two = incident.two_people or await asyncio.to_thread(self.repairs.needs_two)
        if act.act not in LOOSENS or not two:
            return await self._do(place, act, person, person.name)
        if person.realm in UNNAMED:
            raise InputError("the policy has two people for this, who sign in on a console by name")
        identifier, at = secrets.token_hex(8), self._deployment.now()
        fields = act.model_dump(mode="json")
        wanted = Wanted(identifier, incident.id, fields, person.name, *person.key, at)
        line = {**_recorded(incident.id, act), "wanted": True, **person.fields()}
        self._audit.event(EVENT_INCIDENT, line)
        await self._awaited(tenant).keep(wanted)
        return wanted

    async def agree(self, person: Person, place: tuple[str, str], identifier: str) -> str:
        """Do an act that another person wants; return the outcome of a repair.

        Raises:
            GuardError: no such act waits, or this person is not known to be another one.
        """
        wanted = await self._wanted(place, identifier)
        person.check_second([(wanted.realm, wanted.subject)])
        await self._take(place[0], identifier)
        act = IncidentAct.model_validate(wanted.act)
        who = f"{wanted.by} and {person.name}"
        return await self._do(place, act, person, who, first=wanted.by)

    async def withdraw(self, person: Person, place: tuple[str, str], identifier: str) -> None:
        """Withdraw an act that waits for a second person.

        Raises:
            GuardError: no such act waits.
        """
        wanted = await self._wanted(place, identifier)
        await self._take(place[0], identifier)
        act = IncidentAct.model_validate(wanted.act)
        line = {**_recorded(wanted.incident, act), "withdrawn": True, **person.fields()}
        self._audit.event(EVENT_INCIDENT, line)

    async def waiting(self, place: tuple[str, str]) -> list[dict[str, Any]]:
        """Return the acts on an incident that wait for a second person, as JSON values."""
        tenant, incident = place
        every = await self._awaited(tenant).listed(self._deployment.now())
        return [
            {"id": one.id, "by": one.by, "at": one.at, **one.act}
            for one in every
            if one.incident == incident
        ]

    async def _wanted(self, place: tuple[str, str], identifier: str) -> Wanted:
        tenant, incident = place
        wanted = await self._awaited(tenant).one(identifier, self._deployment.now())
        if wanted is None or wanted.incident != incident:
            raise GuardError("nothing waits under this id; have it asked for again")
        return wanted

    async def _take(self, tenant: str, identifier: str) -> None:
        """Remove a waiting act before it is done: of two persons at once, one finds it."""
        if not await self._awaited(tenant).take(identifier):
            raise GuardError("somebody else has just agreed to it, or withdrawn it")

    def _awaited(self, tenant: str) -> Awaited[Wanted]:
        of, area = self._deployment, asked_set(tenant, ACTS_PART)
        return Awaited(of.store, of.seal, tenant, area, Wanted, WAIT_SECONDS)

    async def _do(
        self, place: tuple[str, str], act: IncidentAct, person: Person, who: str, **more: Json
    ) -> str:
        """Do an act, with an audit line before it and another one if it fails."""
        tenant, name = place
        operator, at = self.operator(tenant), self._deployment.now()
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            **{one: partial(operator.contain, name, at, who, tier) for one, tier in TIERS.items()},
            "undo": partial(operator.undo, name, act.step, at, who),
            "release": partial(operator.release, name, act.nodes, at, who),
            "repair": partial(self._repair, operator, name, act, who),
            "close": partial(operator.close, name, at, who),
        }
        fields = {**_recorded(name, act), **more}
        with self._deployment.recorded(EVENT_INCIDENT, person, **fields) as line:
            outcome = await acts[act.act]()
        if not isinstance(outcome, str):
            return ""
        self._audit.event(EVENT_INCIDENT, {**line, "outcome": outcome[:200]})
        return outcome

    async def _repair(
        self, operator: IncidentOperator, name: str, act: IncidentAct, who: str
    ) -> str:
        """Write a text in place of a contained item; return the outcome.

        Raises:
            GuardError: the item is not contained, the text is not proposed for it, or the listener
                is not one that the operator has named.
        """
        server = act.server or next(iter(self.repairs.servers), "")
        if server not in self.repairs.servers:
            raise GuardError("the console was not given this listener (`--console-memory URL`)")
        found, texts = await operator.proposals(name)
        one = next((one for one in found if one.item.hex() == act.item), None)
        if one is None:
            raise GuardError("this item is not contained; look at it again")
        offered = {other.node.hex() for other in one.neighbours}
        offered |= {one.version.node.hex()} if one.version is not None else set()
        if act.pick and act.pick not in offered:
            raise GuardError("this text is not proposed for the item any more; look at it again")
        text = texts, bytes.fromhex(act.pick)
        write = partial(self.repairs.write, server)
        outcome = await operator.repair(name, one, text, write, self._deployment.now(), who)
        if outcome not in _DONE:
            raise GuardError("choose a text" if outcome == PICK else outcome)
        return outcome

    # --- evidence --------------------------------------------------------------------------------

    async def overview(self, place: tuple[str, str]) -> dict[str, Any]:
        """Return an incident, its scope, its steps and what can be done next, as JSON values."""
        tenant, name = place
        operator = self.operator(tenant)
        incident = await operator.incident(name)
        graph, scope = await operator.scope(name)
        document = await asyncio.to_thread(document_of, graph, incident, scope)
        offered = [
            {"why": why, **event_document(event)} for event, why in await operator.offered(name)
        ]
        return {
            "tenant": tenant,
            "incident": asdict(incident),
            "scope": document["scope"],
            "offered": offered,
            "wanted": await self.waiting(place),
        }

    async def exposed(self, place: tuple[str, str]) -> dict[str, Any]:
        """Return what ``contain_exposed`` would contain besides; nothing is changed."""
        graph, scope = await self.operator(place[0]).scope(place[1], exposed=True)
        return {
            "tenant": place[0],
            "incident": place[1],
            "items": [
                item_document(one) for one in scope.items if one.reached.tier is Tier.EXPOSED
            ],
            "saves": sum(graph.event(place).what in SAVED for place in range(len(graph))),
        }

    async def exported(self, place: tuple[str, str], form: str = "json") -> str:
        """Return the evidence of an incident: signed JSON or STIX.

        Raises:
            InputError: the package of the format is missing.
        """
        operator = self.operator(place[0])
        incident = await operator.incident(place[1])
        graph, scope = await operator.scope(place[1])
        document = await asyncio.to_thread(document_of, graph, incident, scope)
        if form == "json":
            return as_json(self._deployment.seal, document)
        try:
            return await asyncio.to_thread(as_stix, document)
        except ImportError as error:
            raise InputError("STIX needs the extra `incidents` (package stix2)") from error

    async def export(self, person: Person, place: tuple[str, str], form: str) -> dict[str, str]:
        """Return the evidence and its digest; the digest goes into the audit log."""
        text = await self.exported(place, form)
        digest = hashlib.sha256(text.encode()).hexdigest()
        line = {"incident": place[1], "act": "export", "format": form, "sha256": digest}
        self._audit.event(EVENT_INCIDENT, {**line, **person.fields()})
        return {"text": text, "sha256": digest}

    async def verify(self, text: str) -> dict[str, bool]:
        """Return whether exported JSON is unchanged since this guard wrote it."""
        signed = await asyncio.to_thread(is_signed, self._deployment.seal, text)
        return {"as_written": signed}

    async def texts(self, place: tuple[str, str]) -> dict[str, Any]:
        """Return the arguments of the saves and sends of an incident, as far as they are kept."""
        operator = self.operator(place[0])
        _, scope = await operator.scope(place[1])
        return {"texts": _arguments(await operator.texts(scope))}

    async def proposals(self, place: tuple[str, str]) -> dict[str, Any]:
        """Return the restorations of each contained item, as JSON values."""
        tenant, name = place
        operator = self.operator(tenant)
        found, texts = await operator.proposals(name)
        shown = {node: text for one in found for node, text in _texts_of(one, texts).items()}
        return {
            "tenant": tenant,
            "incident": name,
            "proposals": [proposal_document(one) for one in found],
            "texts": _arguments(shown),
            "repaired": sorted((await operator.incident(name)).repaired),
            "offered": [
                {"node": event.node.hex(), "why": why}
                for event, why in await operator.offered(name)
            ],
            "wanted": await self.waiting(place),
            "servers": list(self.repairs.servers),
        }


def _recorded(incident: str, act: IncidentAct) -> dict[str, Json]:
    named = act.model_dump(mode="json")
    return {"incident": incident, **{name: value for name, value in named.items() if value}}


def _texts_of(one: Proposal, texts: Texts) -> Texts:
    """Return the texts of one proposal."""
    nodes = [one.contained, *(other.node for other in one.neighbours)]
    nodes += [one.version.node] if one.version is not None else []
    return {node: texts[node] for node in nodes if node in texts}


def _arguments(texts: Texts) -> dict[str, Any]:
    """Return the arguments of saves by node in hex."""
    return {node.hex(): arguments for node, (_, arguments) in texts.items()}
