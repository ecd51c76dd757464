"""What people do on the console: answer requests, revoke, accept definitions, quarantine a source.

Each act is recorded in the audit log before it takes effect, and once more where it then fails.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.redis.incidents import Given, IncidentOperator
from guard.adapters.redis.operators import LabelOperator, PinOperator
from guard.core.errors import GuardError, InputError
from guard.core.policy import StateLimits
from guard.provenance.approvals import Approvals, Grant, Scope
from guard.tool_pins.pins import Pins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.adapters.redis.store import RedisSessionStore
    from guard.console.access import Person
    from guard.core.model import Json
    from guard.core.policy import Policy
    from guard.provenance.approvals import ApprovalRequest
    from guard.provenance.established import Established
    from guard.provenance.seal import Seal
    from guard.tool_pins.pins import Pin

EVENT: Final = "guard.approval"
EVENT_PIN: Final = "guard.tool_definition_approved"
EVENT_INCIDENT: Final = "guard.incident"
AT_ONCE: Final = 50
"""Requests that one click answers at most."""


class Answer(StrEnum):
    """A person's answer to a request."""

    ONCE = "once"
    """This very call, once."""
    REMEMBER = "remember"
    """Besides, its receivers for this principal and tool."""
    DENY = "deny"
    QUARANTINE = "quarantine"
    """Deny, open an incident from what named the receivers, and withhold what it reached."""


@dataclass(frozen=True, slots=True)
class Decided:
    """An answer as a person gave it."""

    answer: Answer
    scope: Scope = Scope.PRINCIPAL
    seconds: int = 0
    """For how long is remembered; 0: as long as the policy lets it be."""


