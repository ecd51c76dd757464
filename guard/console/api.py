"""The console's API: the same index and the same acts as the pages, as JSON.

``/api/openapi.json`` describes it, made from the table of routes.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from guard.console.access import Role
from guard.console.acts import Answer, Decided, Relaxation
from guard.console.decisions import FILTERS
from guard.console.pages import Page, number, person_of
from guard.core import VERSION
from guard.core.errors import InputError
from guard.provenance.approvals import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from guard.console.acts import Desk
    from guard.console.decisions import DecisionIndex

BodyT = TypeVar("BodyT", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AnswerBody(_Body):
    """An answer to a request."""

    answer: Answer
    scope: Scope = Scope.PRINCIPAL
    seconds: int = Field(default=0, ge=0)


class RevokeBody(_Body):
    """A receiver that may no longer be sent to again."""

    tenant: str = "default"
    mark: str


class ResumeBody(_Body):
    """A principal whose pause ends."""

    tenant: str = "default"
    principal: str


class BreakGlassBody(ResumeBody):
    """A break-glass that is asked for."""

    tool: str = ""
    """The one tool that it is about; empty for every tool."""
    seconds: int = Field(ge=1, le=86400)
    why: str = Field(min_length=3, max_length=500)


class OpenBody(_Body):
    """A break-glass that the second person opens."""

    tenant: str = "default"
    id: str


class Api:
    """The routes below ``/api/``.

    Args:
        index: over the audit log.
        desk: acts on the state.
        now: seconds since the epoch.
        table: returns every route of the console, for the description.
    """

    def __init__(
        self,
        index: DecisionIndex,
        desk: Desk,
        now: Callable[[], float],
        table: Callable[[], Sequence[Page]],
    ) -> None:
        self._index = index
        self._desk = desk
        self._now = now
        self._table = table

    def pages(self) -> list[Page]:
        """Return the table of routes."""
        view, act = Role.VIEWER, Role.APPROVER
        one = "/api/approvals/{tenant}/{decision}"
        glass = "/api/break-glass"
        return [
            Page("/api/openapi.json", self.description, view),
            Page("/api/decisions", self.decisions, view),
            Page("/api/decisions/{decision}", self.decision, view),
            Page("/api/rates", self.rates, view),
            Page("/api/approvals", self.approvals, view),
            Page(one, self.approval, view),
            Page(one, self.answer, act, "POST", AnswerBody),
            Page("/api/established", self.established, view),
            Page("/api/established/revoke", self.revoke, act, "POST", RevokeBody),
            Page("/api/tools", self.tools, view),
            Page("/api/standing", self.standing, view),
            Page("/api/pauses/end", self.resume, act, "POST", ResumeBody),
            Page(glass, self.ask_glass, act, "POST", BreakGlassBody),
            Page(f"{glass}/open", self.open_glass, act, "POST", OpenBody),
            Page(f"{glass}/close", self.close_glass, act, "POST", ResumeBody),
        ]

    async def description(self, request: Request) -> Response:
        """This document."""
        del request
        return JSONResponse(self.openapi())

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of the API."""
        paths: dict[str, Any] = {}
        schemas: dict[str, Any] = {}
        for page in self._table():
            if not page.path.startswith("/api/"):
                continue
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

    async def decisions(self, request: Request) -> Response:
        """Decisions, the newest first, a page at a time (`before`)."""
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

    async def approvals(self, request: Request) -> Response:
        """Requests that wait for an answer."""
        del request
        waiting = await self._desk.waiting(await self._tenants())
        return JSONResponse({"requests": [asdict(one) for one in waiting]})

    async def approval(self, request: Request) -> Response:
        """One request, with the untrusted text and earlier sends."""
        path = request.path_params
        return JSONResponse(asdict(await self._desk.asked(path["tenant"], path["decision"])))

    async def answer(self, request: Request) -> Response:
        """Answer a request: once, remember, deny, quarantine."""
        body = await read_body(request, AnswerBody)
        decided = Decided(body.answer, body.scope, body.seconds)
        path = request.path_params
        asked = await self._desk.answer(
            person_of(request), path["tenant"], path["decision"], decided
        )
        return JSONResponse(
            {"answered": asked.decision, "answer": body.answer, "released": asked.released}
        )

    async def established(self, request: Request) -> Response:
        """Receivers that may be sent to again."""
        del request
        found = await self._desk.established(await self._tenants())
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
        await self._desk.revoke(person_of(request), body.tenant, body.mark)
        return JSONResponse({"revoked": body.mark})

    async def tools(self, request: Request) -> Response:
        """Pinned tool definitions, and those that changed."""
        del request
        found = await self._desk.pins(await self._tenants())
        return JSONResponse({"tools": [{"tenant": t, **asdict(pin)} for t, pin in found if pin]})

    async def standing(self, request: Request) -> Response:
        """Principals that are paused; break-glasses that are open or wait for a second person."""
        del request
        found = await self._desk.standing(await self._tenants())
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
        await self._desk.resume(person_of(request), body.tenant, body.principal)
        return JSONResponse({"resumed": body.principal})

    async def ask_glass(self, request: Request) -> Response:
        """Ask for a break-glass, which another person has to open."""
        body = await read_body(request, BreakGlassBody)
        wanted = Relaxation(body.principal, body.tool, body.seconds, body.why)
        asked = await self._desk.ask_glass(person_of(request), body.tenant, wanted)
        return JSONResponse({"asked": asdict(asked)})

    async def open_glass(self, request: Request) -> Response:
        """Open a break-glass that another person asked for."""
        body = await read_body(request, OpenBody)
        opened = await self._desk.open_glass(person_of(request), body.tenant, body.id)
        return JSONResponse({"opened": asdict(opened)})

    async def close_glass(self, request: Request) -> Response:
        """Close a break-glass before its end."""
        body = await read_body(request, ResumeBody)
        await self._desk.close_glass(person_of(request), body.tenant, body.principal)
        return JSONResponse({"closed": body.principal})

    async def _tenants(self) -> list[str]:
        return await asyncio.to_thread(self._index.tenants)


async def read_body(request: Request, model: type[BodyT]) -> BodyT:
    """Return the body of a request.

    Raises:
        InputError: it is not like this model.
    """
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"the body: {place}: {first['msg']}") from error


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
    if page.path == "/api/decisions":
        described["parameters"] += [_parameter(name, "query") for name in (*FILTERS, "before")]
    if page.body is not None:
        schema = page.body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return described


def _parameter(name: str, where: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}
