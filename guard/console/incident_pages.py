"""Incidents on the pages: what one reached, what is done about it, what it can be restored to."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse, Response

from guard.adapters.redis.incidents import GIVEN, Given
from guard.console.access import Role
from guard.console.incident_api import EXCERPT, ActBody, IncidentApi, place_of
from guard.console.lineage_pages import LISTED, event_title, scope_drawing
from guard.console.routes import Page, field_of, number, person_of
from guard.propagation.events import Flag
from guard.propagation.evidence import Tier

if TYPE_CHECKING:
    from starlette.requests import Request

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.adapters.redis.incidents import Texts
    from guard.console.incident_api import Repairs
    from guard.console.pages import PageSources
    from guard.propagation.scope import Scope


class IncidentPages:
    """The incidents of all tenants.

    Args:
        sources: what the pages are about.
        audit: takes a line per act.
        repairs: how they are written.
    """

    def __init__(
        self, sources: PageSources, audit: AuditLogFile | NoAuditLog, repairs: Repairs
    ) -> None:
        self._sources = sources
        self._shown = sources.templates.shown
        self.api = IncidentApi(sources.deployment(audit), repairs)

    def table(self) -> list[Page]:
        """Return the routes, those of the API among them."""
        view, act = Role.VIEWER, Role.APPROVER
        one = "/incidents/{tenant}/{incident}"
        return [
            Page("/incidents", self.incidents, view),
            Page("/incidents", self.open, act, "POST"),
            Page(one, self.incident, view),
            Page(one, self.act, act, "POST"),
            Page(f"{one}/repair", self.repair, view),
            *self.api.table(),
        ]

    # --- pages -----------------------------------------------------------------------------------

    async def incidents(self, request: Request) -> Response:
        """The incidents of all tenants, and the form that opens one."""
        tenants = await asyncio.to_thread(self._sources.index.tenants)
        listed = await self.api.listed(tenants)
        return self._shown(request, "incidents", tenants=tenants, listed=listed)

    async def open(self, request: Request) -> Response:
        """Open an incident from whatever is named: what did it touch."""
        form = request.state.form
        tenant = field_of(form, "tenant") or "default"
        named: dict[str, Any] = {name: field_of(form, name).strip() for name in GIVEN}
        given = Given(**named)
        note = field_of(form, "note")[:500]
        incident = await self.api.opened(person_of(request), tenant, given, note)
        return _to(tenant, incident.id)

    async def incident(self, request: Request) -> Response:
        """One incident: what it reached, what was done about it, what is not known."""
        tenant, name = place_of(request)
        operator = self.api.operator(tenant)
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
            wanted=await self.api.waiting(tenant, name),
            can_undo=lambda step: step.state == "done" and step.kind != "repair",
        )

    async def repair(self, request: Request) -> Response:
        """What each contained item can be restored to."""
        tenant, name = place_of(request)
        operator = self.api.operator(tenant)
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
            servers=self.api.repairs.servers,
            wanted={one.act["item"] for one in await self.api.waiting(tenant, name)},
        )

    async def act(self, request: Request) -> Response:
        """Contain, undo, release, repair, close; or agree to what somebody else wants."""
        form, person, place = request.state.form, person_of(request), place_of(request)
        name, identifier = field_of(form, "act"), field_of(form, "wanted")
        if name == "second":
            await self.api.second(person, place, identifier)
        elif name == "withdraw":
            await self.api.withdraw(person, place, identifier)
        else:
            act = ActBody(
                act=name,
                step=number(field_of(form, "step")),
                nodes=tuple(form.get("node", [])),
                item=field_of(form, "item"),
                pick=field_of(form, "pick"),
                server=field_of(form, "server"),
            )
            await self.api.do(person, *place, act)
        return _to(*place)


def _to(tenant: str, incident: str) -> Response:
    return RedirectResponse(f"/incidents/{tenant}/{incident}", 303)


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
