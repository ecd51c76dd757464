"""Acts on approvals: answer, remember, revoke, quarantine, pauses, break-glasses, tool pins.

The audit line of an act is written before the act takes effect, and another one if it fails.

Requests for approval and remembered answers as JSON values for console, API and commands.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from guard.core.errors import GuardError
from guard.core.tool_answers import Cover
from guard.memory.pins import Pin, Pins
from guard.operations.deployment import Body, ConsoleMetrics, Deployment, HexText, OfTenant, Person
from guard.operations.incidents import Given, IncidentOperator
from guard.operations.labels import UNMAPPED, LabelOperator, Remembered
from guard.policy.proposal import mapping_text
from guard.provenance.approvals import ApprovalRequest, Approvals, Grant, Scope
from guard.provenance.principal_status import BreakGlass, Pause
from guard.provenance.questions import Answer, deed, questioned, receiver_reason
from guard.store.pin_records import PinOperator
from guard.store.principal_status import PrincipalStatusOperator
from guard.store.trials import RUNNING, TrialStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.model import Json, Role


EVENT: Final = "guard.approval"
EVENT_PIN: Final = "guard.tool_definition_approved"
EVENT_FINDING: Final = "guard.finding"
EVENT_INCIDENT: Final = "guard.incident"
EVENT_BREAK_GLASS: Final = "guard.break_glass"
_COVERS: Final = {Answer.TOOL: Cover.KINDS, Answer.READ_ONLY: Cover.READS}
_UNTRUSTED: Final = frozenset({"tainted", "unknown", "remembered"})


class Decided(Body):
    """Answer with its options."""

    answer: Answer
    scope: Scope = Scope.PRINCIPAL
    """Scope of a remembered answer; ``session`` extends an errand grant to the session."""
    seconds: int = Field(default=0, ge=0)
    """Duration of a remembered answer; 0 for the policy's maximum."""
    limit: str = Field(default="", pattern=r"^(\d{1,12}(\.\d{1,6})?)?$")
    """Highest amount of a remembered payment; empty for the amount of this one."""

    @property
    def denies(self) -> bool:
        """True if nothing is released."""
        return self.answer in {Answer.DENY, Answer.QUARANTINE}

    def grant(self, asked: ApprovalRequest, at: float, by: str = "") -> Grant:
        """Return the grant that the answer gives."""
        ends = at + min(self.seconds or asked.remembered_for, asked.remembered_for)
        if self.answer is Answer.ERRAND:
            whole = self.scope is Scope.SESSION
            return Grant(Scope.ERRAND, ends, by, whole_session=whole)
        scope = self.scope if self.scope is Scope.SESSION else Scope.PRINCIPAL
        cover = _COVERS.get(self.answer)
        if cover is not None:
            return Grant(scope, ends, by, cover=cover)
        if self.answer is Answer.DIRECTORY:
            if asked.people > 1 or not all(call.folders for call in asked.calls):
                raise GuardError("this answer cannot be kept: no directory covers this call")
            folders = tuple(one for call in asked.calls for one in call.folders)
            return Grant(scope, ends, by, folders=folders)
        if self.answer is not Answer.REMEMBER or self.scope in {Scope.CALL, Scope.ERRAND}:
            return Grant(by=by)
        return Grant(self.scope, ends, by, limit=self.limit)


class Revocation(OfTenant):
    """Remembered answer that is revoked."""

    mark: HexText


class OfPrincipal(OfTenant):
    """Principal whose pause or break-glass ends."""

    principal: str = ""


class Relaxation(OfTenant):
    """Break-glass that a person asks for."""

    principal: str = Field(min_length=1)
    tool: str = ""
    """The one tool; empty for every tool."""
    seconds: int = Field(ge=1, le=86400)
    why: str = Field(min_length=3, max_length=500)


class Opening(OfTenant):
    """Break-glass that the second person opens."""

    id: str


class Definition(OfTenant):
    """Changed definition that is accepted."""

    upstream: str
    tool: str
    digest: str = Field(min_length=1)
    """Prefix of the digest of the definition that the person looked at."""


@dataclass(frozen=True, slots=True)
class PrincipalStatuses:
    """Pauses and break-glasses, each with its tenant."""

    pauses: list[tuple[str, Pause]]
    open: list[tuple[str, BreakGlass]]
    asked: list[tuple[str, BreakGlass]]
    """Break-glasses that wait for a second person."""

    def document(self) -> dict[str, Any]:
        """Return them as JSON values."""
        return {
            name: [{"tenant": tenant, **asdict(one)} for tenant, one in getattr(self, name)]
            for name in ("pauses", "open", "asked")
        }


