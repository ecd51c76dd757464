"""What people do on the console: answer requests, revoke, accept definitions, quarantine a source.

Each act is recorded in the audit log before it takes effect, and once more where it then fails.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from guard.adapters.redis.incidents import Given, IncidentOperator
from guard.adapters.redis.operators import LabelOperator, PinOperator
from guard.adapters.redis.principal_status import PrincipalStatusOperator
from guard.adapters.redis.trials import RUNNING, TrialStore
from guard.console.console_metrics import ConsoleMetrics
from guard.console.routes import by_whom
from guard.core.errors import GuardError, InputError
from guard.core.policy import StateLimits
from guard.provenance.approvals import Approvals, Grant, Scope
from guard.provenance.principal_status import BreakGlass
from guard.tool_pins.pins import Pins

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.adapters.redis.store import RedisSessionStore
    from guard.console.access import Person
    from guard.core.model import Json
    from guard.core.policy import Policy
    from guard.provenance.approvals import ApprovalRequest
    from guard.provenance.established import Established
    from guard.provenance.principal_status import Pause
    from guard.provenance.seal import Seal
    from guard.tool_pins.pins import Pin

ResultT = TypeVar("ResultT")
EVENT: Final = "guard.approval"
EVENT_PIN: Final = "guard.tool_definition_approved"
EVENT_INCIDENT: Final = "guard.incident"
EVENT_SIGN_IN: Final = "guard.console_sign_in"
EVENT_BREAK_GLASS: Final = "guard.break_glass"
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


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A break-glass as a person asks for it."""

    principal: str
    tool: str
    """The one tool that it is about; empty for every tool."""
    seconds: int
    why: str


@dataclass(frozen=True, slots=True)
class PrincipalStatuses:
    """What is on record of principals as a whole, each with its tenant."""

    pauses: list[tuple[str, Pause]]
    open: list[tuple[str, BreakGlass]]
    asked: list[tuple[str, BreakGlass]]
    """Break-glasses for which a second person is missing."""


