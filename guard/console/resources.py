"""Requests, incidents and memories: resources of the console, and of commands without one.

Where no console runs, a command calls them inside its own process.  A user who can read the
deployment's key is its admin, in the realm ``machine``.
"""

from __future__ import annotations

import difflib
import getpass
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import httpx
from pydantic import Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from guard.console.access import SignedIn
from guard.console.routes import LARGE, Call, Page, Resource, acted, failure
from guard.core.errors import AuditError, GuardError, InputError, StateError
from guard.operations import approvals, memory
from guard.operations.approvals import (
    ApprovalActions,
    Decided,
    errand_documents,
    grouped_requests,
    request_document,
)
from guard.operations.deployment import Body, Deployment, Person, Role
from guard.operations.incident_actions import (
    IncidentAct,
    IncidentActions,
    Opening,
    Repairs,
    Wanted,
)
from guard.operations.memory import LISTED, MemoryActions
from guard.provenance.questions import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from guard.memory.pins import Pin
    from guard.operations.incident_actions import Writer


DONE: Final = {
    Answer.ONCE: "Approved once.",
    Answer.ERRAND: "Approved for this errand.",
    Answer.REMEMBER: "Approved and remembered; revoke it under “Tools and memory”.",
    Answer.TOOL: "Approved for this tool; revoke it under “Tools and memory”.",
    Answer.READ_ONLY: "Approved for this tool; revoke it under “Tools and memory”.",
    Answer.DIRECTORY: "Approved for this directory; revoke it under “Tools and memory”.",
    Answer.DENY: "Refused. Nothing went out.",
    Answer.QUARANTINE: "Refused. Nothing went out, and the source is contained.",
    "counted": "Your answer counts. The call goes out once a second person approves it.",
    "resumed": "The pause has ended.",
    "asked": "A second person has to open the break-glass.",
    "opened": "The break-glass is open.",
    "closed": "The break-glass is closed.",
}
"""Message after a form was sent, by its name in the address."""
AT_ONCE: Final = 50
"""Maximum number of requests that one form answers."""


class AnswerBody(Decided):
    """An answer to a request, and to others."""

    alike: tuple[str, ...] = Field(default=(), max_length=AT_ONCE)
    """Further requests of the tenant with the same answer, by decision id."""
    whole_errand: bool = False
    """True if the other requests of its errand get the same answer, except those with a tainted
    recipient."""