class ApprovalActions:
    """Approvals of one deployment, and what persons do with them.

    Args:
        deployment: its state, key, audit log and policy.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.metrics = ConsoleMetrics()

    def _labels(self, tenant: str) -> LabelOperator:
        of = self.deployment
        return LabelOperator(of.store, of.seal, of.limits, tenant)

    def _pins(self, tenant: str) -> PinOperator:
        return PinOperator(self.deployment.store, Pins(self.deployment.seal), tenant)

    def _status_of(self, tenant: str) -> PrincipalStatusOperator:
        return PrincipalStatusOperator(self.deployment.store, self.deployment.seal, tenant)

    # --- requests --------------------------------------------------------------------------------

    async def waiting(self, tenants: Sequence[str]) -> list[ApprovalRequest]:
        """Return the requests that wait for an answer, the oldest first."""
        found = [one for tenant in tenants for one in await self._labels(tenant).waiting()]
        at = self.deployment.now()
        return sorted((one for one in found if one.expires > at), key=lambda one: one.at)

    async def asked(self, tenant: str, decision: str) -> ApprovalRequest:
        """Return a request with the untrusted text and earlier sends.

        Raises:
            GuardError: no request waits under this id.
        """
        return await self._labels(tenant).asked(decision)

    async def mapping(
        self, tenant: str, asked: ApprovalRequest, role: Role | None = None
    ) -> list[tuple[str, str]]:
        """Return lines that map the unmapped tools of a request, each with a test of them."""
        tools = [
            (call.upstream, await self._labels(tenant).tool(call))
            for call in asked.calls
            if UNMAPPED in call.reasons
        ]
        return [mapping_text(upstream, tool, role) for upstream, tool in tools if tool is not None]

    async def answer(
        self, person: Person, tenant: str, decision: str, given: Decided
    ) -> ApprovalRequest:
        """Answer a request.

        Raises:
            GuardError: it no longer waits, was asked under another policy, or is not this
                person's to answer; nothing was released.
        """
        operator, at = self._labels(tenant), self.deployment.now()
        asked = await operator.asked(decision)
        if not given.denies:
            self._check(person, asked, at, await self._candidate())
        fields = _recorded(person, asked, given, at)
        event = self.deployment.audit.event
        event(EVENT, fields)
        try:
            if given.denies:
                await operator.deny(decision)
            else:
                grant = given.grant(asked, at, person.name)
                asked = await operator.approve(decision, at, grant, person.approver)
                if asked.people > 1:
                    both = "granted" if asked.released else "first of two"
                    event(EVENT, {**fields, "answer": both, "first": asked.first})
        except GuardError as error:
            event(EVENT, {**fields, "answer": "failed", "error": str(error)[:200]})
            self.metrics.answers.labels("failed").inc()
            raise
        self._count(asked, given, at)
        if given.answer is Answer.QUARANTINE:
            await self._quarantine(person, tenant, asked, at)
        return asked

    def _count(self, asked: ApprovalRequest, given: Decided, at: float) -> None:
        released = "granted" if asked.released else "approved"
        self.metrics.answers.labels("denied" if given.denies else released).inc()
        if asked.released:
            self.metrics.approval_seconds.observe(max(0.0, at - asked.at))

    async def of_errand(self, tenant: str, asked: ApprovalRequest) -> list[str]:
        """Return the other requests of an errand that one answer may include.

        A tainted recipient is never included: a person selects it.
        """
        waiting = [] if not asked.errand else await self.waiting([tenant])
        groups = grouped_requests(waiting)
        group = next((g for g in groups if asked.decision in {one.decision for one in g}), [])
        return [one.decision for one in group if not one.tainted]

    async def _candidate(self) -> str:
        """Return the digest of the policy on trial that decides for anybody; empty for none."""
        record, _ = await TrialStore(self.deployment.store, self.deployment.seal).read()
        if record is None or record.state != RUNNING or not (record.share or record.principals):
            return ""
        return record.candidate

    def _check(self, person: Person, asked: ApprovalRequest, at: float, candidate: str) -> None:
        """Refuse, before the audit line, an answer that the store would refuse."""
        policy = self.deployment.policy()
        if policy is not None and asked.policy not in {policy.digest, candidate}:
            raise GuardError(
                "the policy has changed since: deny this, and have the agent ask again"
            )
        try:
            Approvals.check(asked, at, person.approver)
        except ValueError as error:
            raise GuardError(str(error)) from error

    async def _quarantine(
        self, person: Person, tenant: str, asked: ApprovalRequest, at: float
    ) -> None:
        """Open an incident from the untrusted values of a request, and contain it.

        Raises:
            GuardError: no receiver is untrusted; the request stays denied.
        """
        receivers = [one for call in asked.calls for one in call.receivers]
        named = [one.receiver for one in receivers if one.rung in _UNTRUSTED]
        if not named:
            raise GuardError("denied; no receiver came from text that can be quarantined")
        of = self.deployment
        operator = IncidentOperator(of.store, of.seal, tenant, of.limits)
        note = f"asked about in decision {asked.decision}"
        for value in dict.fromkeys(named):
            incident = await operator.open(
                Given(value=value), at, person.name, note, two_people=self.needs_two()
            )
            act: dict[str, Json] = {"incident": incident.id, **person.fields()}
            of.audit.event(EVENT_INCIDENT, {**act, "act": "open"})
            of.audit.event(EVENT_INCIDENT, {**act, "act": "contain"})
            await operator.contain(incident.id, at, person.name)

    def needs_two(self) -> bool:
        """Return whether two persons are needed to release or write; also if no policy is read."""
        try:
            policy = self.deployment.policy()
        except GuardError:
            return True
        return policy is not None and policy.approvals.incidents

    # --- remembered receivers and tool definitions -----------------------------------------------

    async def remembered(self, tenants: Sequence[str]) -> list[Remembered]:
        """Return every remembered answer, the newest first."""
        labels = [self._labels(tenant) for tenant in tenants]
        found = [one for of in labels for one in await of.remembered(self.deployment.now())]
        return sorted(found, key=lambda one: -one.at)

    async def revoke(self, person: Person, given: Revocation) -> dict[str, Json]:
        """Revoke a remembered answer.

        Raises:
            GuardError: no answer has this mark.
        """
        wanted = bytes.fromhex(given.mark)
        with self.deployment.recorded(EVENT, person, answer="revoked", mark=given.mark):
            if not wanted or not await self._labels(given.tenant).revoke_remembered(wanted):
                raise GuardError("no answer is remembered under this mark; it may have ended")
        self.metrics.answers.labels("revoked").inc()
        return {"revoked": given.mark}

    async def pins(self, tenants: Sequence[str]) -> list[tuple[str, Pin | None]]:
        """Return every pin and every changed definition, each with its tenant."""
        return [(t, pin) for t in tenants async for pin in self._pins(t).listed()]

    async def compared(self, tenant: str, upstream: str, tool: str) -> tuple[Pin | None, Pin]:
        """Return the pin of a tool and the changed definition that waits.

        Raises:
            GuardError: no changed definition waits.
        """
        return await self._pins(tenant).compared(upstream, tool)

    async def accept(self, person: Person, given: Definition) -> dict[str, Any]:
        """Pin the changed definition that the person looked at; return it.

        Raises:
            GuardError: the definition has changed again.
        """
        fields: dict[str, Json] = given.model_dump(exclude={"tenant"})
        self.deployment.audit.event(EVENT_PIN, {**fields, **person.fields()})
        names = given.upstream, given.tool, given.digest
        approved = await self._pins(given.tenant).approve(*names, self.deployment.now())
        return {"approved": asdict(approved)}

    # --- principals ------------------------------------------------------------------------------

    async def standing(self, tenants: Sequence[str]) -> PrincipalStatuses:
        """Return the pauses, and the break-glasses that are open or wait for a second person."""
        found, at = PrincipalStatuses([], [], []), self.deployment.now()
        for tenant in tenants:
            operator = self._status_of(tenant)
            pauses, opened = await operator.in_force(at)
            found.pauses.extend((tenant, one) for one in pauses)
            found.open.extend((tenant, one) for one in opened)
            found.asked.extend((tenant, one) for one in await operator.asked_glasses(at))
        return found

    async def resume(self, person: Person, given: OfPrincipal) -> dict[str, Json]:
        """End the pause of a principal.

        Raises:
            GuardError: it is not paused, or it is this person's own.
        """
        if person.approver.is_principal(given.principal):
            raise GuardError(f"`{person.name}` cannot end the pause of an agent in the same name")
        fields: dict[str, Json] = {"answer": "resumed", **given.model_dump(), **person.fields()}
        self.deployment.audit.event(EVENT, fields)
        if not await self._status_of(given.tenant).resume(given.principal):
            raise GuardError("this principal is not paused; it may have ended")
        self.metrics.answers.labels("resumed").inc()
        return {"resumed": given.principal}

    async def ask_glass(self, person: Person, given: Relaxation) -> dict[str, Any]:
        """Ask for a break-glass, which another person has to open.

        Raises:
            GuardError: the policy has none, or it is not this person's to ask for.
        """
        seconds = min(given.seconds, self._longest())
        glass = BreakGlass("", given.principal, given.tool, given.why, seconds, 0, 0, "", "", "")
        operator, at = self._status_of(given.tenant), self.deployment.now()
        fields: dict[str, Json] = {"act": "asked", **given.model_dump(), "seconds": seconds}
        with self.deployment.recorded(EVENT_BREAK_GLASS, person, "act", **fields):
            asked = await operator.ask_glass(glass, person.approver, at)
        return {"asked": asdict(asked)}

    async def open_glass(self, person: Person, given: Opening) -> dict[str, Any]:
        """Open a break-glass that another person asked for.

        Raises:
            GuardError: none waits, or this person cannot be the second.
        """
        operator, at = self._status_of(given.tenant), self.deployment.now()
        asked = await operator.asked_glasses(at)
        glass = next((one for one in asked if one.id == given.id), None)
        if glass is None:
            raise GuardError("no break-glass waits under this id; it may have expired")
        longest = self._longest()
        named = {name: getattr(glass, name) for name in ("principal", "tool", "first", "why")}
        fields: dict[str, Json] = {"act": "opened", **given.model_dump(), **named}
        with self.deployment.recorded(EVENT_BREAK_GLASS, person, "act", **fields):
            opened = await operator.open_glass(given.id, person.approver, at, longest)
        return {"opened": asdict(opened)}

    async def close_glass(self, person: Person, given: OfPrincipal) -> dict[str, Json]:
        """Close a break-glass before its end.

        Raises:
            GuardError: no break-glass is open for this principal.
        """
        fields: dict[str, Json] = {"act": "closed", **given.model_dump()}
        with self.deployment.recorded(EVENT_BREAK_GLASS, person, "act", **fields):
            if not await self._status_of(given.tenant).close_glass(given.principal):
                raise GuardError("none is open for this principal; it may have ended")
        return {"closed": given.principal}

    def _longest(self) -> int:
        """Return the maximum duration of a break-glass, in seconds.

        Raises:
            GuardError: the policy has no break-glass, or is not known here.
        """
        policy = self.deployment.policy()
        if policy is None or not policy.approvals.break_glass:
            msg = "the policy has no break-glass (`approvals: {break_glass: 30m}`)"
            raise GuardError(msg + ("; give the console --policy" if policy is None else ""))
        return policy.approvals.break_glass


def _recorded(person: Person, asked: ApprovalRequest, given: Decided, at: float) -> dict[str, Json]:
    approves = "granted" if asked.people == 1 else "approved"
    return {
        "answer": "denied" if given.denies else approves,
        "how": given.answer.value,
        "decision_id": asked.decision,
        "principal": asked.principal,
        "tenant": asked.tenant,
        "tool": ", ".join(call.tool for call in asked.calls),
        **person.fields(),
        "waited": round(max(0.0, at - asked.at), 3),
    }


def grouped_requests(requests: Sequence[ApprovalRequest]) -> list[list[ApprovalRequest]]:
    """Return requests in groups, the oldest first: those of one errand are one question.

    Without an errand, requests that differ only in their arguments are one group.
    """
    groups: dict[Any, list[ApprovalRequest]] = {}
    for one in requests:
        calls = tuple(
            replace(call, decision="", digest="", excerpt="", object="") for call in one.calls
        )
        receivers = [(r.kind, r.receiver, r.rung) for call in one.calls for r in call.receivers]
        calls = tuple(replace(call, receivers=()) for call in calls)
        who = (one.tenant, one.principal, one.people)
        # Of different policies or numbers of people, no answer fits all.
        errand = (*who, one.session, one.errand, one.policy)
        key = errand if one.errand else (*who, calls, tuple(receivers))
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def request_document(asked: ApprovalRequest) -> dict[str, Any]:
    """Return a request with its question and the reason of each recipient."""
    document = {
        **asdict(asked),
        "decision": asked.decision,
        "tainted": asked.tainted,
        "question": questioned([asked]).document(),
    }
    for call, shown in zip(asked.calls, document["calls"], strict=True):
        shown["deed"] = deed(call)
        for one, receiver in zip(call.receivers, shown["receivers"], strict=True):
            receiver["reason"] = receiver_reason(one)
    return document


def errand_documents(groups: Sequence[Sequence[ApprovalRequest]]) -> list[dict[str, Any]]:
    """Return one question per group of requests, with the decisions that it is about.

    Requests with a tainted recipient are listed apart: no answer to the group includes them.
    """
    found: list[dict[str, Any]] = []
    for number, group in enumerate(groups):
        plain = [one for one in group if not one.tainted] or [group[0]]
        apart = [one for one in group if one not in plain]
        found.append(
            {
                "group": number,
                "question": questioned(plain).document(),
                "decisions": [one.decision for one in plain],
                "apart": [one.decision for one in apart],
            }
        )
    return found
