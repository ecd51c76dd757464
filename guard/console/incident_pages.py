"""Incidents on the pages and by the API: open, contain, release, repair, undo, export, close.

What gives something back or writes (:data:`LOOSENS`) waits for a second person where the policy has
two people for incidents; to withhold, one is always enough.  A repair is written through a listener
of the guard that the operator has named, so it is judged like any other write.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, RedirectResponse, Response

from guard.adapters.redis.incidents import GIVEN, Given, IncidentOperator
from guard.console.access import Role
from guard.console.acts import EVENT_INCIDENT
from guard.console.api import read_body
from guard.console.lineage_pages import LISTED, event_title, scope_drawing
from guard.console.pages import Page, by_whom, field_of, number, person_of
from guard.console.workbench import check_second, one_of
from guard.core.errors import GuardError, InputError
from guard.propagation.events import Flag
from guard.propagation.evidence import Tier
from guard.propagation.export import as_json, document_of
from guard.propagation.repair import PICK, RESTORED, proposal_document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.adapters.redis.incidents import Texts
    from guard.console.access import Person
    from guard.console.pages import Shelf
    from guard.core.model import Json
    from guard.propagation.incident import Incident
    from guard.propagation.scope import Scope

    Writer = Callable[[str, str, dict[str, Json]], Awaitable[object]]
    """Has a tool save something: is given the listener's URL, the tool and its arguments."""

LOOSENS: Final = frozenset({"release", "repair", "undo"})
ACTS: Final = frozenset({"contain", "contain_likely", "close", *LOOSENS})
_CAME: Final = frozenset({"written", "repaired", RESTORED})
"""What a repair comes to that was done; anything else says why it was not."""
WAITING: Final = 100
"""Acts that wait for a second person; the oldest is forgotten when there are more."""
EXCERPT: Final = 2000
"""Characters of a saved text that a person is shown."""


class OpenIncidentBody(BaseModel):
    """What an incident is opened from; all that is given must hold of a save."""

    model_config = ConfigDict(extra="forbid")

    tenant: str = "default"
    node: str = ""
    item: str = ""
    store: str = ""
    value: str = ""
    source: str = ""
    server: str = ""
    principal: str = ""
    session: str = ""
    note: str = Field(default="", max_length=500)


class ActBody(BaseModel):
    """One act on an incident."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    act: str
    """``contain``, ``contain_likely``, ``release``, ``repair``, ``undo`` or ``close``."""
    step: int = 0
    """The step to undo."""
    nodes: tuple[str, ...] = ()
    """What is released, in hex."""
    item: str = ""
    """Mark of the item that is repaired, in hex."""
    pick: str = ""
    """The node whose text a person has chosen for it; empty takes what is proposed."""
    server: str = ""
    """The listener through which it is written: one of those that the console was given."""


class SecondBody(BaseModel):
    """An act that the second person agrees to."""

    model_config = ConfigDict(extra="forbid")

    id: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """An act that waits for a second person."""

    id: str
    tenant: str
    incident: str
    act: ActBody
    by: str
    who: tuple[str, str]
    """Realm and subject of whoever wants it."""
    at: float


@dataclass(frozen=True, slots=True)
class Repairs:
    """How repairs are written, and whether two people are needed for what gives something back."""

    servers: tuple[str, ...]
    """URLs of the guard's listeners in front of memories."""
    write: Writer
    needs_two: Callable[[], bool]
    """Whether the policy in force has two people; may read files."""