@dataclass(frozen=True, slots=True)
class ApprovalResources:
    """Resources over :class:`ApprovalActions`.

    Args:
        actions: the approvals.
        tenants: returns the tenants of a request.
    """

    actions: ApprovalActions
    tenants: Callable[[Call], Awaitable[list[str]]]

    def table(self) -> list[Resource]:
        """Return the resources."""
        view, act, admin, of = Role.VIEWER, Role.APPROVER, Role.ADMIN, self.actions
        one, glass, tenant = "/approvals/{tenant}/{decision}", "/break-glass", ("tenant",)
        queue, names = "/approvals", ("tenant", "upstream", "tool")
        return [
            Resource(
                queue, "Requests that wait for an answer.", self.approvals, view,
                query=("tenant", "done"), template="approvals",
            ),
            Resource(
                one, "A request with its untrusted text.", self.approval, view, template="approval"
            ),
            Resource(
                one, "Answer a request.", self.answer, act, AnswerBody,
                back=f"{queue}?done={{done}}",
            ),
            Resource("/grants", "Remembered answers.", self.grants, view, query=tenant),
            Resource(
                "/grants/revoke", "Revoke a remembered answer.", acted(of.revoke), act,
                approvals.Revocation, back="/tools",
            ),
            Resource(
                "/tools", "Pinned and changed definitions.", self.tools, view,
                query=tenant, template="tools",
            ),
            Resource(
                "/tools/difference", "The pinned definition and the changed one.",
                self.difference, view, query=names, template="difference",
            ),
            Resource(
                "/tools/approve", "Accept a changed definition.", acted(of.accept), admin,
                approvals.Definition, back="/tools",
            ),
            Resource("/standing", "Pauses and break-glasses.", self.standing, view, query=tenant),
            Resource(
                "/pauses/end", "End the pause of a principal.", acted(of.resume), act,
                approvals.OfPrincipal, back=f"{queue}?done=resumed",
            ),
            Resource(
                glass, "Ask for a break-glass.", acted(of.ask_glass), act, approvals.Relaxation,
                back=f"{queue}?done=asked",
            ),
            Resource(
                f"{glass}/open", "Open a break-glass as the second person.", acted(of.open_glass),
                act, approvals.Opening, back=f"{queue}?done=opened",
            ),
            Resource(
                f"{glass}/close", "Close a break-glass.", acted(of.close_glass), act,
                approvals.OfPrincipal, back=f"{queue}?done=closed",
            ),
        ]  # fmt: skip

    async def approvals(self, call: Call) -> Any:
        """Return the requests, numbered by group, and the statuses of principals."""
        tenants = await self.tenants(call)
        groups = grouped_requests(await self.actions.waiting(tenants))
        found = [
            {"group": number, **request_document(one)}
            for number, group in enumerate(groups)
            for one in group
        ]
        standing = (await self.actions.standing(tenants)).document()
        return {
            "requests": sorted(found, key=lambda one: one["at"]),
            "questions": errand_documents(groups),
            "standing": standing,
            "done": DONE.get(call.query.get("done", ""), ""),
        }

    async def approval(self, call: Call) -> Any:
        """Return one request."""
        tenant = call.path["tenant"]
        asked = await self.actions.asked(tenant, call.path["decision"])
        mapping = await self.actions.mapping(tenant, asked)
        texts = "".join(f"{lines}# In the test file beside it:\n{test}" for lines, test in mapping)
        return {**request_document(asked), "mapping": texts}

    async def answer(self, call: Call) -> Any:
        """Answer a request, and those that the person has answered alike."""
        body, tenant, decision = call.body, call.path["tenant"], call.path["decision"]
        released, failed = False, list[str]()
        others = list(body.alike)
        if body.whole_errand:
            asked = await self.actions.asked(tenant, decision)
            others += (await self.actions.of_errand(tenant, asked))[:AT_ONCE]
        for one in dict.fromkeys((decision, *others)):
            try:
                asked = await self.actions.answer(call.person, tenant, one, body)
                released = released or asked.released
            except (StateError, AuditError):
                raise
            except GuardError as error:
                if not others:
                    raise
                failed.append(f"{one}: {error}")
        if failed:
            raise GuardError("; ".join(failed))
        approves = body.answer not in {Answer.DENY, Answer.QUARANTINE}
        waits = asked.people > 1 and not asked.first and approves
        done = "counted" if waits else body.answer.value
        return {"answered": decision, "answer": body.answer, "released": released, "done": done}

    async def grants(self, call: Call) -> Any:
        """Return every remembered answer: author, scope, end and last use."""
        found = await self.actions.remembered(await self.tenants(call))
        return {"grants": [asdict(one) for one in found]}

    async def tools(self, call: Call) -> Any:
        """Return pins, changed definitions, altered records and remembered answers."""
        found = await self.actions.pins(await self.tenants(call))
        tools = [{"tenant": tenant, **asdict(pin)} for tenant, pin in found if pin]
        tools.sort(key=lambda one: (one["tenant"], one["upstream"], one["tool"]))
        altered = len(found) - len(tools)
        return {"tools": tools, "altered": altered, **await self.grants(call)}

    async def difference(self, call: Call) -> Any:
        """Return both definitions and the difference line by line."""
        tenant = call.query.get("tenant") or "default"
        names = call.query.get("upstream", ""), call.query.get("tool", "")
        pin, mark = await self.actions.compared(tenant, *names)
        before = _lines(pin) if pin else ["(the pinned definition cannot be read)"]
        sides = f"pinned {pin.digests[0][:12] if pin else ''}", f"listed {mark.digests[0][:12]}"
        return {
            "tenant": tenant,
            "pinned": asdict(pin) if pin else None,
            "listed": asdict(mark),
            "lines": list(difflib.unified_diff(before, _lines(mark), *sides, lineterm="")),
        }

    async def standing(self, call: Call) -> Any:
        """Return pauses and break-glasses."""
        return (await self.actions.standing(await self.tenants(call))).document()


def _lines(pin: Pin) -> list[str]:
    if not pin.text:
        return [f"(too long to keep; digest {pin.digests[0]})"]
    text = json.dumps(json.loads(pin.text), indent=2, ensure_ascii=False, sort_keys=True)
    return text.split("\n")


