"""Answers to requests for approval: approve, deny, and show the context of a request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.core.labels import Channel
from guard.core.model import Identity
from guard.memory.pins import Pins
from guard.operations.tool_answers import refusal, tool_of, unkept
from guard.provenance.approvals import ApprovalRequest, Approvals, Approver, AskedCall, Grant, Scope
from guard.provenance.errands import GRANTS
from guard.store.approval_requests import ApprovalRequests
from guard.store.label_records import LabelRecords
from guard.store.pin_records import PinOperator

if TYPE_CHECKING:
    from guard.core.policy import StateLimits
    from guard.policy.proposal import ListedTool
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
