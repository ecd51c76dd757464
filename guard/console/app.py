"""The console's pages and its API: one table of routes, each declared for a role."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import logging
import sqlite3
import time
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import (
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from guard.console.access import COOKIE, Role
from guard.console.api import Api, DecisionsApi, Description
from guard.console.authorization import PUBLIC, AuthorizationMiddleware
from guard.console.decisions import DAY, FILTERS, PAGE
from guard.console.feed import Feed
from guard.console.operator_actions import AT_ONCE, Answer, Decided, Relaxation, grouped_requests
from guard.console.pages import Templates, chart_style, minute
from guard.console.routes import Page, PagesOf, failure, field_of, number, person_of
from guard.console.sign_in import SignInPages
from guard.core.errors import AuditError, GuardError, InputError, StateError
from guard.provenance.approvals import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from starlette.requests import Request

    from guard.console.decisions import DecisionIndex, Row
    from guard.console.operator_actions import OperatorActions, PrincipalStatuses
    from guard.console.sign_in import SignIn
    from guard.provenance.approvals import ApprovalRequest
    from guard.tool_pins.pins import Pin

_STATIC: Final = {
    "htmx.min.js": "text/javascript",
    "console.js": "text/javascript",
    "console.css": "text/css",
}
LOOK_SECONDS: Final = 2.0
_LOGGER: Final = logging.getLogger(__name__)
_VERDICTS: Final = ("allow", "redact", "ask", "block")
_PERIODS: Final = {"hour": 3600, "day": 86400, "week": 7 * 86400, "month": 30 * 86400, "": 0}


class Console:
    """The pages of one deployment.

    Args:
        index: over its audit log.
        actions: acts on its state.
        ways: to sign in.
        hosts: names by which the console is called.
        parts: makes further pages.
        notify: is told of what waits for an answer, every few seconds.
        now: seconds since the epoch.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        index: DecisionIndex,
        actions: OperatorActions,
        ways: SignIn,
        hosts: Collection[str],
        *,
        parts: Callable[[Templates], Sequence[PagesOf]] = lambda _: (),
        notify: Callable[[list[list[ApprovalRequest]], PrincipalStatuses], None] = lambda _, __: (
            None
        ),
        now: Callable[[], float] = time.time,  # noqa: TID251  (the edge where time comes in)
    ) -> None:
        self._index = index
        self._actions = actions

        self.notify = notify
        """Is told of what waits, again and again."""
        self._access = access = ways.access
        self._secure = ways.secure
        self._now = now
        self.templates = Templates()
        self._shown = self.templates.shown
        self._parts = parts(self.templates)
        errors = actions.metrics.errors
        self.feed = Feed(index, self.templates.row, errors.labels("feed").inc)
        self._sign_in = SignInPages(ways, actions, self.templates)
        self._api: tuple[PagesOf, ...] = (
            Description(lambda: self.pages),
            DecisionsApi(index, now),
            Api(actions, self._tenants_of),
        )
        self.pages = self._table()
        routes = [
            Route(page.path, page.endpoint, methods=[page.method], name=page.operation)
            for page in self.pages
        ]
        failures: Any = {
            GuardError: self._failed,
            sqlite3.Error: self._failed,
            HTTPException: self._failed,
        }
        inner = Starlette(routes=routes, exception_handlers=failures, lifespan=self._following)
        declared = {page.operation: page for page in self.pages}
        self.app = AuthorizationMiddleware(inner, routes, declared, access, hosts)

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
            Page("/tools", self.tools, view),
            Page("/tools/difference", self.difference, view),
            Page("/tools/accept", self.accept, admin, "POST"),
            Page("/established/revoke", self.revoke, act, "POST"),
            Page("/record", self.record, view),
            Page("/static/{name}", self.static, PUBLIC),
            Page("/standing", self.standing, act, "POST"),
            Page("/metrics", self.metrics, view),
            *self._sign_in.pages(),
            *(page for part in (*self._api, *self._parts) for page in part.table()),
        ]

    @contextlib.asynccontextmanager
    async def _following(self, app: Starlette) -> AsyncIterator[None]:
        del app
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(one) for one in (self.feed.follow(), self._watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._index.close()

    async def _watch(self) -> None:
        """Refresh what every page shows until cancelled; a failure is tried again later."""
        while True:
            try:
                await self.look_around()
                self.templates.degraded = ""
            except Exception as error:  # noqa: BLE001  (tried again; every page says so)
                self._actions.metrics.errors.labels("state").inc()
                text = f"{type(error).__name__}: {error}"
                if not self.templates.degraded:
                    since = minute(self._now())
                    _LOGGER.warning("the state cannot be read: %s", text)
                    self.templates.degraded = (
                        f"What waits, pauses and break-glasses may be out of date since {since}: "
                        f"{text}"
                    )
            await asyncio.sleep(LOOK_SECONDS)

    async def look_around(self) -> None:
        """Refresh what every page shows: what waits, pauses, break-glasses.

        Raises:
            GuardError: the state cannot be reached; what was found before stays.
        """
        tenants = await asyncio.to_thread(self._index.tenants)
        standing = await self._actions.standing(tenants)
        waiting = await self._actions.waiting(tenants)
        self._actions.metrics.waiting.set(len(waiting))
        self._actions.metrics.paused.set(len(standing.pauses))
        self._actions.metrics.open_glasses.set(len(standing.open))
        self.templates.alarms = [
            f"A break-glass is open for {one.principal or '(nobody proven)'}"
            f"{f', tool {one.tool}' if one.tool else ''}, until {minute(one.until)}: what would be "
            f"asked goes out ({one.first} and {one.second}: {one.why})"
            for _, one in standing.open
        ]
        self.notify(grouped_requests(waiting), standing)

    # --- pages -----------------------------------------------------------------------------------

    async def now(self, request: Request) -> Response:
        """Live decisions, rates, what is wrong, what is new since yesterday."""
        wanted = {name: request.query_params.get(name, "") for name in FILTERS}
        before = number(request.query_params.get("before", ""))
        at = self._now()
        rows = await asyncio.to_thread(self._index.page, wanted, before=before)
        today, yesterday, news = await asyncio.to_thread(self._index.compared, at)
        return self._shown(
            request,
            "now",
            rows=rows,
            wanted=wanted,
            older=min(one["id"] for one in rows) if len(rows) == PAGE else 0,
            live=not before,
            today=today,
            yesterday=yesterday,
            news=news,
            unreachable=await self._actions.reachable(),
            feed=self.feed,
            waiting=await self._count_waiting(),
        )

    async def _count_waiting(self) -> int | None:
        try:
            return len(await self._waiting())
        except StateError:
            return None

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
        rows = tuple(tuple(counts.get(one, 0) for one in _VERDICTS) for _, counts in series)
        picture = await asyncio.to_thread(_chart, rows)
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
        groups = grouped_requests(await self._waiting())
        standing = await self._actions.standing(await asyncio.to_thread(self._index.tenants))
        return self._shown(request, "approvals", groups=groups, at_once=AT_ONCE, standing=standing)

    async def standing(self, request: Request) -> Response:
        """End a pause; ask for, open or close a break-glass."""
        form, person = request.state.form, person_of(request)
        tenant = field_of(form, "tenant") or "default"
        principal = field_of(form, "principal")
        match field_of(form, "act"):
            case "resume":
                await self._actions.resume(person, tenant, principal)
            case "ask":
                minutes = number(field_of(form, "minutes"))
                why, tool = field_of(form, "why").strip(), field_of(form, "tool").strip()
                if not (principal and minutes and why):
                    raise InputError("say for which principal, for how long, and why")
                wanted = Relaxation(principal, tool, 60 * minutes, why[:500])
                await self._actions.ask_glass(person, tenant, wanted)
            case "open":
                await self._actions.open_glass(person, tenant, field_of(form, "id"))
            case "close":
                await self._actions.close_glass(person, tenant, principal)
            case _:
                raise InputError("this is no act")
        return RedirectResponse("/approvals", 303)

    async def approval(self, request: Request) -> Response:
        """One request: who asks, whom it reaches, what would leave."""
        path = request.path_params
        asked = await self._actions.asked(path["tenant"], path["decision"])
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
                await self._actions.answer(person_of(request), tenant, decision, decided)
            except (StateError, AuditError):
                raise
            except GuardError as error:
                failed.append(f"{decision}: {error}")
        if failed:
            raise GuardError("; ".join(failed))
        return RedirectResponse("/approvals", 303)

    async def tools(self, request: Request) -> Response:
        """Pinned definitions, changed ones, and receivers that may be sent to again."""
        tenants = await asyncio.to_thread(self._index.tenants)
        pins = await self._actions.pins(tenants)
        return self._shown(
            request,
            "tools",
            pins=sorted((p for p in pins if p[1] and not p[1].is_mark), key=_place),
            marks=sorted((p for p in pins if p[1] and p[1].is_mark), key=_place),
            altered=sum(pin is None for _, pin in pins),
            established=await self._actions.established(tenants),
        )

    async def difference(self, request: Request) -> Response:
        """What changed in a tool's definition."""
        asked = request.query_params
        names = [asked.get(name, "") for name in ("tenant", "upstream", "tool")]
        pin, mark = await self._actions.compared(*names)
        before = _lines(pin) if pin else ["(the pinned definition cannot be read)"]
        lines = list(difflib.unified_diff(before, _lines(mark), "pinned", "listed", lineterm=""))
        return self._shown(request, "difference", tenant=names[0], mark=mark, lines=lines)

    async def accept(self, request: Request) -> Response:
        """Pin a changed definition."""
        names = [field_of(request.state.form, n) for n in ("tenant", "upstream", "tool", "digest")]
        await self._actions.accept(person_of(request), *names)
        return RedirectResponse("/tools", 303)

    async def revoke(self, request: Request) -> Response:
        """Take an established receiver away."""
        names = [field_of(request.state.form, name) for name in ("tenant", "mark")]
        await self._actions.revoke(person_of(request), *names)
        return RedirectResponse("/tools", 303)

    async def record(self, request: Request) -> Response:
        """What people and the guard itself did, the newest first."""
        events = await asyncio.to_thread(self._index.events)
        answers = [one["detail"] for one in events if one["event"] == "guard.approval"]
        granted = [one for one in answers if one.get("answer") == "granted" and "waited" in one]
        quick = sum(one["waited"] <= 2 for one in granted)  # noqa: PLR2004  (seconds)
        return self._shown(request, "record", events=events, granted=len(granted), quick=quick)

    async def metrics(self, request: Request) -> Response:
        """What the console counts, for a Prometheus that sends a viewer's secret."""
        del request
        return Response(self._actions.metrics.exposed(), media_type=CONTENT_TYPE_LATEST)

    async def static(self, request: Request) -> Response:
        """One of the files of the pages."""
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404, "there is no such file")
        data = (files("guard.console") / "static" / name).read_bytes()
        headers = {"cache-control": "public, max-age=3600"}
        return Response(data, media_type=_STATIC[name], headers=headers)

    # --- what they share -------------------------------------------------------------------------

    async def _tenants_of(self, request: Request) -> list[str]:
        named = request.query_params.get("tenant", "")
        return [named] if named else await asyncio.to_thread(self._index.tenants)

    async def _waiting(self) -> list[Any]:
        return await self._actions.waiting(await asyncio.to_thread(self._index.tenants))

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Say what was not done, and why; nothing was released by it."""
        status, text = failure(error)
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


def _place(found: tuple[str, Pin | None]) -> tuple[str, str, str]:
    tenant, pin = found
    return tenant, pin.upstream if pin else "", pin.tool if pin else ""


def _lines(pin: Pin) -> list[str]:
    if not pin.text:
        return [f"(too long to keep; digest {pin.digests[0]})"]
    text = json.dumps(json.loads(pin.text), indent=2, ensure_ascii=False, sort_keys=True)
    return text.split("\n")


@lru_cache(maxsize=2)
def _chart(hours: tuple[tuple[int, ...], ...]) -> bytes:
    """Return a picture of decisions by the hour; it is not drawn again where nothing came."""
    import pygal

    chart = pygal.StackedBar(
        style=chart_style(), height=180, width=900, js=[], margin=8, show_x_labels=False,
        legend_at_bottom=True, legend_at_bottom_columns=4, disable_xml_declaration=True,
    )  # fmt: skip
    for place, action in enumerate(_VERDICTS):
        chart.add(action, [counts[place] for counts in hours])
    picture: str = chart.render()
    return picture.encode()
