"""The console's API: the same index and the same acts as the pages, as JSON.

``/api/openapi.json`` describes it, made from the table of routes.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import Field, TypeAdapter
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from guard.console.access import Role
from guard.console.decisions import FILTERS
from guard.console.operator_actions import Answer, Decided, Relaxation
from guard.console.routes import Body, Page, number, person_of, read_body
from guard.core import VERSION
from guard.provenance.approvals import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from guard.console.decisions import DecisionIndex
    from guard.console.operator_actions import OperatorActions


class AnswerBody(Body):
    """An answer to a request."""

    answer: Answer
    scope: Scope = Scope.PRINCIPAL
    seconds: int = Field(default=0, ge=0)


class RevokeBody(Body):
    """A receiver that may no longer be sent to again."""

    tenant: str = "default"
    mark: str


class ResumeBody(Body):
    """A principal whose pause ends."""

    tenant: str = "default"
    principal: str


class BreakGlassBody(ResumeBody):
    """A break-glass that is asked for."""

    tool: str = ""
    """The one tool that it is about; empty for every tool."""
    seconds: int = Field(ge=1, le=86400)
    why: str = Field(min_length=3, max_length=500)


class OpenBody(Body):
    """A break-glass that the second person opens."""

    tenant: str = "default"
    id: str


class ApproveToolBody(Body):
    """A changed definition that becomes a good one."""

    tenant: str = "default"
    upstream: str
    tool: str
    digest: str = Field(min_length=1)
    """What its digest begins with: the one that was looked at, and no other."""


class DecisionsApi:
    """What is on record of decisions.

    Args:
        index: over the audit log.
        now: seconds since the epoch.
    """

    def __init__(self, index: DecisionIndex, now: Callable[[], float]) -> None:
        self._index = index
        self._now = now

    def table(self) -> list[Page]:
        """Return the routes."""
        view = Role.VIEWER
        return [
            Page("/api/decisions", self.decisions, view, query=(*FILTERS, "before")),
            Page("/api/decisions/{decision}", self.decision, view),
            Page("/api/rates", self.rates, view),
        ]

    async def decisions(self, request: Request) -> Response:
        """Decisions, the newest first; `before` is the smallest id of the page before."""
        wanted = {name: request.query_params.get(name, "") for name in FILTERS}
        before = number(request.query_params.get("before", ""))
        rows = await asyncio.to_thread(self._index.page, wanted, before=before)
        return JSONResponse({"decisions": rows})

    async def decision(self, request: Request) -> Response:
        """One decision."""
        found = await asyncio.to_thread(self._index.decision, request.path_params["decision"])
        if found is None:
            raise HTTPException(404, "no such decision is on record")
        return JSONResponse(found)

    async def rates(self, request: Request) -> Response:
        """Rates of this day and the day before."""
        del request
        today, yesterday, news = await asyncio.to_thread(self._index.compared, self._now())
        return JSONResponse({"today": asdict(today), "before": asdict(yesterday), "new": news})


class Api:
    """Approvals, pauses, break-glasses, receivers and definitions.

    Args:
        actions: acts on the state.
        tenants: returns whom a request asks about.
    """

    def __init__(
        self, actions: OperatorActions, tenants: Callable[[Request], Awaitable[list[str]]]
    ) -> None:
        self._actions = actions
        self._tenants = tenants

    def table(self) -> list[Page]:
        """Return the routes."""
        view, act, admin = Role.VIEWER, Role.APPROVER, Role.ADMIN
        one = "/api/approvals/{tenant}/{decision}"
        glass, whose = "/api/break-glass", ("tenant",)
        compared = ("tenant", "upstream", "tool")
        return [
            Page("/api/approvals", self.approvals, view, query=whose),
            Page(one, self.approval, view),
            Page(one, self.answer, act, "POST", AnswerBody),
            Page("/api/established", self.established, view, query=whose),
            Page("/api/established/revoke", self.revoke, act, "POST", RevokeBody),
            Page("/api/tools", self.tools, view, query=whose),
            Page("/api/tools/difference", self.difference, view, query=compared),
            Page("/api/tools/approve", self.approve_tool, admin, "POST", ApproveToolBody),
            Page("/api/standing", self.standing, view, query=whose),
            Page("/api/pauses/end", self.resume, act, "POST", ResumeBody),
            Page(glass, self.ask_glass, act, "POST", BreakGlassBody),
            Page(f"{glass}/open", self.open_glass, act, "POST", OpenBody),
            Page(f"{glass}/close", self.close_glass, act, "POST", ResumeBody),
        ]

    async def approvals(self, request: Request) -> Response:
        """Requests that wait for an answer."""
        waiting = await self._actions.waiting(await self._tenants(request))
        return JSONResponse({"requests": [asdict(one) for one in waiting]})

    async def approval(self, request: Request) -> Response:
        """One request, with the untrusted text and earlier sends."""
        path = request.path_params
        return JSONResponse(asdict(await self._actions.asked(path["tenant"], path["decision"])))

    async def answer(self, request: Request) -> Response:
        """Answer a request: once, remember, deny, quarantine."""
        body = await read_body(request, AnswerBody)
        decided = Decided(body.answer, body.scope, body.seconds)
        path = request.path_params
        asked = await self._actions.answer(
            person_of(request), path["tenant"], path["decision"], decided
        )
        return JSONResponse(
            {"answered": asked.decision, "answer": body.answer, "released": asked.released}
        )

    async def established(self, request: Request) -> Response:
        """Receivers that may be sent to again."""
        found = await self._actions.established(await self._tenants(request))
        return JSONResponse(
            {
                "established": [
                    {
                        "tenant": tenant,
                        "mark": one.mark.hex(),
                        "principal": one.principal,
                        "tool": one.tool,
                        "kind": one.kind,
                        "receiver": one.receiver,
                        "channel": one.record.channel.value,
                        "until": one.record.until,
                    }
                    for tenant, one in found
                ]
            }
        )

    async def revoke(self, request: Request) -> Response:
        """Take a receiver away that may be sent to again."""
        body = await read_body(request, RevokeBody)
        await self._actions.revoke(person_of(request), body.tenant, body.mark)
        return JSONResponse({"revoked": body.mark})

    async def tools(self, request: Request) -> Response:
        """Pinned tool definitions, those that changed, and how many records were altered."""
        found = await self._actions.pins(await self._tenants(request))
        tools = [{"tenant": tenant, **asdict(pin)} for tenant, pin in found if pin]
        return JSONResponse({"tools": tools, "altered": len(found) - len(tools)})

    async def difference(self, request: Request) -> Response:
        """The pinned definition of a tool, and the changed one that waits."""
        asked = request.query_params
        names = [asked.get("tenant", "default"), asked.get("upstream", ""), asked.get("tool", "")]
        pin, mark = await self._actions.compared(*names)
        return JSONResponse({"pinned": asdict(pin) if pin else None, "listed": asdict(mark)})

    async def approve_tool(self, request: Request) -> Response:
        """Pin a changed definition, the one that was looked at."""
        body = await read_body(request, ApproveToolBody)
        where = body.tenant, body.upstream, body.tool
        pinned = await self._actions.accept(person_of(request), *where, body.digest)
        return JSONResponse({"approved": asdict(pinned)})

    async def standing(self, request: Request) -> Response:
        """Principals that are paused; break-glasses that are open or wait for a second person."""
        found = await self._actions.standing(await self._tenants(request))
        return JSONResponse(
            {
                "pauses": [{"tenant": t, **asdict(one)} for t, one in found.pauses],
                "open": [{"tenant": t, **asdict(one)} for t, one in found.open],
                "asked": [{"tenant": t, **asdict(one)} for t, one in found.asked],
            }
        )

    async def resume(self, request: Request) -> Response:
        """End the pause of a principal."""
        body = await read_body(request, ResumeBody)
        await self._actions.resume(person_of(request), body.tenant, body.principal)
        return JSONResponse({"resumed": body.principal})

    async def ask_glass(self, request: Request) -> Response:
        """Ask for a break-glass, which another person has to open."""
        body = await read_body(request, BreakGlassBody)
        wanted = Relaxation(body.principal, body.tool, body.seconds, body.why)
        asked = await self._actions.ask_glass(person_of(request), body.tenant, wanted)
        return JSONResponse({"asked": asdict(asked)})

    async def open_glass(self, request: Request) -> Response:
        """Open a break-glass that another person asked for."""
        body = await read_body(request, OpenBody)
        opened = await self._actions.open_glass(person_of(request), body.tenant, body.id)
        return JSONResponse({"opened": asdict(opened)})

    async def close_glass(self, request: Request) -> Response:
        """Close a break-glass before its end."""
        body = await read_body(request, ResumeBody)
        await self._actions.close_glass(person_of(request), body.tenant, body.principal)
        return JSONResponse({"closed": body.principal})


class Description:
    """The route that describes the others.

    Args:
        table: returns every route of the console.
    """

    def __init__(self, table: Callable[[], Iterable[Page]]) -> None:
        self._table = table

    def table(self) -> list[Page]:
        """Return the route."""
        return [Page("/api/openapi.json", self.description, Role.VIEWER)]

    async def description(self, request: Request) -> Response:
        """This document."""
        del request
        return JSONResponse(openapi(self._table()))


def openapi(table: Iterable[Page]) -> dict[str, Any]:
    """Return the OpenAPI document of the routes of the API among some."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for page in table:
        if page.path.startswith("/api/"):
            paths.setdefault(page.path, {})[page.method.lower()] = _described(page, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Console of the egress guard", "version": VERSION},
        "security": [{"secret": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"secret": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(page: Page, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the description of one route; the schemas that it names are added."""
    names = [part[1:-1] for part in page.path.split("/") if part.startswith("{")]
    described: dict[str, Any] = {
        "summary": (page.endpoint.__doc__ or "").strip(),
        "operationId": page.endpoint.__name__,
        "x-role": str(page.needs),
        "parameters": [_parameter(name, "path") for name in names],
        "responses": {
            "200": {"description": "ok"},
            "400": {"description": "the body or a parameter is not like this"},
            "401": {"description": "not signed in"},
            "403": {"description": "not for this role"},
            "409": {"description": "not done, and why"},
            "429": {"description": "too many in a minute"},
            "503": {"description": "the state or the audit log cannot be reached: not done"},
        },
    }
    described["parameters"] += [_parameter(name, "query") for name in page.query]
    if page.body is not None:
        template = "#/components/schemas/{model}"
        schema = TypeAdapter(page.body).json_schema(ref_template=template)
        schemas.update(schema.pop("$defs", {}))
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return described


def _parameter(name: str, where: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}
