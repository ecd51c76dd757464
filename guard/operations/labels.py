"""Answers to requests for approval: approve, deny, and show the context of a request.

The definition of an unmapped tool is its server's own words: it can forbid an answer, and only a
person gives one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.core.labels import Channel
from guard.core.model import Identity
from guard.core.tool_answers import Cover
from guard.memory.pins import Pins
from guard.policy.proposal import ListedTool, is_addressed, suggested_action
from guard.provenance.approvals import ApprovalRequest, Approvals, Approver, AskedCall, Grant, Scope
from guard.provenance.errands import GRANTS, NEVER
from guard.store.approval_requests import ApprovalRequests
from guard.store.label_records import LabelRecords
from guard.store.pin_records import PinOperator

if TYPE_CHECKING:
    from guard.core.policy import StateLimits
    from guard.memory.pins import Pin
    from guard.provenance.seal import Seal
    from guard.store.store import RedisSessionStore


ONCE: Final = Grant()
_AUTHORS: Final = {Channel.PROMPT: "the user's prompt"}
_SCOPES: Final = {Channel.SESSION_APPROVAL: "session"}


@dataclass(frozen=True, slots=True)
class Remembered:
    """An answer that holds for later calls."""

    tenant: str
    mark: str
    """Name by which it is revoked, in hex."""
    principal: str
    tool: str
    """The one tool; empty for every tool of the service."""
    service: str
    """Server that is called, or its listener."""
    action: str
    """Action that it is bound to; empty where the tool says it."""
    kind: str
    recipient: str
    """Recipient or host; the action for an action of one tool."""
    scope: str
    """``errand``, ``session`` or ``principal``."""
    by: str
    at: float
    until: float
    used: float
    """Time of its last use, in seconds since the epoch; 0 for never."""


class LabelOperator(LabelRecords):
    """Labels and approvals of one tenant.

    Args:
        store: a connected store in the guard's namespace.
        seal: the deployment's key.
        limits: state limits of the guard's policy.
        tenant: name of the tenant.
    """

    def __init__(
        self,
        store: RedisSessionStore,
        seal: Seal,
        limits: StateLimits,
        tenant: str = "default",
    ) -> None:
        super().__init__(store, seal, limits, tenant)
        self._approvals = Approvals(seal)
        self._pins = PinOperator(store, Pins(seal), tenant)
        self._requests = ApprovalRequests(store, seal, limits, tenant)
        self.waiting = self._requests.listed
        self.list_again = self._requests.list_again

    async def remembered(self, at: float) -> list[Remembered]:
        """Return every remembered answer of the tenant."""
        found: list[Remembered] = []
        for one in await self.established():
            channel = one.record.channel
            found.append(
                Remembered(
                    tenant=self._tenant,
                    mark=one.mark.hex(),
                    principal=one.principal,
                    tool=one.tool,
                    service=one.upstream or one.server,
                    action="",
                    kind=one.kind,
                    recipient=one.receiver,
                    scope=_SCOPES.get(channel, "principal"),
                    by=one.by or _AUTHORS.get(channel, ""),
                    at=one.record.at,
                    until=one.record.until,
                    used=await self._requests.last_send(one),
                )
            )
        for mark, grant in await self.errand_grants(at):
            found.append(
                Remembered(
                    tenant=self._tenant,
                    mark=mark.hex(),
                    principal=grant.principal,
                    tool="",
                    service=grant.upstream or grant.server,
                    action=grant.action,
                    kind=grant.kind,
                    recipient=grant.recipient,
                    scope="errand" if grant.errand else "session",
                    by=grant.by,
                    at=grant.at,
                    until=grant.until,
                    used=grant.used,
                )
            )
        return [one for one in found if one.until > at]

    async def revoke_remembered(self, mark: bytes) -> bool:
        """Take a remembered answer away, by its mark; return whether it was there."""
        return await self.revoke(mark) or await self.revoke_errand_grant(mark)

    async def asked(self, decision_id: str) -> ApprovalRequest:
        """Return what is asked under a decision id, with the untrusted text and earlier sends.

        Raises:
            GuardError: nothing is, or its record was altered.
        """
        asked = await self._requests.read(decision_id)
        context = self._requests.with_context
        calls = [
            replace(call, receivers=tuple([await context(asked, one) for one in call.receivers]))
            for call in asked.calls
        ]
        return replace(asked, calls=tuple(calls))

    async def deny(self, decision_id: str) -> ApprovalRequest:
        """Take a request away unanswered, with those of the same message; return what was asked.

        Raises:
            GuardError: nothing waits under this id, or it was altered.
        """
        asked = await self._requests.read(decision_id)
        await self._requests.take(asked, granted=False)
        await self._requests.tell(asked, granted=False)
        return asked

    async def tool(self, call: AskedCall) -> ListedTool | None:
        """Return the tool of a call as its pinned definition has it; None where none is kept."""
        return tool_of(await self._pins.pin(call.upstream, call.tool))

    async def _check_kept(self, asked: ApprovalRequest, grant: Grant) -> None:
        """Refuse an answer that could not be kept.

        Raises:
            GuardError: nothing would be remembered; the request still waits.
        """
        if grant.scope not in {Scope.SESSION, Scope.PRINCIPAL}:
            return
        problem = unkept(asked, grant)
        if grant.cover is not None:
            for call in asked.calls:
                problem = problem or refusal(grant.cover, call, await self.tool(call))
        if problem:
            raise GuardError(f"this answer cannot be kept: {problem}")

    async def approve(
        self, decision_id: str, at: float, grant: Grant = ONCE, by: Approver | None = None
    ) -> ApprovalRequest:
        """Grant the calls of one message, once; return what was asked.

        Args:
            decision_id: of the call that was asked about.
            at: now.
            grant: for how much it holds.
            by: who says so; None for a program that holds the key.

        Returns:
            what was asked; ``released`` is false where a second person has to approve it as well.

        Raises:
            GuardError: no such request waits, it was altered, it has expired, or it is not this
                person's to approve.
        """
        asked = await self._requests.read(decision_id)
        await self._check_kept(asked, grant)
        if grant.scope is Scope.ERRAND:
            # Ended grants leave, so that they take no room.
            held = [one for _, one in await self.errand_grants(at)]
            if sum(one.principal == asked.principal for one in held) >= GRANTS:
                raise GuardError("too many errand grants of this principal; revoke some")
        try:
            self._approvals.check(asked, at, by)
            if asked.people > 1 and by is not None:
                first = self._approvals.first(asked, by, at, grant)
                raw = await self._requests.keep_first(asked, first)
                if raw is None:
                    return replace(asked, first=by.name)
                grant = self._approvals.second(asked, raw, by, grant)
            writes = self._approvals.answer(asked, at, grant)
        except ValueError as error:
            raise GuardError(str(error)) from error
        # Taken before the grants are written: of two answers that race, one finds the request.
        await self._requests.take(asked, granted=True)
        await self._store.note(Identity("", "", tenant=self._tenant), writes)
        await self._requests.tell(asked, granted=True)
        return replace(asked, released=True)


UNMAPPED: Final = "tool_unmapped"
"""Reason code of a call of an unmapped tool."""


def tool_of(pin: Pin | None) -> ListedTool | None:
    """Return a tool as its pin has it; None where its definition is not kept."""
    try:
        found = json.loads(pin.text) if pin is not None else None
    except ValueError:
        return None
    if pin is None or not isinstance(found, dict):
        return None
    schema, annotations = found.get("inputSchema"), found.get("annotations")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return ListedTool(
        pin.tool,
        properties if isinstance(properties, dict) else {},
        annotations if isinstance(annotations, dict) else {},
        pin.digests[0],
    )


def refusal(cover: Cover, call: AskedCall, tool: ListedTool | None) -> str:
    """Return why an answer for a tool cannot be kept; empty where it can."""
    if UNMAPPED not in call.reasons:
        return f"the policy maps `{call.tool}`; change its mapping instead"
    if tool is None or call.definition:
        return f"no approved definition of `{call.tool}` is pinned, so that no change revokes it"
    action, reads = suggested_action(tool.name, tool.annotations), cover is Cover.READS
    addressed = (name for name, schema in tool.properties.items() if is_addressed(name, schema))
    named = next((name for name in addressed if repr(name) in call.outline), "")
    destroys = tool.annotations.get("destructiveHint") is True
    writes = destroys or tool.annotations.get("readOnlyHint") is False
    problems = (
        (not reads and action in NEVER, f"`{call.tool}` looks like {action}; map it in the policy"),
        (reads and writes, f"the server says that `{call.tool}` does not only read"),
        (reads and action is not None, f"`{call.tool}` looks like {action}: it does not only read"),
        (reads and bool(named), f"argument `{named}` of `{call.tool}` can name who receives"),
        (reads and bool(call.receivers), f"this call of `{call.tool}` reaches somebody"),
    )
    return next((problem for is_so, problem in problems if is_so), "")


def unkept(asked: ApprovalRequest, grant: Grant) -> str:
    """Return why a remembered answer would be kept nowhere; empty where it is kept."""
    for call in asked.calls:
        one = len(asked.calls) == 1 and asked.people <= 1
        if grant.limit and not (one and call.action == "pay"):
            return f"`{call.tool}` is not one payment that one person approves; leave the limit out"
        if grant.cover is None and UNMAPPED in call.reasons:
            return (
                f"no mapping claims `{call.tool}`: its recipients alone cannot be remembered; "
                "answer for the tool (--tool, --read-only), map it, or approve it once"
            )
        if grant.cover is None and not (grant.folders or call.receivers or call.change):
            instead = "the directory (--directory)" if call.folders else "approve it once"
            return f"`{call.tool}` has no recipient to remember; {instead}"
    return ""
