"""Incidents by the API: open, scope, contain, release, repair, undo, export, close.

What gives something back or writes (:data:`LOOSENS`) waits for a second person where the policy has
two people for incidents; to withhold, one is always enough.  A repair is written through a listener
of the guard that the operator has named, so it is judged like any other write.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked
from starlette.responses import JSONResponse, Response

from guard.adapters.redis.awaited import Awaited
from guard.adapters.redis.incidents import Given, IncidentOperator
from guard.console.access import Role, check_second, person_key
from guard.console.operator_actions import EVENT_INCIDENT
from guard.console.routes import LARGE, Body, Page, by_whom, person_of, read_body
from guard.core.errors import GuardError, InputError
from guard.propagation.export import (
    FORMATS,
    as_csv,
    as_graphml,
    as_json,
    as_stix,
    document_of,
    is_signed,
)
from guard.propagation.repair import PICK, RESTORED, WINDOW, Held, proposal_document
from guard.provenance.approvals import UNNAMED
from guard.provenance.principal_status import ACTS_PART, asked_set

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

    from guard.adapters.redis.incidents import Texts
    from guard.console.access import Person
    from guard.console.routes import Deployment
    from guard.core.model import Json
    from guard.propagation.incident import Incident
    from guard.propagation.repair import Proposal

    Writer = Callable[[str, str, dict[str, Json]], Awaitable[object]]
    """Has a tool save something: is given the listener's URL, the tool and its arguments."""

LOOSENS: Final = frozenset({"release", "repair", "undo"})
ACTS: Final = frozenset({"contain", "contain_likely", "close", *LOOSENS})
_CAME: Final = frozenset({"written", "repaired", RESTORED})
"""What a repair comes to that was done; anything else says why it was not."""
WAIT_SECONDS: Final = 24 * 3600.0
"""How long an act waits for a second person."""
EXCERPT: Final = 2000
"""Characters of a saved text that a person is shown."""


@checked(config=ConfigDict(extra="forbid"), frozen=True)
class OpenIncidentBody(Given):
    """What an incident is opened from; all that is given must hold of a save."""

    tenant: str = "default"
    note: Annotated[str, Field(max_length=500)] = ""


class HeldBody(Body):
    """What a memory answers, to read texts back from it that are not kept."""

    answer: Any
    arguments: dict[str, tuple[str, ...]]
    """By tool the names of its arguments."""

    @property
    def told(self) -> Held:
        """As what it is read back."""
        return Held(self.answer, {tool: frozenset(some) for tool, some in self.arguments.items()})


class ActBody(Body):
    """One act on an incident."""

    act: str
    """``contain``, ``contain_likely``, ``release``, ``repair``, ``undo`` or ``close``."""
    step: int = 0
    """The step to undo."""
    nodes: Annotated[tuple[str, ...], Field(max_length=10_000)] = ()
    """What is released, in hex."""
    item: str = ""
    """Mark of the item that is repaired, in hex."""
    pick: str = ""
    """The node whose text a person has chosen for it; empty takes what is proposed."""
    server: str = ""
    """The listener through which it is written: one of those that the console was given."""
    held: HeldBody | None = None
    """What the memory answers, where the text is not kept elsewhere."""


class WantedBody(Body):
    """An act that waits for a second person."""

    id: str


class ProposalsBody(Body):
    """What restorations are to be looked for with."""

    window: int = Field(default=WINDOW, ge=1)
    """Events without a follower, to offer a likely item."""
    held: HeldBody | None = None


class ExportBody(Body):
    """The form of evidence."""

    format: str = "json"


class VerifyBody(Body):
    """Evidence as it was exported."""

    text: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """An act that waits for a second person."""

    id: str
    incident: str
    act: dict[str, Any]
    """Fields of an :class:`ActBody`."""
    by: str
    realm: str
    subject: str
    """Who wants it, as an ``Approver``."""
    at: float


@dataclass(frozen=True, slots=True)
class Repairs:
    """How repairs are written, and whether two people are needed for what gives something back."""

    servers: tuple[str, ...]
    """URLs of the guard's listeners in front of memories."""
    write: Writer
    needs_two: Callable[[], bool]
    """Whether the policy in force has two people; may read files."""