class WantedBody(Body):
    """Act that waits for a second person."""

    id: str


class ExportBody(Body):
    """Format of the evidence."""

    format: Literal["json", "stix"] = "json"


class VerifyBody(Body):
    """Exported evidence."""

    text: str


@dataclass(frozen=True, slots=True)
class IncidentResources:
    """Resources over :class:`IncidentActions`.

    Args:
        actions: the incidents.
        tenants: returns the tenants of a request.
    """

    actions: IncidentActions
    tenants: Callable[[Call], Awaitable[list[str]]]

    def table(self) -> list[Resource]:
        """Return the resources."""
        view, act = Role.VIEWER, Role.APPROVER
        every, one = "/incidents", "/incidents/{tenant}/{incident}"
        return [
            Resource(
                every, "Incidents.", self.incidents, view, query=("tenant",), template="incidents"
            ),
            Resource(every, "Open an incident.", acted(self.actions.open), act, Opening, back=one),
            Resource(
                f"{every}/verify", "Verify exported evidence.",
                lambda call: self.actions.verify(call.body.text), view, VerifyBody, longest=LARGE,
            ),
            Resource(one, "Evidence of an incident, signed.", self.evidence, view),
            Resource(
                one, "An incident.", lambda call: self.actions.overview(place_of(call)), view,
                template="incident", is_api=False,
            ),
            Resource(
                one, "Act on an incident; 202 if a second person has to agree.", self.act, act,
                IncidentAct, longest=LARGE, back=one,
            ),
            Resource(
                f"{one}/exposed", "Saves of sessions that had recalled a reached item.",
                lambda call: self.actions.exposed(place_of(call)), view, template="exposed",
            ),
            Resource(f"{one}/texts", "Texts of an incident.",
                lambda call: self.actions.texts(place_of(call)), view),
            Resource(
                f"{one}/repair", "Restorations of the contained items.",
                lambda call: self.actions.proposals(place_of(call)), view, template="repair",
            ),
            Resource(
                f"{one}/export", "Export evidence; its digest goes into the audit log.",
                lambda call: self.actions.export(call.person, place_of(call), call.body.format),
                view, ExportBody,
            ),
            Resource(
                f"{one}/second", "Agree to an act of another person.", self.agree, act, WantedBody,
                back=one,
            ),
            Resource(
                f"{one}/withdraw", "Withdraw a waiting act.", self.withdraw, act, WantedBody,
                back=one,
            ),
        ]  # fmt: skip

    async def incidents(self, call: Call) -> Any:
        """Return the incidents."""
        tenants = await self.tenants(call)
        return {"incidents": await self.actions.listed(tenants), "tenants": tenants}

    async def evidence(self, call: Call) -> Any:
        """Return the signed evidence, byte for byte as ``guard incident export`` writes it."""
        text = await self.actions.exported(place_of(call))
        return Response(text, media_type="application/json")

    async def act(self, call: Call) -> Any:
        """Do an act."""
        outcome = await self.actions.act(call.person, place_of(call), call.body)
        if isinstance(outcome, Wanted):
            return JSONResponse({"done": False, "wanted": outcome.id}, 202)
        return await self._done(call, outcome)

    async def _done(self, call: Call, outcome: str) -> dict[str, Any]:
        found = await self.actions.overview(place_of(call))
        return {"done": True, "outcome": outcome, "steps": found["incident"]["steps"]}

    async def agree(self, call: Call) -> Any:
        """Agree to an act."""
        outcome = await self.actions.agree(call.person, place_of(call), call.body.id)
        return await self._done(call, outcome)

    async def withdraw(self, call: Call) -> Any:
        """Withdraw an act."""
        await self.actions.withdraw(call.person, place_of(call), call.body.id)
        return {"withdrawn": call.body.id}


def place_of(call: Call) -> tuple[str, str]:
    """Return tenant and id of the incident of a request."""
    return call.path["tenant"], call.path["incident"]


MOST: Final = 1000


MOST_LABELS: Final = 100_000