class IncidentPages:
    """The incidents of all tenants.

    Args:
        shelf: what the pages are about.
        audit: takes a line per act.
        repairs: how they are written.
    """

    def __init__(self, shelf: Shelf, audit: AuditLogFile | NoAuditLog, repairs: Repairs) -> None:
        self._shelf = shelf
        self._shown = shelf.templates.shown
        self._audit = audit
        self._repairs = repairs
        self._wanted: OrderedDict[str, Wanted] = OrderedDict()

    def table(self) -> list[Page]:
        """Return the routes."""
        view, act = Role.VIEWER, Role.APPROVER
        one = "/incidents/{tenant}/{incident}"
        return [
            Page("/incidents", self.incidents, view),
            Page("/incidents", self.open, act, "POST"),
            Page(one, self.incident, view),
            Page(one, self.act, act, "POST"),
            Page(f"{one}/repair", self.repair, view),
            Page("/api/incidents", self.api_incidents, view),
            Page("/api/incidents", self.api_open, act, "POST", OpenIncidentBody),
            Page(f"/api{one}", self.api_incident, view),
            Page(f"/api{one}", self.api_act, act, "POST", ActBody),
            Page(f"/api{one}/repair", self.api_repair, view),
            Page(f"/api{one}/second", self.api_second, act, "POST", SecondBody),
        ]

    def _operator(self, tenant: str) -> IncidentOperator:
        return IncidentOperator(self._shelf.store, self._shelf.seal, tenant, self._shelf.limits())

    # --- acts ------------------------------------------------------------------------------------

    async def _open(self, person: Person, tenant: str, given: Given, note: str) -> Incident:
        incident = await self._operator(tenant).open(given, self._shelf.now(), person.name, note)
        self._audit.event(
            EVENT_INCIDENT, {"incident": incident.id, "act": "open", **by_whom(person)}
        )
        return incident

    async def _do(self, person: Person, tenant: str, name: str, act: ActBody) -> Wanted | str:
        """Do an act, or keep it for a second person.

        Returns:
            the act that waits, or what came of it: of a repair only.

        Raises:
            GuardError: it is no act, or cannot be done; nothing was changed.
        """
        if act.act not in ACTS:
            raise InputError("this is no act")
        incident = await self._operator(tenant).incident(name)
        if act.act not in LOOSENS or not await asyncio.to_thread(self._repairs.needs_two):
            return await self._done(tenant, incident.id, act, by_whom(person), person.name)
        identifier, who, at = secrets.token_hex(8), one_of(person), self._shelf.now()
        wanted = Wanted(identifier, tenant, incident.id, act, person.name, who, at)
        self._audit.event(
            EVENT_INCIDENT, {**_recorded(incident.id, act), "wanted": True, **by_whom(person)}
        )
        self._wanted[identifier] = wanted
        while len(self._wanted) > WAITING:
            self._wanted.popitem(last=False)
        return wanted

    async def _second(self, person: Person, place: tuple[str, str], identifier: str) -> str:
        """Do what somebody else wants; return what came of it.

        Raises:
            GuardError: nothing waits under this id here, or this person is not surely another one.
        """
        wanted = self._wanted.get(identifier)
        if wanted is None or (wanted.tenant, wanted.incident) != place:
            raise GuardError("nothing waits under this id; have it asked for again")
        check_second([wanted.who], person)
        del self._wanted[identifier]
        by = {**by_whom(person), "first": wanted.by}
        return await self._done(*place, wanted.act, by, f"{wanted.by} and {person.name}")

    def _withdraw(self, identifier: str, person: Person) -> None:
        wanted = self._wanted.pop(identifier, None)
        if wanted is None:
            raise GuardError("nothing waits under this id")
        fields = {**_recorded(wanted.incident, wanted.act), "withdrawn": True, **by_whom(person)}
        self._audit.event(EVENT_INCIDENT, fields)

    async def _done(
        self, tenant: str, name: str, act: ActBody, by: dict[str, Json], who: str
    ) -> str:
        """Do an act, on record before and where it fails."""
        operator, at = self._operator(tenant), self._shelf.now()
        doing: dict[str, Callable[[], Awaitable[object]]] = {
            "contain": lambda: operator.contain(name, at, who),
            "contain_likely": lambda: operator.contain(name, at, who, likely=True),
            "undo": lambda: operator.undo(name, act.step, at, who),
            "release": lambda: operator.release(name, act.nodes, at, who),
            "repair": lambda: self._written(operator, name, act, who),
            "close": lambda: operator.close(name, at, who),
        }
        fields = {**_recorded(name, act), **by}
        self._audit.event(EVENT_INCIDENT, fields)
        try:
            came = await doing[act.act]()
        except GuardError as error:
            self._audit.event(EVENT_INCIDENT, {**fields, "failed": str(error)[:200]})
            raise
        if not isinstance(came, str):
            return ""
        self._audit.event(EVENT_INCIDENT, {**fields, "outcome": came[:200]})
        return came

    async def _written(self, operator: IncidentOperator, name: str, act: ActBody, who: str) -> str:
        """Write a text in the place of a contained item; return what came of it.

        Raises:
            GuardError: the item is not contained, the text is not one that is proposed for it, or
                the listener is none of the console's.
        """
        server = act.server or next(iter(self._repairs.servers), "")
        if server not in self._repairs.servers:
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
        write = partial(self._repairs.write, server)
        came = await operator.repair(name, one, text, write, self._shelf.now(), who)
        if came not in _CAME:
            raise GuardError("choose a text" if came == PICK else came)
        return came

    # --- pages -----------------------------------------------------------------------------------

    async def incidents(self, request: Request) -> Response:
        """The incidents of all tenants, and the form that opens one."""
        tenants = await asyncio.to_thread(self._shelf.index.tenants)
        listed = await self._listed(tenants)
        return self._shown(request, "incidents", tenants=tenants, listed=listed)

    async def _listed(self, tenants: Sequence[str]) -> list[tuple[str, Incident]]:
        return [
            (tenant, one)
            for tenant in tenants
            for one in reversed(await self._operator(tenant).listed())
        ]

    async def open(self, request: Request) -> Response:
        """Open an incident from whatever is named: what did it touch."""
        form = request.state.form
        tenant = field_of(form, "tenant") or "default"
        named: dict[str, Any] = {name: field_of(form, name).strip() for name in GIVEN}
        given = Given(**named)
        note = field_of(form, "note")[:500]
        incident = await self._open(person_of(request), tenant, given, note)
        return _to(tenant, incident.id)

    async def incident(self, request: Request) -> Response:
        """One incident: what it reached, what was done about it, what is not known."""
        tenant, name = _place(request)
        operator = self._operator(tenant)
        incident = await operator.incident(name)
        graph, scope = await operator.scope(name)
        offered = await operator.offered(name)
        return self._shown(
            request,
            "incident",
            tenant=tenant,
            incident=incident,
            scope=scope,
            counts=_counts(scope),
            rows=[*scope.items, *scope.sends, *scope.asked][:LISTED],
            exposed=len(scope.exposed),
            picture=scope_drawing(tenant, graph, scope),
            offered=offered,
            what=event_title,
            wanted=self._waiting(tenant, name),
            can_undo=lambda step: step.state == "done" and step.kind != "repair",
        )

    def _waiting(self, tenant: str, incident: str) -> list[Wanted]:
        place = tenant, incident
        return [one for one in self._wanted.values() if (one.tenant, one.incident) == place]

    async def repair(self, request: Request) -> Response:
        """What each contained item can be restored to."""
        tenant, name = _place(request)
        operator = self._operator(tenant)
        incident = await operator.incident(name)
        found, texts = await operator.proposals(name)
        return self._shown(
            request,
            "repair",
            tenant=tenant,
            incident=incident,
            found=found[:LISTED],
            left=max(0, len(found) - LISTED),
            text=partial(_text, texts),
            servers=self._repairs.servers,
            wanted={one.act.item for one in self._waiting(tenant, name)},
        )

    async def act(self, request: Request) -> Response:
        """Contain, undo, release, repair, close; or agree to what somebody else wants."""
        form, person, place = request.state.form, person_of(request), _place(request)
        name, identifier = field_of(form, "act"), field_of(form, "wanted")
        if name == "second":
            await self._second(person, place, identifier)
        elif name == "withdraw":
            self._withdraw(identifier, person)
        else:
            act = ActBody(
                act=name,
                step=number(field_of(form, "step")),
                nodes=tuple(form.get("node", [])),
                item=field_of(form, "item"),
                pick=field_of(form, "pick"),
                server=field_of(form, "server"),
            )
            await self._do(person, *place, act)
        return _to(*place)

    # --- the API ---------------------------------------------------------------------------------

    async def api_incidents(self, request: Request) -> Response:
        """The incidents of all tenants."""
        del request
        tenants = await asyncio.to_thread(self._shelf.index.tenants)
        listed = await self._listed(tenants)
        return JSONResponse({"incidents": [{"tenant": t, **asdict(one)} for t, one in listed]})

    async def api_open(self, request: Request) -> Response:
        """Open an incident."""
        body = await read_body(request, OpenIncidentBody)
        given = Given(**body.model_dump(exclude={"tenant", "note"}))
        incident = await self._open(person_of(request), body.tenant, given, body.note)
        return JSONResponse({"tenant": body.tenant, "incident": incident.id})

    async def api_incident(self, request: Request) -> Response:
        """One incident with its scope, signed: what `guard incident export` writes."""
        tenant, name = _place(request)
        operator = self._operator(tenant)
        incident = await operator.incident(name)
        graph, scope = await operator.scope(name)
        document = await asyncio.to_thread(document_of, graph, incident, scope)
        return Response(as_json(self._shelf.seal, document), media_type="application/json")

    async def api_act(self, request: Request) -> Response:
        """Contain, undo, release, repair or close."""
        body = await read_body(request, ActBody)
        came = await self._do(person_of(request), *_place(request), body)
        if isinstance(came, Wanted):
            return JSONResponse({"done": False, "wanted": came.id}, 202)
        return JSONResponse({"done": True, "outcome": came})

    async def api_repair(self, request: Request) -> Response:
        """What each contained item can be restored to, and what waits for a second person."""
        tenant, name = _place(request)
        found, _ = await self._operator(tenant).proposals(name)
        waiting = [
            {"id": one.id, "by": one.by, "at": one.at, **one.act.model_dump()}
            for one in self._waiting(tenant, name)
        ]
        servers = list(self._repairs.servers)
        proposed = [proposal_document(one) for one in found]
        return JSONResponse({"proposals": proposed, "wanted": waiting, "servers": servers})

    async def api_second(self, request: Request) -> Response:
        """Agree to an act that somebody else wants."""
        body = await read_body(request, SecondBody)
        came = await self._second(person_of(request), _place(request), body.id)
        return JSONResponse({"done": True, "outcome": came})


def _place(request: Request) -> tuple[str, str]:
    return request.path_params["tenant"], request.path_params["incident"]


def _to(tenant: str, incident: str) -> Response:
    return RedirectResponse(f"/incidents/{tenant}/{incident}", 303)


def _recorded(incident: str, act: ActBody) -> dict[str, Json]:
    more = {name: value for name, value in act.model_dump(mode="json").items() if value}
    return {"incident": incident, **more}


def _text(texts: Texts, node: bytes) -> str:
    """Return the arguments of a save as a person is shown them; empty where they are not kept."""
    if node not in texts:
        return ""
    return "\n".join(f"{name}: {value}" for name, value in texts[node][1].items())[:EXCERPT]


def _counts(scope: Scope) -> dict[str, int]:
    tiers = [item.reached.tier for item in scope.items]
    return {
        "items reached for certain": tiers.count(Tier.CONFIRMED),
        "likely": tiers.count(Tier.LIKELY),
        "sends": len(scope.sends),
        "of them to the outside": sum(bool(s.event.flags & Flag.OUTSIDE) for s in scope.sends),
        "asked about": len(scope.asked),
        "principals": len(scope.agents),
        "exposed, one step out": len(scope.exposed),
    }
