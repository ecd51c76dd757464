"""Application of the console: one table of resources and routes, each declared for a role."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from guard.console.authorization import PUBLIC, AuthorizationMiddleware
from guard.console.decisions import DecisionIndex, follow
from guard.console.overview import OverviewResources
from guard.console.policies import PolicyResources
from guard.console.resources import shared_resources
from guard.console.routes import Page, failure, openapi
from guard.console.sign_in import SignIn, SignInPages
from guard.console.templating import Templates, minute
from guard.core.errors import GuardError
from guard.operations.approvals import ApprovalActions, PrincipalStatuses, grouped_requests
from guard.operations.deployment import Role
from guard.operations.memory import MemoryActions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from starlette.requests import Request

    from guard.operations.incident_actions import Repairs
    from guard.operations.policy_drafts import PolicyActions
    from guard.provenance.approvals import ApprovalRequest

_STATIC: Final = {
    "htmx.min.js": "text/javascript",
    "console.js": "text/javascript",
    "console.css": "text/css",
    "pico.min.css": "text/css",
    "console.svg": "image/svg+xml",
}
LOOK_SECONDS: Final = 2.0
_LOGGER: Final = logging.getLogger(__name__)


class Console:
    """The pages and the API of one deployment.

    Args:
        index: index over the audit log.
        actions: approvals.
        policies: drafts and the trial.
        repairs: listeners for repairs.
        ways: ways to sign in.
        hosts: host names of the console.
    """

    def __init__(
        self,
        index: DecisionIndex,
        actions: ApprovalActions,
        policies: PolicyActions,
        repairs: Repairs,
        ways: SignIn,
        hosts: Collection[str],
    ) -> None:
        self._index, self._actions = index, actions
        self.notify: Callable[[list[list[ApprovalRequest]], PrincipalStatuses], None] | None = None
        """Takes pending requests every few seconds."""
        self.templates = Templates()
        memory = MemoryActions(self._actions.deployment)
        resources = [
            *OverviewResources(self._index, self._actions, memory).table(),
            *PolicyResources(policies, self._actions, self._index).table(),
            *shared_resources(self._actions, memory, repairs),
        ]
        sign_in = SignInPages(ways, self._actions.deployment.audit, self.templates)
        view = Role.VIEWER
        self.pages = [
            Page("/static/{name}", self.static, PUBLIC),
            Page("/favicon.ico", self.static, PUBLIC),
            Page("/metrics", self.metrics, view),
            Page("/api/openapi.json", self.description, view, about="This document."),
            *sign_in.pages(),
            *(page for one in resources for page in one.pages(self.templates.shown)),
        ]
        routes = [
            Route(page.path, page.endpoint, methods=[page.method], name=page.operation)
            for page in self.pages
        ]
        failures: Any = dict.fromkeys((GuardError, sqlite3.Error, HTTPException), self._failed)
        inner = Starlette(routes=routes, exception_handlers=failures, lifespan=self._following)
        declared = {page.operation: page for page in self.pages}
        self.app = AuthorizationMiddleware(inner, routes, declared, ways.access, hosts)

    @contextlib.asynccontextmanager
    async def _following(self, app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        failed = self._actions.metrics.errors.labels("feed").inc
        tasks = [loop.create_task(one) for one in (follow(self._index, failed), self._watch())]
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
                    since = minute(self._actions.deployment.now())
                    _LOGGER.warning("the state cannot be read: %s", text)
                    self.templates.degraded = (
                        f"What waits, pauses and break-glasses may be out of date since {since}: "
                        f"{text}"
                    )
            await asyncio.sleep(LOOK_SECONDS)

    async def look_around(self) -> None:
        """Refresh what every page shows: waiting requests, pauses, break-glasses.

        Raises:
            GuardError: the state cannot be reached; the pages keep what they show.
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
        if self.notify is not None:
            self.notify(grouped_requests(waiting), standing)

    # --- routes ----------------------------------------------------------------------------------

    async def metrics(self, request: Request) -> Response:
        """Return the console's metrics, for a Prometheus with a viewer's secret."""
        return Response(self._actions.metrics.exposed(), media_type=CONTENT_TYPE_LATEST)

    async def description(self, request: Request) -> Response:
        """Return the OpenAPI document."""
        return JSONResponse(openapi(self.pages))

    async def static(self, request: Request) -> Response:
        """Return one of the static files."""
        # Browsers look for the icon at a path of their own.
        name = request.path_params.get("name", "console.svg")
        if name not in _STATIC:
            raise HTTPException(404, "there is no such file")
        data = (files("guard.console") / "static" / name).read_bytes()
        headers = {"cache-control": "public, max-age=3600"}
        return Response(data, media_type=_STATIC[name], headers=headers)

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Return an error as JSON or as a page; nothing was released."""
        status, text = failure(error)
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": text}, status)
        return self.templates.shown(request, "error", status, text=text, status=status)