class Desk:
    """Acts of people on the state of one deployment.

    Args:
        store: connected.
        seal: the deployment's key.
        audit: takes a line per act.
        policy: returns the policy in force, None where this console was given none.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        store: RedisSessionStore,
        seal: Seal,
        audit: AuditLogFile | NoAuditLog,
        policy: Callable[[], Policy | None] = lambda: None,
        now: Callable[[], float] = time.time,  # noqa: TID251  (the edge where time comes in)
    ) -> None:
        self._store = store
        self._seal = seal
        self._audit = audit
        self._policy = policy
        self._now = now

    def _labels(self, tenant: str) -> LabelOperator:
        return LabelOperator(self._store, self._seal, self._limits or StateLimits(), tenant)

    async def waiting(self, tenants: Sequence[str]) -> list[ApprovalRequest]:
        """Return the requests that wait for an answer, the oldest first."""
        found = [one for tenant in tenants for one in await self._labels(tenant).waiting()]
        at = self._now()
        return sorted((one for one in found if one.expires > at), key=lambda one: one.at)

    async def asked(self, tenant: str, decision: str) -> ApprovalRequest:
        """Return a request with the untrusted text and earlier sends.

        Raises:
            GuardError: none waits under this id.
        """
        return await self._labels(tenant).asked(decision)

    async def established(self, tenants: Sequence[str]) -> list[tuple[str, Established]]:
        """Return the receivers that may be sent to again, each with its tenant."""
        return [(t, one) for t in tenants for one in await self._labels(t).established()]

    async def pins(self, tenants: Sequence[str]) -> list[tuple[str, Pin | None]]:
        """Return every pin and every changed definition, each with its tenant."""
        found: list[tuple[str, Pin | None]] = []
        for tenant in tenants:
            operator = PinOperator(self._store, Pins(self._seal), tenant)
            found += [(tenant, pin) async for pin in operator.listed()]
        return found

    async def answer(
        self, person: Person, tenant: str, decision: str, given: Decided
    ) -> ApprovalRequest:
        """Answer a request.

        Raises:
            GuardError: it no longer waits, was asked under another policy, or is not this
                person's to answer; nothing was released.
        """
        operator = self._labels(tenant)
        asked = await operator.asked(decision)
        at = self._now()
        denies = given.answer in {Answer.DENY, Answer.QUARANTINE}
        if not denies:
            self._check(person, asked, at)
        fields = self._recorded(person, asked, given, at)
        self._audit.event(EVENT, fields)
        try:
            if denies:
                await operator.deny(decision)
            else:
                grant = _grant(given, asked, at)
                asked = await operator.approve(decision, at, grant, person.approver)
                if asked.people > 1:
                    both = "granted" if asked.released else "first of two"
                    self._audit.event(EVENT, {**fields, "answer": both, "first": asked.first})
        except GuardError as error:
            self._audit.event(EVENT, {**fields, "answer": "failed", "error": str(error)[:200]})
            raise
        if given.answer is Answer.QUARANTINE:
            await self._quarantine(person, tenant, asked, at)
        return asked

    def _check(self, person: Person, asked: ApprovalRequest, at: float) -> None:
        """Refuse, before it is on record, what the store would refuse."""
        policy = self._policy()
        if policy is not None and policy.digest != asked.policy:
            msg = "the policy has changed since: deny this, and have the agent ask again"
            raise GuardError(msg)
        try:
            Approvals.check(asked, at, person.approver)
        except ValueError as error:
            raise GuardError(str(error)) from error

    @staticmethod
    def _recorded(
        person: Person, asked: ApprovalRequest, given: Decided, at: float
    ) -> dict[str, Json]:
        denies = given.answer in {Answer.DENY, Answer.QUARANTINE}
        approves = "granted" if asked.people == 1 else "approved"
        return {
            "answer": "denied" if denies else approves,
            "how": given.answer.value,
            "decision_id": asked.decision,
            "principal": asked.principal,
            "tenant": asked.tenant,
            "tool": ", ".join(call.tool for call in asked.calls),
            "by": person.name,
            "realm": person.realm,
            "waited": round(max(0.0, at - asked.at), 3),
        }

    async def _quarantine(
        self, person: Person, tenant: str, asked: ApprovalRequest, at: float
    ) -> None:
        """Open an incident from what untrusted text named, and contain it.

        Raises:
            GuardError: nothing on record is named by it; the request stays denied.
        """
        named = [
            one.receiver
            for call in asked.calls
            for one in call.receivers
            if one.rung in {"tainted", "unknown", "remembered"}
        ]
        if not named:
            raise GuardError("denied; no receiver came from text that can be quarantined")
        operator = IncidentOperator(self._store, self._seal, tenant, self._limits)
        note = f"asked about in decision {asked.decision}"
        for value in dict.fromkeys(named):
            incident = await operator.open(Given(value=value), at, person.name, note)
            act: dict[str, Json] = {"incident": incident.id, "by": person.name}
            self._audit.event(EVENT_INCIDENT, {**act, "act": "open"})
            self._audit.event(EVENT_INCIDENT, {**act, "act": "contain"})
            await operator.contain(incident.id, at, person.name)

    @property
    def _limits(self) -> StateLimits | None:
        # Files with a problem keep nobody from looking, and from denying.
        with suppress(GuardError):
            policy = self._policy()
            return policy.limits if policy is not None else None
        return None

    async def revoke(self, person: Person, tenant: str, mark: str) -> None:
        """Take an established receiver away.

        Raises:
            GuardError: none has this mark.
        """
        try:
            wanted = bytes.fromhex(mark)
        except ValueError as error:
            raise InputError("a mark is hexadecimal") from error
        fields: dict[str, Json] = {"answer": "revoked", "mark": mark, "by": person.name}
        self._audit.event(EVENT, fields)
        if not wanted or not await self._labels(tenant).revoke(wanted):
            raise GuardError("no receiver is established under this mark; it may have ended")

    async def compared(self, tenant: str, upstream: str, tool: str) -> tuple[Pin | None, Pin]:
        """Return the pin of a tool and the changed definition that waits.

        Raises:
            GuardError: none waits.
        """
        operator = PinOperator(self._store, Pins(self._seal), tenant)
        return await operator.compared(upstream, tool)

    async def accept(
        self, person: Person, tenant: str, upstream: str, tool: str, digest: str
    ) -> None:
        """Pin a changed definition, the one that the person looked at.

        Raises:
            GuardError: it is another one by now.
        """
        if not digest:
            raise InputError("say which definition: its digest")
        fields: dict[str, Json] = {"upstream": upstream, "tool": tool, "digest": digest}
        self._audit.event(EVENT_PIN, {**fields, "by": person.name})
        operator = PinOperator(self._store, Pins(self._seal), tenant)
        await operator.approve(upstream, tool, digest, self._now())

    async def reachable(self) -> str:
        """Return why the state cannot be reached, empty where it can."""
        try:
            await self._store.client.execute("PING")
        except GuardError as error:
            return str(error) or type(error).__name__
        return ""


def _grant(given: Decided, asked: ApprovalRequest, at: float) -> Grant:
    if given.answer is not Answer.REMEMBER or given.scope is Scope.CALL:
        return Grant()
    seconds = min(given.seconds or asked.remembered_for, asked.remembered_for)
    return Grant(given.scope, at + seconds)


def like(requests: Sequence[ApprovalRequest]) -> list[list[ApprovalRequest]]:
    """Return requests in groups of one principal, tool and receivers, each oldest first."""
    groups: dict[Any, list[ApprovalRequest]] = {}
    for one in requests:
        calls = tuple(
            (call.server, call.tool, tuple((r.kind, r.receiver) for r in call.receivers))
            for call in one.calls
        )
        groups.setdefault((one.tenant, one.principal, calls), []).append(one)
    return list(groups.values())