class OperatorActions:
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
        self.metrics = ConsoleMetrics()

    def _labels(self, tenant: str) -> LabelOperator:
        return LabelOperator(self._store, self._seal, self.limits or StateLimits(), tenant)

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
            self._check(person, asked, at, await self._candidate())
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
            self.metrics.answers.labels("failed").inc()
            raise
        self.metrics.answers.labels(
            "denied" if denies else "granted" if asked.released else "approved"
        ).inc()
        if asked.released:
            self.metrics.approval_seconds.observe(max(0.0, at - asked.at))
        if given.answer is Answer.QUARANTINE:
            await self._quarantine(person, tenant, asked, at)
        return asked

    async def _candidate(self) -> str:
        """Return the digest of the policy on trial that decides for somebody; empty where none."""
        record, _ = await TrialStore(self._store, self._seal).read()
        if record is None or record.state != RUNNING or not (record.share or record.principals):
            return ""
        return record.candidate

    def _check(
        self, person: Person, asked: ApprovalRequest, at: float, candidate: str = ""
    ) -> None:
        """Refuse, before it is on record, what the store would refuse."""
        policy = self._policy()
        if policy is not None and asked.policy not in {policy.digest, candidate}:
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
            **by_whom(person),
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
        operator = IncidentOperator(self._store, self._seal, tenant, self.limits)
        note = f"asked about in decision {asked.decision}"
        two = await asyncio.to_thread(self.needs_two)
        for value in dict.fromkeys(named):
            incident = await operator.open(
                Given(value=value), at, person.name, note, two_people=two
            )
            act: dict[str, Json] = {"incident": incident.id, **by_whom(person)}
            self._audit.event(EVENT_INCIDENT, {**act, "act": "open"})
            self._audit.event(EVENT_INCIDENT, {**act, "act": "contain"})
            await operator.contain(incident.id, at, person.name)

    @property
    def limits(self) -> StateLimits | None:
        """Bounds of the policy in force, where it is known."""
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
        fields: dict[str, Json] = {"answer": "revoked", "mark": mark, **by_whom(person)}
        self._audit.event(EVENT, fields)
        if not wanted or not await self._labels(tenant).revoke(wanted):
            raise GuardError("no receiver is established under this mark; it may have ended")
        self.metrics.answers.labels("revoked").inc()

    async def standing(self, tenants: Sequence[str]) -> PrincipalStatuses:
        """Return who is paused, and which break-glasses are open or wait for a second person."""
        found, at = PrincipalStatuses([], [], []), self._now()
        for tenant in tenants:
            operator = self._status_of(tenant)
            pauses, opened = await operator.in_force(at)
            found.pauses.extend((tenant, one) for one in pauses)
            found.open.extend((tenant, one) for one in opened)
            found.asked.extend((tenant, one) for one in await operator.asked_glasses(at))
        return found

    async def resume(self, person: Person, tenant: str, principal: str) -> None:
        """End the pause of a principal.

        Raises:
            GuardError: it is not paused, or it is this person's own.
        """
        if person.approver.is_principal(principal):
            raise GuardError(f"`{person.name}` cannot end the pause of an agent in the same name")
        fields: dict[str, Json] = {"answer": "resumed", "principal": principal, "tenant": tenant}
        self._audit.event(EVENT, {**fields, **by_whom(person)})
        if not await self._status_of(tenant).resume(principal):
            raise GuardError("this principal is not paused; it may have ended")
        self.metrics.answers.labels("resumed").inc()

    async def ask_glass(self, person: Person, tenant: str, wanted: Relaxation) -> BreakGlass:
        """Ask for a break-glass, which another person has to open.

        Raises:
            GuardError: the policy has none, or it is not this person's to ask for.
        """
        seconds = min(wanted.seconds, self._longest())
        glass = BreakGlass("", wanted.principal, wanted.tool, wanted.why, seconds, 0, 0, "", "", "")
        return await self._break_glass(
            "asked",
            (person, tenant, wanted.principal),
            self._status_of(tenant).ask_glass(glass, person.approver, self._now()),
            {"tool": wanted.tool, "seconds": seconds, "why": wanted.why},
        )

    async def open_glass(self, person: Person, tenant: str, identifier: str) -> BreakGlass:
        """Open a break-glass that another person asked for.

        Raises:
            GuardError: none waits, or this person cannot be the second.
        """
        operator, at = self._status_of(tenant), self._now()
        asked = await operator.asked_glasses(at)
        glass = next((one for one in asked if one.id == identifier), None)
        if glass is None:
            raise GuardError("no break-glass waits under this id; it may have expired")
        return await self._break_glass(
            "opened",
            (person, tenant, glass.principal),
            operator.open_glass(identifier, person.approver, at, self._longest()),
            {"id": glass.id, "tool": glass.tool, "first": glass.first, "why": glass.why},
        )

    async def close_glass(self, person: Person, tenant: str, principal: str) -> None:
        """Close a break-glass before its end.

        Raises:
            GuardError: none is open for this principal.
        """
        operator = self._status_of(tenant)
        closed = await self._break_glass(
            "closed", (person, tenant, principal), operator.close_glass(principal), {}
        )
        if not closed:
            raise GuardError("none is open for this principal; it may have ended")

    async def _break_glass(
        self,
        act: str,
        who: tuple[Person, str, str],
        doing: Awaitable[ResultT],
        more: dict[str, Json],
    ) -> ResultT:
        """Record an act, then do it; record as well where it fails."""
        person, tenant, principal = who
        fields: dict[str, Json] = {"act": act, "tenant": tenant, "principal": principal, **more}
        fields |= by_whom(person)
        try:
            self._audit.event(EVENT_BREAK_GLASS, fields)
        except GuardError:
            doing.close()  # type: ignore[attr-defined]  # a coroutine that is not to run
            raise
        try:
            return await doing
        except GuardError as error:
            failed = {**fields, "act": "failed", "error": str(error)[:200]}
            self._audit.event(EVENT_BREAK_GLASS, failed)
            raise

    def _longest(self) -> int:
        """Return for how long a break-glass may be open, in seconds.

        Raises:
            GuardError: the policy has none, or is not known here.
        """
        policy = self._policy()
        if policy is None or not policy.approvals.break_glass:
            msg = "the policy has no break-glass (`approvals: {break_glass: 30m}`)"
            raise GuardError(msg + ("; give the console --policy" if policy is None else ""))
        return policy.approvals.break_glass

    def _status_of(self, tenant: str) -> PrincipalStatusOperator:
        return PrincipalStatusOperator(self._store, self._seal, tenant)

    async def compared(self, tenant: str, upstream: str, tool: str) -> tuple[Pin | None, Pin]:
        """Return the pin of a tool and the changed definition that waits.

        Raises:
            GuardError: none waits.
        """
        operator = PinOperator(self._store, Pins(self._seal), tenant)
        return await operator.compared(upstream, tool)

    async def accept(
        self, person: Person, tenant: str, upstream: str, tool: str, digest: str
    ) -> Pin:
        """Pin a changed definition, the one that the person looked at; return it.

        Raises:
            GuardError: it is another one by now.
        """
        if not digest:
            raise InputError("say which definition: its digest")
        fields: dict[str, Json] = {"upstream": upstream, "tool": tool, "digest": digest}
        self._audit.event(EVENT_PIN, {**fields, **by_whom(person)})
        operator = PinOperator(self._store, Pins(self._seal), tenant)
        return await operator.approve(upstream, tool, digest, self._now())

    def needs_two(self) -> bool:
        """Return whether two people are needed for what an incident gives back or writes.

        Also where the policy cannot be read.
        """
        try:
            policy = self._policy()
        except GuardError:
            return True
        return policy is not None and policy.approvals.incidents

    def kept(self) -> float:
        """Return before which time (seconds since the epoch) nothing is kept; 0: all is."""
        limits = self.limits
        return self._now() - limits.audit if limits is not None and limits.audit else 0.0

    def note_sign_in(self, outcome: str, person: Person | None, why: str = "") -> None:
        """Put on record that somebody signed in or out, or was refused.

        Raises:
            AuditError: it cannot be recorded; nobody is signed in then.
        """
        fields: dict[str, Json] = {"outcome": outcome, **(by_whom(person) if person else {})}
        self._audit.event(EVENT_SIGN_IN, {**fields, **({"why": why[:200]} if why else {})})

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


def grouped_requests(requests: Sequence[ApprovalRequest]) -> list[list[ApprovalRequest]]:
    """Return requests in groups, each oldest first, that differ in their arguments alone.

    Whoever answers the first of a group answers all of it, so the queue shows what each would send.
    """
    groups: dict[Any, list[ApprovalRequest]] = {}
    for one in requests:
        calls = tuple(replace(call, decision="", digest="", excerpt="") for call in one.calls)
        receivers = [(r.kind, r.receiver, r.rung) for call in one.calls for r in call.receivers]
        calls = tuple(replace(call, receivers=()) for call in calls)
        key = (one.tenant, one.principal, one.people, calls, tuple(receivers))
        groups.setdefault(key, []).append(one)
    return list(groups.values())
