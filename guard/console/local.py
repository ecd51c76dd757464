"""The API without a console: commands use it on a machine where none runs.

The resources are the console's own.  A user who can read the deployment's key is its admin, in the
realm ``machine``.
"""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from guard.console.access import SignedIn
from guard.console.approvals import ApprovalResources
from guard.console.incidents import IncidentResources
from guard.console.memory import MemoryResources
from guard.console.routes import Call, Page, Resource, failure
from guard.core.errors import GuardError
from guard.operations.approvals import ApprovalActions
from guard.operations.deployment import Deployment, Person, Role
from guard.operations.incident_actions import IncidentActions, Repairs
from guard.operations.memory import MemoryActions

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from guard.operations.incident_actions import Writer


def shared_resources(
    actions: ApprovalActions, memory: MemoryActions, repairs: Repairs
) -> list[Resource]:
    """Return the resources that need no console."""
    deployment = actions.deployment

    async def tenants(call: Call) -> list[str]:
        named = call.query.get("tenant", "")
        return [named] if named else await deployment.tenants()

    return [
        *ApprovalResources(actions, tenants).table(),
        *IncidentResources(IncidentActions(deployment, repairs), tenants).table(),
        *MemoryResources(memory, tenants).table(),
    ]


def local_api(deployment: Deployment, write: Writer, servers: tuple[str, ...]) -> list[Page]:
    """Return the routes of the API that need no console.

    Args:
        deployment: state, key and audit log.
        write: writes a repair through a listener of the guard.
        servers: URLs of such listeners.
    """
    # Requests and incidents record whether two persons are needed; no policy is known here.
    repairs = Repairs(servers, write, lambda: False)
    parts = shared_resources(ApprovalActions(deployment), MemoryActions(deployment), repairs)
    return [page for one in parts for page in one.pages()]


async def answered(
    pages: list[Page], method: str, path: str, query: dict[str, str], body: Any
) -> httpx.Response:
    """Return the response of one route to this machine's user.

    Args:
        pages: the routes.
        method: HTTP method.
        path: path with its parameters filled in.
        query: parameters of the query.
        body: JSON values; None for no body.
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
