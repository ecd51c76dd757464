"""The verdict on one call, before it is recorded: state, labels, detectors, PDP and memory gate."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from guard.core.calls import ClassifiedCall, TracedCall, untraced
from guard.core.errors import GuardError
from guard.core.labels import NO_QUERY
from guard.core.metrics import ACTION_TRIAL, ERRORS, FAIL_CLOSED
from guard.core.model import Integrity, Role, ToolCall
from guard.core.policy import Action, Policy, Reason, Situation, Verdict, blocked_for, decide
from guard.core.ports import Attempt
from guard.core.trajectory import Snapshot
from guard.extensions.propagation.recording import Spread
from guard.memory.pins import Pins, ToolOffers
from guard.pipeline.call_reading import CallQuestion, classified_at, read_call
from guard.pipeline.detection import NO_FINDINGS, Detection
from guard.pipeline.large_work import LargeCalls, is_large
from guard.pipeline.outcome import PendingCall, redact, with_remedies
from guard.pipeline.trial import (
    ACTION_CODES,
    ACTION_FACT,
    BASE,
    CANDIDATE,
    FAILED,
    ShadowCall,
    Trial,
    VerdictPair,
    verdict_pair,
)
from guard.provenance import errands
from guard.provenance.approvals import Approvals
from guard.provenance.principal_status import PrincipalStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from guard.pipeline.call_reading import CallReading, Findings
    from guard.pipeline.decision_log import DecisionParts
    from guard.provenance.tracing import Tracing

ResultT = TypeVar("ResultT")
RESOURCE_READS: Final = frozenset({"resources/read", "resources/subscribe"})
"""Requests of MCP that read what no tool names."""


class Queried(NamedTuple):
    """Authors of the label query of a call; each reads its part of the snapshot."""

    tracing: Tracing | None = None
    spread: Spread | None = None
    status: PrincipalStatus | None = None


class CallJudge:
    """Judge of single calls.

    Args:
        parts: of the guard.
        detection: detectors.
    """

    def __init__(self, parts: DecisionParts, detection: Detection) -> None:
        self._parts = parts
        self._detection = detection
        self._approvals = Approvals(parts.seal)
        self._pins = Pins(parts.seal)
        self.offers = ToolOffers()
        """Servers by the tools that they offer, as far as this process has seen their listings."""
        self.large = LargeCalls(
            parts.seal, parts.metrics, self._large_question, parts.threads.run, parts.processes
        )
        """Reads the calls of large messages, and refuses those that take too much work."""

    async def judge_all(self, calls: Sequence[ToolCall]) -> list[PendingCall]:
        """Return the verdicts on the calls of one message; one round trip to the store."""
        is_one = len(calls) == 1  # the common case: no task, no extra turn of the event loop
        large = is_large(calls[0].arguments if is_one else [dict(call.arguments) for call in calls])
        if is_one and not large:
            return [await self._judge(calls[0], self._parts.policies.policy, None)]
        policies: Sequence[Policy | None] = [self._parts.policies.policy] * len(calls)
        readings: Sequence[CallReading | Reason | None] = [None] * len(calls)
        if large:
            policies = [self._parts.policies.policy_for(call.identity) for call in calls]
            readings = await self.large.read(policies, calls)
        with self._parts.stores.sessions.together():
            return await _all(map(self._judge, calls, policies, readings))

    async def _judge(
        self, call: ToolCall, policy: Policy | None, reading: CallReading | Reason | None
    ) -> PendingCall:
        """Return the verdict on one call; a large one was read before, or is refused."""
        started = time.perf_counter()
        errors: list[str] = []
        if isinstance(reading, Reason):
            # It counts as attempted.
            unread = ClassifiedCall(call, Role.OTHER)
            await self._attempt(None, unread, errors)
            verdict = blocked_for(policy, reading, errors=tuple(errors))
            return PendingCall(untraced(unread), verdict, time.perf_counter() - started)
        shadow, is_large = None, reading is not None
        if self._parts.policies.trial is not None and policy is not None:
            base = self._parts.policies.policy or policy
            decides, shadow = await self._shadow(
                self._parts.policies.trial, base, call, is_large=is_large
            )
            # A large message was read under the policy that was in force then.
            policy = policy if is_large else decides
        if reading is None and policy is not None:
            reading = self.large.counted(read_call(self._parts.seal, self._question(policy, call)))
        if reading is None:
            classified, findings = ClassifiedCall(call, Role.OTHER), NO_FINDINGS
        else:
            classified, findings = reading.classified, reading.findings
            errors += reading.errors
        queried, snapshot = await self._attempt(
            policy, classified, errors, shadow, reading, is_large=is_large
        )
        known = policy, classified, queried, snapshot, errors, findings
        if is_large:
            traced, verdict = await self._parts.threads.run(self._decided, *known)
        else:
            traced, verdict = self._decided(*known)
        if shadow is not None:
            verdict = await self._compared(shadow, queried.status, verdict, is_large=is_large)
        if self._parts.memory is not None or (policy is not None and policy.index.remembers):
            verdict = await self._remembered(policy, traced, snapshot, queried, verdict)
        verdict = with_remedies(policy, traced, verdict)
        return PendingCall(traced, verdict, time.perf_counter() - started)

    async def _remembered(
        self,
        policy: Policy | None,
        traced: TracedCall,
        snapshot: Snapshot,
        queried: Queried,
        verdict: Verdict,
    ) -> Verdict:
        """Return the verdict after what memories have to say of a call."""
        classified = traced.classified
        if policy is not None and policy.index.replays and verdict.action is not Action.ALLOW:
            verdict = await self._parts.selections.records.explained(policy, traced, verdict)
        memory = self._parts.memory
        if memory is not None and (classified.memory_write is not None or memory.has_reads):
            verdict = await memory.judge(traced, snapshot, verdict)
        if queried.spread is not None and policy is not None:
            verdict = await self._uncontained(policy, queried.spread, traced, verdict)
        if policy is not None and policy.index.derives:
            verdict = await self._parts.selections.record_derivation(policy, traced, verdict)
        return verdict

    # --- classification --------------------------------------------------------------------------

    def claim(self, call: ToolCall) -> None:
        """Note that a call's server offers its tool, for callers that know it without a listing."""
        policy, place = self._parts.policies.policy, (call.server, call.upstream)
        # Unmapped names mean nothing, and a model could invent any number of them.
        if call.upstream and policy is not None and policy.mapping(call.tool, *place) is not None:
            self.offers.note(call.upstream, (call.tool,))

    def classified(self, policy: Policy, call: ToolCall) -> ClassifiedCall:
        """Return a call to its server as a policy classifies it."""
        return classified_at(self._question(policy, call))

    def _memory_read(self, policy: Policy, call: ToolCall, place: str) -> bool | None:
        """Return whether a read of a resource is one of a private memory; None of no memory.

        A server keeps a memory if a tool that it offers reads a declared store.
        """
        tools = (policy.mapping(name, call.server, call.upstream) for name in self.offers.at(place))
        reads = [
            tool.private
            for tool in tools
            if tool is not None
            and tool.store
            and tool.role in {Role.RECALL, Role.LIST}
            # A role that only trusted tools have would count as less than it is.
            and tool.source is Integrity.UNTRUSTED
        ]
        return any(reads) if reads else None

    def _question(self, policy: Policy, call: ToolCall) -> CallQuestion:
        """Return a call as it is read."""
        pin = self._pins.mark(call.upstream, call.tool) if call.upstream else None
        at = call.upstream, call.tool, policy.origins.get(call.tool, "")
        claim, place = self.offers.claim(*at), self.offers.place(*at)
        recall = self._memory_read(policy, call, place) if call.tool in RESOURCE_READS else None
        return CallQuestion(policy, call, claim, place, pin, recall)

    def _large_question(self, policy: Policy, call: ToolCall) -> CallQuestion:
        """Return a call of a large message, with the detectors that look at it in one go."""
        detectors = (
            detector
            for detector in self._detection.for_call(policy, call)
            if getattr(detector, "reads_arguments", False)
        )
        return self._question(policy, call)._replace(detectors=tuple(detectors))

    # --- state -----------------------------------------------------------------------------------

    async def _attempt(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        errors: list[str],
        shadow: ShadowCall | None = None,
        reading: CallReading | None = None,
        *,
        is_large: bool = False,
    ) -> tuple[Queried, Snapshot]:
        """Append a call as attempted; return the authors of its query, and the state before it.

        Never raises: without state nothing is traced, and the error that is noted blocks the call.
        """
        call, parts = classified.call, self._parts
        stores, identity = parts.stores, call.identity
        owner = identity.tenant, identity.principal
        marks = 0
        started = time.perf_counter()
        tracing, spread, status, query, grant = None, None, None, NO_QUERY, ""
        try:
            if stores.marks.pending[0]:
                # Before the wait: two parallel attempts must not both carry the same marks.
                marks = stores.marks.take(owner)
            if policy is not None and reading is not None:
                tracing, query, grant = reading.tracing, reading.query or NO_QUERY, reading.grant
                if policy.propagation is not None:
                    spread = await parts.threads.run_if(
                        is_large, Spread.of, parts.seal, policy, classified
                    )
                    query = query if spread is None else spread.extended(query)
                if policy.index.has_standing:
                    status = PrincipalStatus(parts.seal, call, policy.approvals)
                    query = status.extended(query)
                if shadow is not None:
                    query = shadow.joined(query)
            snapshot = await stores.sessions.attempt(
                Attempt(call.id, identity, classified.role, call.at, marks, query, grant)
            )
            snapshot = snapshot if shadow is None else shadow.taken(snapshot)
            snapshot = snapshot if status is None else status.taken(snapshot)
            snapshot = snapshot if spread is None else spread.taken(snapshot)
        except Exception as error:  # noqa: BLE001  (no state, no decision: block)
            if marks:
                stores.marks.put_back(owner, marks)
            errors.append(f"state: {type(error).__name__}")
            parts.metrics.count(ERRORS, "state")
            parts.metrics.set(FAIL_CLOSED, 1, "state")
            return Queried(), Snapshot()
        parts.metrics.attempted(time.perf_counter() - started, snapshot)
        if marks:
            stores.marks.written(owner, marks)
        return Queried(tracing, spread, status), snapshot

    # --- decision --------------------------------------------------------------------------------

    def _decided(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        queried: Queried,
        snapshot: Snapshot,
        errors: list[str],
        known: Findings = NO_FINDINGS,
    ) -> tuple[TracedCall, Verdict]:
        """Return the call with the rung of each value, and the verdict of findings and rules."""
        if self._parts.processes.judging is not None:
            self._parts.processes.judging(classified.call)
        traced, granted = self._traced(policy, classified, queried, snapshot, errors)
        findings = self._detection.findings(policy, classified, snapshot, errors, known)
        situation = Situation(traced, snapshot, tuple(findings), tuple(errors), granted)
        verdict = decide(policy, situation)
        if policy is not None and classified.call.at < self._parts.policies.action_trial_end:
            verdict = self._without_effect(policy, situation, verdict)
        if policy is not None and verdict.action is Action.ASK:
            traced, verdict = errands.judged(policy, traced, verdict)
        if queried.status is not None and verdict.action is Action.ASK:
            verdict = queried.status.judged(verdict)
        if self._parts.processes.judging is not None:
            self._parts.processes.judging(None)
        if len(verdict.errors) > len(errors):
            self._parts.metrics.count(ERRORS, "rule")
        if policy is not None and verdict.enforced is Action.REDACT:
            traced, verdict = redact(
                policy,
                situation,
                verdict,
                lambda call: self._detection.findings_or_raise(policy, call, snapshot),
            )
        if policy is not None and policy.selections:
            return self._parts.selections.let_through(policy, traced, verdict, granted=granted)
        return traced, verdict

    def _without_effect(self, policy: Policy, situation: Situation, verdict: Verdict) -> Verdict:
        """Return the verdict without action rules, which are on trial; count a difference."""
        if not any(reason.code in ACTION_CODES for reason in verdict.reasons):
            return verdict
        base = decide(self._parts.policies.without_action_rules(policy), situation)
        if base.action >= verdict.action:
            return verdict
        self._parts.metrics.count(ACTION_TRIAL, verdict.action.label)
        rules = ", ".join(verdict.decided_by)
        return replace(base, facts={**base.facts, ACTION_FACT: f"{verdict.action.label} ({rules})"})

    def _traced(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        queried: Queried,
        snapshot: Snapshot,
        errors: list[str],
    ) -> tuple[TracedCall, bool]:
        """Return the call with the rung of each value, and True if a person granted it."""
        tracing, spread = queried.tracing, queried.spread
        if policy is None or tracing is None:
            return untraced(classified), False
        try:
            call, grant, definition = classified.call, None, ""
            if snapshot.labels.definition is not None:
                definition = self._pins.marked(snapshot.labels.definition, call.upstream, call.tool)
            if snapshot.grant is not None:
                grant = self._approvals.grant(policy, call, snapshot.grant, definition)
            traced = tracing.result(snapshot, grant, definition)
            if grant is not None and snapshot.grant is not None:
                taken = self._approvals.untaken(policy, call, snapshot.grant)
                traced = replace(traced, taken=(taken,))
            if spread is not None:
                traced = spread.recorded(traced, granted=grant is not None)
        except Exception as error:  # noqa: BLE001  (a value that was not traced must not leave)
            errors.append(f"provenance: {type(error).__name__}")
            self._parts.metrics.count(ERRORS, "provenance")
            return untraced(classified), False
        else:
            return traced, grant is not None

    async def _uncontained(
        self, policy: Policy, spread: Spread, traced: TracedCall, verdict: Verdict
    ) -> Verdict:
        """Return the verdict; a block if the call saves what an incident contains.

        Never raises: while the contained items are unknown, nothing is saved or recalled.
        """
        try:
            return await self._parts.containment.judge(policy, spread, traced, verdict)
        except Exception as error:  # noqa: BLE001  (what is contained must not get out)
            self._parts.metrics.count(ERRORS, "state")
            reason = Reason("guard_error", "", Action.BLOCK, "containment", remedy="retry later")
            return verdict.blocked(reason, f"containment: {type(error).__name__}")

    # --- trial -----------------------------------------------------------------------------------

    async def _shadow(
        self, trial: Trial, base: Policy, call: ToolCall, *, is_large: bool
    ) -> tuple[Policy, ShadowCall | None]:
        """Return the policy that decides on a call, and the call as the other policy reads it."""
        candidate = trial.decides(call.identity)
        policy, other = (trial.candidate, base) if candidate else (base, trial.candidate)
        decided_by = CANDIDATE if candidate else BASE
        try:
            if is_large:
                [found] = await self.large.answered([self._large_question(other, call)])
            else:
                found = self.large.counted(read_call(self._parts.seal, self._question(other, call)))
            tracing, query = found.tracing, found.query
            if found.errors or tracing is None or query is None:
                raise GuardError(*found.errors[:1])
            return policy, ShadowCall(
                other, decided_by, found.classified, tracing, query, found.findings
            )
        except Exception:  # noqa: BLE001  (the comparison failed; the call is judged all the same)
            trial.counts[VerdictPair(decided_by, FAILED, FAILED)] += 1
            return policy, None

    async def _compared(
        self,
        shadow: ShadowCall,
        status: PrincipalStatus | None,
        verdict: Verdict,
        *,
        is_large: bool,
    ) -> Verdict:
        """Count the verdict of the other policy; return the verdict, with a note if they differ.

        Never raises, and never changes the enforced action.
        """
        trial = self._parts.policies.trial
        if trial is None:
            return verdict
        try:
            other = await self._parts.threads.run_if(
                is_large, self._shadow_verdict, shadow, status, verdict
            )
            pair, verdict = verdict_pair(shadow, verdict, other)
        except Exception:  # noqa: BLE001  (as above)
            pair = VerdictPair(shadow.decided_by, FAILED, FAILED)
        trial.counts[pair] += 1
        return verdict

    def _shadow_verdict(
        self, shadow: ShadowCall, status: PrincipalStatus | None, verdict: Verdict
    ) -> Verdict:
        """Return the verdict of the policy that does not decide.

        Raises:
            GuardError: its labels were not read, or a part failed.
        """
        snapshot, errors = shadow.snapshot, list[str]()
        if snapshot is None:
            raise GuardError("the labels of a trial could not be read")
        queried = Queried(shadow.tracing)
        traced, _ = self._traced(shadow.policy, shadow.classified, queried, snapshot, errors)
        findings = self._detection.findings(
            shadow.policy, shadow.classified, snapshot, errors, shadow.findings
        )
        if errors:
            raise GuardError(errors[0])
        # A person's grant answers an ask of either policy.
        granted = any(reason.code == "granted" for reason in verdict.reasons)
        other = decide(shadow.policy, Situation(traced, snapshot, tuple(findings), (), granted))
        if status is not None and other.action is Action.ASK:
            other = status.judged(other)
        return other


async def _all(parts: Iterable[Awaitable[ResultT]]) -> list[ResultT]:
    """Return the results of some awaitables, in their order, once all of them have ended.

    Raises:
        Exception: of the first that failed.
    """
    found = await asyncio.gather(*parts, return_exceptions=True)
    results: list[ResultT] = []
    for one in found:
        if isinstance(one, BaseException):
            raise one
        results.append(one)
    return results
