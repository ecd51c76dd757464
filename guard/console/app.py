"""The console's pages and its API: one table of routes, each declared for a role."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import sqlite3
import time
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import (
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from guard.console.access import Role
from guard.console.acts import AT_ONCE, Answer, Decided, like
from guard.console.decisions import FILTERS, PAGE
from guard.console.feed import Feed
from guard.console.gate import COOKIE, PUBLIC, Gate
from guard.console.pages import Page, PagesOf, Templates, field_of, number, person_of
from guard.core import VERSION
from guard.core.errors import AuditError, GuardError, InputError, StateError
from guard.provenance.approvals import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from starlette.requests import Request

    from guard.console.access import Access
    from guard.console.acts import Desk
    from guard.console.decisions import DecisionIndex, Row
    from guard.tool_pins.pins import Pin

DAY: Final = 86400.0
_STATIC: Final = {
    "htmx.min.js": "text/javascript",
    "console.js": "text/javascript",
    "console.css": "text/css",
}
_PERIODS: Final = {"hour": 3600, "day": 86400, "week": 7 * 86400, "month": 30 * 86400, "": 0}


class AnswerBody(BaseModel):
    """An answer to a request, as the API takes it."""

    model_config = ConfigDict(extra="forbid")

    answer: Answer
    scope: Scope = Scope.PRINCIPAL
    seconds: int = Field(default=0, ge=0)


class Console:
    """The pages of one deployment.

    Args:
        index: over its audit log.
        desk: acts on its state.
        access: signs people in.
        hosts: names by which the console is called.
        parts: makes further pages.
        secure: whether it is reached by TLS only.
        now: seconds since the epoch.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        index: DecisionIndex,
        desk: Desk,
        access: Access,
        hosts: Collection[str],
        *,
        parts: Callable[[Templates], Sequence[PagesOf]] = lambda _: (),
        secure: bool = False,
        now: Callable[[], float] = time.time,  # noqa: TID251  (the edge where time comes in)
    ) -> None:
        self._index = index
        self._desk = desk
        self._access = access
        self._secure = secure
        self._now = now
        self.templates = Templates()
        self._shown = self.templates.shown
        self._parts = parts(self.templates)
        shown: Any = self.templates.environment.get_template("rows.html.jinja").module
        self.feed = Feed(index, lambda row: str(shown.decision(row)))
        self.pages = self._table()
        routes = [
            Route(
                page.path, page.endpoint, methods=[page.method], name=f"{page.method} {page.path}"
            )
            for page in self.pages
        ]
        needs = {f"{page.method} {page.path}": page.needs for page in self.pages}
        failures: Any = {
            GuardError: self._failed,
            sqlite3.Error: self._failed,
            HTTPException: self._failed,
        }
        inner = Starlette(routes=routes, exception_handlers=failures, lifespan=self._following)
        self.app = Gate(inner, routes, needs, access, hosts)

    def _table(self) -> list[Page]:
        view, act, admin = Role.VIEWER, Role.APPROVER, Role.ADMIN
        return [
            Page("/", self.now, view),
            Page("/feed", self.events, view),
            Page("/chart.svg", self.chart, view),
            Page("/decisions/{decision}", self.decision, view),
            Page("/approvals", self.approvals, view),
            Page("/approvals", self.answer, act, "POST"),
            Page("/approvals/{tenant}/{decision}", self.approval, view),
            Page("/sessions", self.sessions, view),
            Page("/tools", self.tools, view),
            Page("/tools/difference", self.difference, view),
            Page("/tools/accept", self.accept, admin, "POST"),
            Page("/established/revoke", self.revoke, act, "POST"),
            Page("/record", self.record, view),
            Page("/sign-in", self.sign_in, PUBLIC),
            Page("/sign-in/{secret}", self.sign_in, PUBLIC),
            Page("/sign-in", self.signed_in, PUBLIC, "POST"),
            Page("/sign-out", self.sign_out, view, "POST"),
            Page("/static/{name}", self.static, PUBLIC),
            Page("/api/openapi.json", self.api_description, view),
            Page("/api/decisions", self.api_decisions, view),
            Page("/api/decisions/{decision}", self.api_decision, view),
            Page("/api/rates", self.api_rates, view),
            Page("/api/approvals", self.api_approvals, view),
            Page("/api/approvals/{tenant}/{decision}", self.api_approval, view),
            Page("/api/approvals/{tenant}/{decision}", self.api_answer, act, "POST", AnswerBody),
            Page("/api/established", self.api_established, view),
            Page("/api/tools", self.api_tools, view),
            *(page for part in self._parts for page in part.table()),
        ]

    @contextlib.asynccontextmanager
    async def _following(self, app: Starlette) -> AsyncIterator[None]:
        del app
        task = asyncio.get_running_loop().create_task(self.feed.follow())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self._index.close()

    # --- pages -----------------------------------------------------------------------------------

    async def now(self, request: Request) -> Response:
        """Live decisions, rates, what is wrong, what is new since yesterday."""
        wanted = {name: request.query_params.get(name, "") for name in FILTERS}
        before = number(request.query_params.get("before", ""))
        at = self._now()
        rows = await asyncio.to_thread(self._index.page, wanted, before=before)
        today, yesterday, news = await asyncio.to_thread(self._compared, at)
        return self._shown(
            request,
            "now",
            rows=rows,
            wanted=wanted,
            older=rows[-1]["id"] if len(rows) == PAGE else 0,
            live=not before,
            today=today,
            yesterday=yesterday,
            news=news,
            unreachable=await self._desk.reachable(),
            feed=self.feed,
            waiting=await self._count_waiting(),
        )

    async def _count_waiting(self) -> int | None:
        try:
            return len(await self._waiting())
        except StateError:
            return None

    def _compared(self, at: float) -> tuple[Any, Any, list[str]]:
        """Return the rates of this day and the one before, and what is new, in words."""
        periods = ((at - DAY + 3600, at + 3600), (at - 2 * DAY + 3600, at - DAY + 3600))
        today, yesterday = (self._index.rates(*period) for period in periods)
        news: list[str] = []
        for what, word in (("tool", "tool"), ("reason", "reason"), ("policy", "policy")):
            now, before = (dict(self._index.counts(what, *period)) for period in periods)
            for name, count in now.items():
                if name and name not in before:
                    news.append(f"new {word} {name}: {count}")
                elif what == "reason" and count > 2 * before[name]:
                    news.append(f"{word} {name}: {count}, yesterday {before[name]}")
        return today, yesterday, news[:20]

    async def events(self, request: Request) -> Response:
        """New decisions as server-sent events."""
        if self.feed.full:
            return Response("too many pages follow the decisions", 503)
        last = request.headers.get("last-event-id") or request.query_params.get("after", "")
        token = request.cookies.get(COOKIE, "")
        events = self.feed.events(
            number(last) if last else None,
            lambda: not token or self._access.session(token) is not None,
        )
        return StreamingResponse(events, media_type="text/event-stream")

    async def chart(self, request: Request) -> Response:
        """Decisions of the last two days, by the hour."""
        del request
        at = self._now()
        series = await asyncio.to_thread(self._index.series, at - 2 * DAY, at + 3600)
        picture = await asyncio.to_thread(_chart, series)
        # As an image it runs nothing; its own style stands in it.
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        headers = {"content-security-policy": policy}
        return Response(picture, media_type="image/svg+xml", headers=headers)

    async def decision(self, request: Request) -> Response:
        """One decision and its reasons."""
        found = await self._found(request.path_params["decision"])
        return self._shown(request, "decision", one=found)

    async def _found(self, identifier: str) -> Row:
        found = await asyncio.to_thread(self._index.decision, identifier)
        if found is None:
            raise HTTPException(404, "no decision on record has this id")
        return found

    async def approvals(self, request: Request) -> Response:
        """What waits for an answer, like requests together."""
        groups = like(await self._waiting())
        return self._shown(request, "approvals", groups=groups, at_once=AT_ONCE)

    async def approval(self, request: Request) -> Response:
        """One request: who asks, whom it reaches, what would leave."""
        path = request.path_params
        asked = await self._desk.asked(path["tenant"], path["decision"])
        return self._shown(request, "approval", asked=asked)

    async def answer(self, request: Request) -> Response:
        """Take a person's answer to one request, or to several alike."""
        form = request.state.form
        decided = _decided(form)
        wanted = form.get("decision", [])[:AT_ONCE]
        if not wanted:
            raise InputError("say which request")
        failed: list[str] = []
        for one in wanted:
            tenant, _, decision = one.rpartition("/")
            try:
                await self._desk.answer(person_of(request), tenant, decision, decided)
            except (StateError, AuditError):
                raise
            except GuardError as error:
                failed.append(f"{decision}: {error}")
        if failed:
            raise GuardError("; ".join(failed))
        return RedirectResponse("/approvals", 303)

    async def sessions(self, request: Request) -> Response:
        """Decisions of one session or principal, oldest first; or who was last seen."""
        wanted = {name: request.query_params.get(name, "") for name in ("session", "principal")}
        rows = await asyncio.to_thread(self._index.page, wanted, limit=500)
        chosen = any(wanted.values())
        seen: dict[tuple[str, str], Row] = {}
        for row in rows:
            one = seen.setdefault(
                (row["principal"], row["session"]), {**row, "calls": 0, "held": 0}
            )
            one["calls"] += 1
            one["held"] += row["enforced"] in {"ask", "block"}
        return self._shown(
            request,
            "sessions",
            wanted=wanted,
            rows=rows[::-1] if chosen else [],
            seen=[] if chosen else list(seen.values()),
            chosen=chosen,
        )

    async def tools(self, request: Request) -> Response:
        """Pinned definitions, changed ones, and receivers that may be sent to again."""
        tenants = await asyncio.to_thread(self._index.tenants)
        pins = await self._desk.pins(tenants)
        return self._shown(
            request,
            "tools",
            pins=sorted((p for p in pins if p[1] and not p[1].is_mark), key=_place),
            marks=sorted((p for p in pins if p[1] and p[1].is_mark), key=_place),
            altered=sum(pin is None for _, pin in pins),
            established=await self._desk.established(tenants),
        )

    async def difference(self, request: Request) -> Response:
        """What changed in a tool's definition."""
        asked = request.query_params
        names = [asked.get(name, "") for name in ("tenant", "upstream", "tool")]
        pin, mark = await self._desk.compared(*names)
        before = _lines(pin) if pin else ["(the pinned definition cannot be read)"]
        lines = list(difflib.unified_diff(before, _lines(mark), "pinned", "listed", lineterm=""))
        return self._shown(request, "difference", tenant=names[0], mark=mark, lines=lines)

    async def accept(self, request: Request) -> Response:
        """Pin a changed definition."""
        names = [field_of(request.state.form, n) for n in ("tenant", "upstream", "tool", "digest")]
        await self._desk.accept(person_of(request), *names)
        return RedirectResponse("/tools", 303)

    async def revoke(self, request: Request) -> Response:
        """Take an established receiver away."""
        names = [field_of(request.state.form, name) for name in ("tenant", "mark")]
        await self._desk.revoke(person_of(request), *names)
        return RedirectResponse("/tools", 303)

    async def record(self, request: Request) -> Response:
        """What people and the guard itself did, the newest first."""
        events = await asyncio.to_thread(self._index.events)
        answers = [one["detail"] for one in events if one["event"] == "guard.approval"]
        granted = [one for one in answers if one.get("answer") == "granted" and "waited" in one]
        quick = sum(one["waited"] <= 2 for one in granted)  # noqa: PLR2004  (seconds)
        return self._shown(request, "record", events=events, granted=len(granted), quick=quick)

    async def sign_in(self, request: Request) -> Response:
        """The form; a link fills it in, and is used only when it is sent."""
        secret = request.path_params.get("secret", "")
        return self._shown(request, "sign_in", secret=secret)

    async def signed_in(self, request: Request) -> Response:
        """Begin a session."""
        token = self._access.redeem(field_of(request.state.form, "secret"))
        if token is None:
            return self._shown(request, "sign_in", 401, secret="", wrong=True)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE, token, httponly=True, secure=self._secure, samesite="lax", path="/"
        )
        return answer

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        self._access.sign_out(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse("/sign-in", 303)
        answer.delete_cookie(COOKIE)
        return answer

    async def static(self, request: Request) -> Response:
        """One of the files of the pages."""
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404, "there is no such file")
        data = (files("guard.console") / "static" / name).read_bytes()
        headers = {"cache-control": "public, max-age=3600"}
        return Response(data, media_type=_STATIC[name], headers=headers)

    # --- the API ---------------------------------------------------------------------------------

    async def api_description(self, request: Request) -> Response:
        """This document."""
        del request
        return JSONResponse(self.openapi())

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of the API."""
        paths: dict[str, Any] = {}
        for page in self.pages:
            if not page.path.startswith("/api/"):
                continue
            names = [part[1:-1] for part in page.path.split("/") if part.startswith("{")]
            described: dict[str, Any] = {
                "summary": (page.endpoint.__doc__ or "").strip(),
                "operationId": page.endpoint.__name__,
                "x-role": str(page.needs),
                "parameters": [_parameter(name, "path") for name in names],
                "responses": {
                    "200": {"description": "ok"},
                    "401": {"description": "not signed in"},
                },
            }
            if page.path == "/api/decisions":
                queries = (*FILTERS, "before")
                described["parameters"] += [_parameter(name, "query") for name in queries]
            if page.body is not None:
                schema = page.body.model_json_schema(ref_template="#/components/schemas/{model}")
                schema.pop("$defs", None)
                described["requestBody"] = {
                    "required": True,
                    "content": {"application/json": {"schema": schema}},
                }
            paths.setdefault(page.path, {})[page.method.lower()] = described
        schemas = AnswerBody.model_json_schema(ref_template="#/components/schemas/{model}")
        return {
            "openapi": "3.1.0",
            "info": {"title": "Console of the egress guard", "version": VERSION},
            "security": [{"secret": []}],
            "paths": paths,
            "components": {
                "schemas": schemas.get("$defs", {}),
                "securitySchemes": {"secret": {"type": "http", "scheme": "bearer"}},
            },
        }

    async def api_decisions(self, request: Request) -> Response:
        """Decisions, the newest first, a page at a time (`before`)."""
        wanted = {name: request.query_params.get(name, "") for name in FILTERS}
        before = number(request.query_params.get("before", ""))
        rows = await asyncio.to_thread(self._index.page, wanted, before=before)
        return JSONResponse({"decisions": rows})

    async def api_decision(self, request: Request) -> Response:
        """One decision."""
        return JSONResponse(await self._found(request.path_params["decision"]))

    async def api_rates(self, request: Request) -> Response:
        """Rates of this day and the day before."""
        del request
        today, yesterday, news = await asyncio.to_thread(self._compared, self._now())
        return JSONResponse({"today": asdict(today), "before": asdict(yesterday), "new": news})

    async def api_approvals(self, request: Request) -> Response:
        """Requests that wait for an answer."""
        del request
        return JSONResponse({"requests": [asdict(one) for one in await self._waiting()]})

    async def api_approval(self, request: Request) -> Response:
        """One request, with the untrusted text and earlier sends."""
        path = request.path_params
        return JSONResponse(asdict(await self._desk.asked(path["tenant"], path["decision"])))

    async def api_answer(self, request: Request) -> Response:
        """Answer a request: once, remember, deny, quarantine."""
        try:
            body = AnswerBody.model_validate_json(await request.body())
        except ValidationError as error:
            raise InputError(f"the body: {error.errors()[0]['msg']}") from error
        decided = Decided(body.answer, body.scope, body.seconds)
        path = request.path_params
        asked = await self._desk.answer(
            person_of(request), path["tenant"], path["decision"], decided
        )
        return JSONResponse({"answered": asked.decision, "answer": body.answer})

    async def api_established(self, request: Request) -> Response:
        """Receivers that may be sent to again."""
        del request
        found = await self._desk.established(await asyncio.to_thread(self._index.tenants))
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
                        "until": one.record.until,
                    }
                    for tenant, one in found
                ]
            }
        )

    async def api_tools(self, request: Request) -> Response:
        """Pinned tool definitions, and those that changed."""
        del request
        found = await self._desk.pins(await asyncio.to_thread(self._index.tenants))
        return JSONResponse({"tools": [{"tenant": t, **asdict(pin)} for t, pin in found if pin]})

    # --- what they share -------------------------------------------------------------------------

    async def _waiting(self) -> list[Any]:
        return await self._desk.waiting(await asyncio.to_thread(self._index.tenants))

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Say what was not done, and why; nothing was released by it."""
        status = 409 if isinstance(error, GuardError) else 500
        text = str(error)
        if isinstance(error, HTTPException):
            status, text = error.status_code, error.detail
        elif isinstance(error, InputError):
            status = 400
        elif isinstance(error, StateError | AuditError | sqlite3.Error):
            status = 503
            text = f"nothing was done: {str(error) or type(error).__name__}"
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": text}, status)
        return self._shown(request, "error", status, text=text)


