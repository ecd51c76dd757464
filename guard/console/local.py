"""The API without a console: what commands act by on a machine where none runs.

The routes are the console's own, so a command does the same either way; whoever may read the
key of the deployment is its admin, of the realm ``machine``.
"""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

from guard.console.access import Person, Role, SignedIn
from guard.console.api import Api
from guard.console.incident_api import IncidentApi, Repairs
from guard.console.memory_api import MemoryApi
from guard.console.operator_actions import OperatorActions
from guard.console.routes import failure
from guard.core.errors import GuardError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from guard.console.incident_api import Writer
    from guard.console.routes import Deployment, Page


def local_api(deployment: Deployment, write: Writer, servers: tuple[str, ...]) -> list[Page]:
    """Return the routes of the API that need no console.

    Args:
        deployment: what they act on.
        write: writes a repair through a listener of the guard.
        servers: URLs of such listeners.
    """
    actions = OperatorActions(
        deployment.store, deployment.seal, deployment.audit, now=deployment.now
    )
    # What was asked says how many have to approve it; no policy is known here that asks two.
    repairs = Repairs(servers, write, lambda: False)
    parts = (
        Api(actions, deployment.tenants_of),
        IncidentApi(deployment, repairs),
        MemoryApi(deployment),
    )
    return [page for part in parts for page in part.table()]


async def answered(
    pages: list[Page], method: str, path: str, query: dict[str, str], body: Any
) -> httpx.Response:
    """Return the answer of one route to this machine's user.

    Args:
        pages: the routes.
        method: of the request.
        path: with its parameters filled in.
        query: parameters behind it.
        body: JSON values; None for none.
    """
    user = Person(getpass.getuser(), frozenset({Role.ADMIN}), "machine")

    async def failed(request: Request, error: Exception) -> Response:
        del request
        status, text = failure(error)
        return JSONResponse({"error": text}, status)

    routes = [Route(page.path, page.endpoint, methods=[page.method]) for page in pages]
    handlers: Any = {GuardError: failed, HTTPException: failed}
    inner = Starlette(routes=routes, exception_handlers=handlers)

    async def signed_in(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {"signed_in": SignedIn(user, "", 0.0, 0.0)}
        await inner(scope, receive, send)

    transport = httpx.ASGITransport(app=signed_in)
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as client:
        return await client.request(method, path, params=query, json=body)