@dataclass(frozen=True, slots=True)
class MemoryResources:
    """Resources over :class:`MemoryActions`.

    Args:
        actions: the memories.
        tenants: returns the tenants of a request.
    """

    actions: MemoryActions
    tenants: Callable[[Call], Awaitable[list[str]]]

    def table(self) -> list[Resource]:
        """Return the resources."""
        view, act, admin, of = Role.VIEWER, Role.APPROVER, Role.ADMIN, self.actions
        base, limited = "/memory", ("tenant", "limit")
        return [
            Resource(
                base, "Closed partitions, drift, held-back writes.", self.overview, view,
                query=limited, template="memory",
            ),
            Resource(
                f"{base}/promote", "Let one refused write in, once.",
                acted(of.promote), act, memory.Promotion,
            ),
            Resource(
                f"{base}/quarantine", "Close a partition to writes.",
                acted(of.close), act, memory.Closing, back=base,
            ),
            Resource(
                f"{base}/release", "Open a closed partition.",
                acted(of.open), act, memory.Partition, back=base,
            ),
            Resource(
                f"{base}/trust", "Trust a source or principal again.",
                acted(of.restore), act, memory.Restoring, back=base,
            ),
            Resource(
                f"{base}/accept-loss", "Count labels as complete after a loss.",
                acted(of.accept_loss), admin, memory.Accepting,
            ),
            Resource(
                f"{base}/in-flight", "Forwarded writes of unknown fate.", self.in_flight, view,
                query=("tenant", "older_than"),
            ),
            Resource(
                f"{base}/fate", "Record the fate of a write.",
                acted(of.settle), act, memory.Settling,
            ),
            Resource(f"{base}/labels", "Label records.", self.labels, view, query=limited),
            Resource(
                f"{base}/labels", "Label what a memory held before the guard.",
                acted(of.import_items), admin, memory.Items,
                longest=LARGE,
            ),
            Resource(
                f"{base}/find", "Labels of the values in a text.",
                lambda call: of.find(call.body), view, memory.Search,
            ),
            Resource(
                f"{base}/trace", "Path of the values in a text.",
                lambda call: of.trace(call.body), view, memory.Search,
            ),
            Resource(
                f"{base}/reach", "Consequences or causes of saves.",
                lambda call: of.reach(call.body), view, memory.Reach,
            ),
            Resource(
                f"{base}/findings", "Saves that look poisoned.", self.findings, view,
                query=("tenant",),
            ),
            Resource(
                f"{base}/findings/clear", "Clear findings.",
                acted(of.clear), act, memory.Clearing,
            ),
            Resource(
                f"{base}/structure", "A store's ledger as JSON lines.", self.structure, admin,
                query=("tenant", "store"),
            ),
            Resource(
                f"{base}/structure", "Add structure from before the guard.",
                acted(of.append), admin, memory.Structure,
                longest=LARGE,
            ),
        ]  # fmt: skip

    async def overview(self, call: Call) -> Any:
        """Return closed partitions, drift and held-back writes."""
        return await self.actions.overview(
            await self.tenants(call), call.number("limit", LISTED, MOST)
        )

    async def in_flight(self, call: Call) -> Any:
        """Return writes in flight."""
        try:
            older = float(call.query.get("older_than", "0"))
        except ValueError as error:
            raise InputError("`older_than` is a number of seconds") from error
        return await self.actions.in_flight(await self.tenants(call), older)

    async def labels(self, call: Call) -> Any:
        """Return label records."""
        return await self.actions.labels(
            await self.tenants(call), call.number("limit", 100, MOST_LABELS)
        )

    async def findings(self, call: Call) -> Any:
        """Return findings."""
        return await self.actions.findings(await self.tenants(call))

    async def structure(self, call: Call) -> Any:
        """Stream a ledger."""
        tenant, store = call.query.get("tenant", "default"), call.query.get("store", "")
        if not store:
            raise InputError("name the store")
        lines = self.actions.ledger(tenant, store)
        return StreamingResponse(lines, media_type="application/jsonl")


def shared_resources(
    actions: ApprovalActions, memories: MemoryActions, repairs: Repairs
) -> list[Resource]:
    """Return the resources that need no console."""
    deployment = actions.deployment

    async def tenants(call: Call) -> list[str]:
        named = call.query.get("tenant", "")
        return [named] if named else await deployment.tenants()

    return [
        *ApprovalResources(actions, tenants).table(),
        *IncidentResources(IncidentActions(deployment, repairs), tenants).table(),
        *MemoryResources(memories, tenants).table(),
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

    async def failed(_: Request, error: Exception) -> Response:
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
