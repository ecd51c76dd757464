"""Approvals, pauses, break-glasses, remembered receivers and tool definitions."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from guard.console.routes import Call, Resource, acted
from guard.core.errors import AuditError, GuardError, StateError
from guard.operations import approvals as requests
from guard.operations.approvals import (
    ApprovalActions,
    Decided,
    errand_documents,
    grouped_requests,
    request_document,
)
from guard.operations.deployment import Role
from guard.provenance.questions import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guard.memory.pins import Pin

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
                requests.Revocation, back="/tools",
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
                requests.Definition, back="/tools",
            ),
            Resource("/standing", "Pauses and break-glasses.", self.standing, view, query=tenant),
            Resource(
                "/pauses/end", "End the pause of a principal.", acted(of.resume), act,
                requests.OfPrincipal, back=f"{queue}?done=resumed",
            ),
            Resource(
                glass, "Ask for a break-glass.", acted(of.ask_glass), act, requests.Relaxation,
                back=f"{queue}?done=asked",
            ),
            Resource(
                f"{glass}/open", "Open a break-glass as the second person.", acted(of.open_glass),
                act, requests.Opening, back=f"{queue}?done=opened",
            ),
            Resource(
                f"{glass}/close", "Close a break-glass.", acted(of.close_glass), act,
                requests.OfPrincipal, back=f"{queue}?done=closed",
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