class IncidentApi:
    """The incidents of all tenants.

    Args:
        deployment: what they are of.
        repairs: how they are written.
    """

    def __init__(self, deployment: Deployment, repairs: Repairs) -> None:
        self._deployment = deployment
        self._audit = deployment.audit
        self.repairs = repairs

    def table(self) -> list[Page]:
        """Return the routes."""
        view, act = Role.VIEWER, Role.APPROVER
        every, one = "/api/incidents", "/api/incidents/{tenant}/{incident}"
        return [
            Page(every, self.list_incidents, view, query=("tenant",)),
            Page(every, self.open_incident, act, "POST", OpenIncidentBody),
            Page(f"{every}/verify", self.verify, view, "POST", VerifyBody, longest=LARGE),
            Page(one, self.evidence, view),
            Page(one, self.act_on_incident, act, "POST", ActBody, longest=LARGE),
            Page(f"{one}/texts", self.texts, view),
            Page(f"{one}/repair", self.proposals, view),
            Page(f"{one}/repair", self.proposals_of, view, "POST", ProposalsBody, longest=LARGE),
            Page(f"{one}/export", self.export, view, "POST", ExportBody),
            Page(f"{one}/second", self.agree, act, "POST", WantedBody),
            Page(f"{one}/withdraw", self.withdraw_act, act, "POST", WantedBody),
        ]

    def operator(self, tenant: str) -> IncidentOperator:
        """Return what works on the incidents of a tenant."""
        of = self._deployment
        return IncidentOperator(of.store, of.seal, tenant, of.limits())

    # --- acts ------------------------------------------------------------------------------------

    async def opened(self, person: Person, tenant: str, given: Given, note: str) -> Incident:
        """Open an incident, on record."""
        at = self._deployment.now()
        two = await asyncio.to_thread(self.repairs.needs_two)
        operator = self.operator(tenant)
        incident = await operator.open(given, at, person.name, note, two_people=two)
        self._audit.event(
            EVENT_INCIDENT, {"incident": incident.id, "act": "open", **by_whom(person)}
        )
        return incident

    async def do(self, person: Person, tenant: str, name: str, act: ActBody) -> Wanted | str:
        """Do an act, or keep it for a second person.

        Returns:
            the act that waits, or what came of it: of a repair only.

        Raises:
            GuardError: it is no act, or cannot be done; nothing was changed.
        """
        if act.act not in ACTS:
            raise InputError("this is no act")
        incident = await self.operator(tenant).incident(name)
        # A command without a console knows no policy: the incident says what was in force.
        two = incident.two_people or await asyncio.to_thread(self.repairs.needs_two)
        if act.act not in LOOSENS or not two:
            return await self._done(tenant, incident.id, act, by_whom(person), person.name)
        if act.held is not None:
            raise InputError("what was read back from a memory cannot wait for a second person")
        if person.realm in UNNAMED:
            raise InputError("the policy has two people for this, who sign in on a console by name")
        identifier, at, who = secrets.token_hex(8), self._deployment.now(), person_key(person)
        wanted = Wanted(identifier, incident.id, act.model_dump(mode="json"), person.name, *who, at)
        self._audit.event(
            EVENT_INCIDENT, {**_recorded(incident.id, act), "wanted": True, **by_whom(person)}
        )
        await self._awaited(tenant).keep(wanted)
        return wanted

    async def second(self, person: Person, place: tuple[str, str], identifier: str) -> str:
        """Do what somebody else wants; return what came of it.

        Raises:
            GuardError: nothing waits under this id here, or this person is not surely another one.
        """
        wanted = await self._wanted(place, identifier)
        check_second([(wanted.realm, wanted.subject)], person)
        await self._take(place[0], identifier)
        by = {**by_whom(person), "first": wanted.by}
        act = ActBody.model_validate(wanted.act)
        return await self._done(*place, act, by, f"{wanted.by} and {person.name}")

    async def withdraw(self, person: Person, place: tuple[str, str], identifier: str) -> None:
        """Take back what waits for a second person.

        Raises:
            GuardError: nothing waits under this id here.
        """
        wanted = await self._wanted(place, identifier)
        await self._take(place[0], identifier)
        act = ActBody.model_validate(wanted.act)
        told = {**_recorded(wanted.incident, act), "withdrawn": True, **by_whom(person)}
        self._audit.event(EVENT_INCIDENT, told)

    async def waiting(self, tenant: str, incident: str) -> list[Wanted]:
        """Return the acts on an incident that wait for a second person."""
        every = await self._awaited(tenant).listed(self._deployment.now())
        return [one for one in every if one.incident == incident]

    async def _wanted(self, place: tuple[str, str], identifier: str) -> Wanted:
        tenant, incident = place
        wanted = await self._awaited(tenant).one(identifier, self._deployment.now())
        if wanted is None or wanted.incident != incident:
            raise GuardError("nothing waits under this id; have it asked for again")
        return wanted

    async def _take(self, tenant: str, identifier: str) -> None:
        """Take an act away before anything is done with it: of two people at once, one finds it."""
        if not await self._awaited(tenant).take(identifier):
            raise GuardError("somebody else has just agreed to it, or withdrawn it")

    def _awaited(self, tenant: str) -> Awaited[Wanted]:
        of, area = self._deployment, asked_set(tenant, ACTS_PART)
        return Awaited(of.store, of.seal, tenant, area, Wanted, WAIT_SECONDS)

    async def _done(
        self, tenant: str, name: str, act: ActBody, by: dict[str, Json], who: str
    ) -> str:
        """Do an act, on record before and where it fails."""
        operator, at = self.operator(tenant), self._deployment.now()
        doing: dict[str, Callable[[], Awaitable[object]]] = {
            "contain": lambda: operator.contain(name, at, who),
            "contain_likely": lambda: operator.contain(name, at, who, likely=True),
            "undo": lambda: operator.undo(name, act.step, at, who),
            "release": lambda: operator.release(name, act.nodes, at, who),
            "repair": lambda: self._written(operator, name, act, who),
            "close": lambda: operator.close(name, at, who),
        }
        told = {**_recorded(name, act), **by}
        self._audit.event(EVENT_INCIDENT, told)
        try:
            came = await doing[act.act]()
        except GuardError as error:
            self._audit.event(EVENT_INCIDENT, {**told, "failed": str(error)[:200]})
            raise
        if not isinstance(came, str):
            return ""
        self._audit.event(EVENT_INCIDENT, {**told, "outcome": came[:200]})
        return came

    async def _written(self, operator: IncidentOperator, name: str, act: ActBody, who: str) -> str:
        """Write a text in the place of a contained item; return what came of it.

        Raises:
            GuardError: the item is not contained, the text is not one that is proposed for it, or
                the listener is none of the console's.
        """
        server = act.server or next(iter(self.repairs.servers), "")
        if server not in self.repairs.servers:
            raise GuardError("the console was not given this listener (`--console-memory URL`)")
        found, texts = await operator.proposals(name, act.held.told if act.held else None)
        one = next((one for one in found if one.item.hex() == act.item), None)
        if one is None:
            raise GuardError("this item is not contained; look at it again")
        offered = {other.node.hex() for other in one.neighbours}
        offered |= {one.version.node.hex()} if one.version is not None else set()
        if act.pick and act.pick not in offered:
            raise GuardError("this text is not proposed for the item any more; look at it again")
        text = texts, bytes.fromhex(act.pick)
        write = partial(self.repairs.write, server)
        came = await operator.repair(name, one, text, write, self._deployment.now(), who)
        if came not in _CAME:
            raise GuardError("choose a text" if came == PICK else came)
        return came

    # --- routes ----------------------------------------------------------------------------------

    async def listed(self, tenants: Sequence[str]) -> list[tuple[str, Incident]]:
        """Return the incidents of some tenants, the newest of each first."""
        return [
            (tenant, one)
            for tenant in tenants
            for one in reversed(await self.operator(tenant).listed())
        ]

    async def list_incidents(self, request: Request) -> Response:
        """The incidents of all tenants."""
        found = await self.listed(await self._deployment.tenants_of(request))
        return JSONResponse({"incidents": [{"tenant": t, **asdict(one)} for t, one in found]})

    async def open_incident(self, request: Request) -> Response:
        """Open an incident."""
        body = await read_body(request, OpenIncidentBody)
        incident = await self.opened(person_of(request), body.tenant, body, body.note)
        told = {"tenant": body.tenant, "incident": incident.id, "roots": len(incident.roots)}
        return JSONResponse(told)

    async def evidence(self, request: Request) -> Response:
        """One incident with its scope, signed: what `guard incident export` writes."""
        return Response(await self._exported(*place_of(request)), media_type="application/json")

    async def _exported(self, tenant: str, name: str, form: str = "json") -> str:
        operator = self.operator(tenant)
        incident = await operator.incident(name)
        graph, scope = await operator.scope(name)
        document = await asyncio.to_thread(document_of, graph, incident, scope)
        if form == "json":
            return as_json(self._deployment.seal, document)
        if form == "graphml":
            return await asyncio.to_thread(as_graphml, graph, scope)
        try:
            return await asyncio.to_thread(as_csv if form == "csv" else as_stix, document)
        except ImportError as error:
            raise InputError("STIX needs the extra `incidents` (package stix2)") from error

    async def export(self, request: Request) -> Response:
        """Evidence of an incident as JSON (signed), CSV, STIX or GraphML; its digest is kept."""
        form = (await read_body(request, ExportBody)).format
        if form not in FORMATS:
            raise InputError(f"the format is one of {', '.join(FORMATS)}")
        tenant, name = place_of(request)
        text = await self._exported(tenant, name, form)
        digest = hashlib.sha256(text.encode()).hexdigest()
        told = {"incident": name, "act": "export", "format": form, "sha256": digest}
        self._audit.event(EVENT_INCIDENT, {**told, **by_whom(person_of(request))})
        return JSONResponse({"text": text, "sha256": digest})

    async def verify(self, request: Request) -> Response:
        """Whether an exported JSON document is as this guard wrote it."""
        text = (await read_body(request, VerifyBody)).text
        fits = await asyncio.to_thread(is_signed, self._deployment.seal, text)
        return JSONResponse({"as_written": fits})

    async def act_on_incident(self, request: Request) -> Response:
        """Contain, undo, release, repair or close; 202 where it waits for a second person."""
        body, place = await read_body(request, ActBody), place_of(request)
        came = await self.do(person_of(request), *place, body)
        if isinstance(came, Wanted):
            return JSONResponse({"done": False, "wanted": came.id}, 202)
        return await self._told(place, came)

    async def _told(self, place: tuple[str, str], came: str) -> Response:
        tenant, name = place
        incident = await self.operator(tenant).incident(name)
        return JSONResponse({"done": True, "outcome": came, "steps": asdict(incident)["steps"]})

    async def texts(self, request: Request) -> Response:
        """What the items and sends of an incident said, as far as texts are kept."""
        tenant, name = place_of(request)
        operator = self.operator(tenant)
        _, scope = await operator.scope(name)
        return JSONResponse({"texts": _arguments(await operator.texts(scope))})

    async def proposals(self, request: Request) -> Response:
        """What each contained item can be restored to, and what waits for a second person."""
        return await self._proposed(place_of(request), ProposalsBody())

    async def proposals_of(self, request: Request) -> Response:
        """Likewise, with what the memory itself answers, and after another window."""
        return await self._proposed(place_of(request), await read_body(request, ProposalsBody))

    async def _proposed(self, place: tuple[str, str], body: ProposalsBody) -> Response:
        tenant, name = place
        operator = self.operator(tenant)
        found, texts = await operator.proposals(name, body.held.told if body.held else None)
        shown = {node: said for one in found for node, said in _said(one, texts).items()}
        return JSONResponse(
            {
                "proposals": [proposal_document(one) for one in found],
                "texts": _arguments(shown),
                "repaired": sorted((await operator.incident(name)).repaired),
                "offered": [
                    {"node": event.node.hex(), "why": why}
                    for event, why in await operator.offered(name, body.window)
                ],
                "wanted": [
                    {"id": one.id, "by": one.by, "at": one.at, **one.act}
                    for one in await self.waiting(tenant, name)
                ],
                "servers": list(self.repairs.servers),
            }
        )

    async def agree(self, request: Request) -> Response:
        """Agree to an act that somebody else wants, which is then done."""
        body, place = await read_body(request, WantedBody), place_of(request)
        return await self._told(place, await self.second(person_of(request), place, body.id))

    async def withdraw_act(self, request: Request) -> Response:
        """Take back an act that waits for a second person."""
        body = await read_body(request, WantedBody)
        await self.withdraw(person_of(request), place_of(request), body.id)
        return JSONResponse({"withdrawn": body.id})


def place_of(request: Request) -> tuple[str, str]:
    """Return the tenant and the id of the incident that a request is about."""
    return request.path_params["tenant"], request.path_params["incident"]


def _recorded(incident: str, act: ActBody) -> dict[str, Json]:
    named = act.model_dump(mode="json", exclude={"held"})
    more = {name: value for name, value in named.items() if value}
    return {"incident": incident, **more}


def _said(one: Proposal, texts: Texts) -> Texts:
    """Return the texts that a proposal is about."""
    nodes = [one.contained, *(other.node for other in one.neighbours)]
    nodes += [one.version.node] if one.version is not None else []
    return {node: texts[node] for node in nodes if node in texts}


def _arguments(texts: Texts) -> dict[str, Any]:
    """Return the arguments of saves by node in hex."""
    return {node.hex(): arguments for node, (_, arguments) in texts.items()}