def _decided(form: Mapping[str, list[str]]) -> Decided:
    try:
        answer = Answer(field_of(form, "answer"))
        scope = Scope(field_of(form, "scope") or Scope.PRINCIPAL)
        return Decided(answer, scope, _PERIODS[field_of(form, "period")])
    except (ValueError, KeyError) as error:
        raise InputError("this is no answer") from error


def _parameter(name: str, where: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}


def _place(found: tuple[str, Pin | None]) -> tuple[str, str, str]:
    tenant, pin = found
    return tenant, pin.upstream if pin else "", pin.tool if pin else ""


def _lines(pin: Pin) -> list[str]:
    if not pin.text:
        return [f"(too long to keep; digest {pin.digests[0]})"]
    text = json.dumps(json.loads(pin.text), indent=2, ensure_ascii=False, sort_keys=True)
    return text.split("\n")


def _chart(series: list[tuple[int, dict[str, int]]]) -> bytes:
    """Return a picture of decisions by the hour."""
    import pygal
    from pygal.style import Style

    style = Style(
        background="transparent",
        plot_background="transparent",
        foreground="#7d8590",
        foreground_strong="#7d8590",
        foreground_subtle="#7d8590",
        colors=("#2da44e", "#0969da", "#bf8700", "#cf222e"),
        font_family="system-ui, sans-serif",
    )
    chart = pygal.StackedBar(
        style=style, height=180, width=900, js=[], margin=8, show_x_labels=False,
        legend_at_bottom=True, legend_at_bottom_columns=4, disable_xml_declaration=True,
    )  # fmt: skip
    for action in ("allow", "redact", "ask", "block"):
        chart.add(action, [counts.get(action, 0) for _, counts in series])
    picture: str = chart.render()
    return picture.encode()
