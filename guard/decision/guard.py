"""The guard as two questions: may this call go out, and what came back.  Never raises.

``Guard.authorize`` runs hops 3 to 6 of ``docs/architecture.md``: one atomic round trip to the
store, the detectors, the pure PDP, the audit line and the metrics.  ``Guard.observe`` is the road
back.  What happens on the wire with a verdict (hop 7) is the PEP's.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING

from guard.core.calls import ClassifiedCall, untraced
from guard.core.errors import AuditError, GuardError
from guard.core.memory import Fate
from guard.core.model import Identity, Role
from guard.core.pdp import decide, decide_result
from guard.core.policy import Situation
from guard.core.ports import DecisionRecord, DetectorOnDemand
from guard.core.verdict import Action, Reason, Verdict
from guard.decision.batch import all_or_none, commit_whole
from guard.decision.classification import classify
from guard.decision.content_scan import ContentScan
from guard.decision.information_point import InformationPoint
from guard.decision.recorder import TrajectoryRecorder
from guard.decision.redaction import forwarded, redact
from guard.provenance.seal import KEY_BYTES, Seal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guard.core.calls import ToolResult, TracedCall
    from guard.core.model import Finding, Integrity, ToolCall
    from guard.core.policy import Policy
    from guard.core.ports import AuditLog, Detector, Metrics, SessionStore
    from guard.core.trajectory import Snapshot
    from guard.decision.redaction import Rewrite
    from guard.memory_gate.write_path import WritePath


class Guard:
    """The PDP with its information points around it.

    Args:
        policy: the policy in force; :meth:`swap_policy` replaces it whole.
        store: where the trajectories live.
        detectors: evidence producers, asked in order.
        audit: written before any call is forwarded.
        metrics: closed label sets only.
        model_digests: for audit lines, by model name.
        entering: called with each call before CPU-bound judgement starts and with None after it;
            the supervisor reads from it which call a hung worker was judging.
        open_loop: for replay: a refused call is not marked so in the store, because in the
            recording it was executed.
        memory: takes memory writes through the gate; None where nothing is gated.
        provenance: labels values and traces them; left out, one with a key that nobody else has.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        *,
        policy: Policy | None,
        store: SessionStore,
        detectors: Sequence[Detector],
        audit: AuditLog,
        metrics: Metrics,
        model_digests: Mapping[str, str] | None = None,
        entering: Callable[[ToolCall | None], None] | None = None,
        open_loop: bool = False,
        memory: WritePath | None = None,
        provenance: InformationPoint | None = None,
    ) -> None:
        self._policy = policy
        self._store = store
        self._detectors = tuple(detectors)
        self._on_demand = {d.name: d for d in detectors if isinstance(d, DetectorOnDemand)}
        self._audit = audit
        self._metrics = metrics
        self._model_digests = dict(model_digests or {})
        self._entering = entering
        self._open_loop = open_loop
        self._memory = memory
        self._provenance = provenance or InformationPoint(Seal(secrets.token_bytes(KEY_BYTES)))
        self.texts = ContentScan(detectors, audit, metrics)
        self._state = TrajectoryRecorder(store, self._provenance, metrics)
        self._prepare()

    @property
    def policy(self) -> Policy | None:
        """The policy in force."""
        return self._policy

    def swap_policy(self, policy: Policy) -> None:
        """Put another validated policy in force for every call judged from now on."""
        self._policy = policy
        self._prepare()
        if self._memory is not None:
            self._memory.swap_policy(policy)

    def _prepare(self) -> None:
        """Let the detectors that the policy asks for get ready, before a call waits for them."""
        for detector in self._on_demand.values():
            if self._policy is not None and detector.name in self._policy.detectors:
                detector.prepare()

    async def authorize(
        self, calls: Sequence[ToolCall], rewrite: Rewrite | None = None
    ) -> list[tuple[TracedCall, Verdict]]:
        """Judge the calls of one message; one round trip however many there are.

        Never raises: whatever goes wrong is a block with an audit line and a counter.  A refused
        call has been marked so in the store; the caller marks the rest through :meth:`observe`.

        A message is forwarded whole or not at all: where any of its calls is refused, so are the
        others (reason ``batch_refused``).  A call that is to be redacted comes back with the
        arguments to forward, which ``rewrite`` has put into the message; without it, refused.
        """
        if len(calls) == 1:  # the common case: no task, no extra turn of the event loop
            judged = [await self._judge(calls[0])]
        else:
            with self._store.together():
                judged = list(await asyncio.gather(*(self._judge(call) for call in calls)))
        judged = forwarded(judged, rewrite)
        judged = all_or_none(judged)
        answers: list[tuple[TracedCall, Verdict]] = []
        for classified, verdict, seconds in judged:
            final = self._record(classified, verdict, seconds)
            answers.append((classified, final))
        if self._memory is not None:
            answers = await commit_whole(self._memory, answers, self._record)
        refused = [(c, v) for c, v in answers if not v.enforced.forwards]
        if refused and not self._open_loop:
            with self._store.together():
                await asyncio.gather(
                    *(self._state.refused(self._policy, c.classified, v) for c, v in refused)
                )
        return answers

    def is_committed(self, calls: Sequence[TracedCall]) -> bool:
        """Return whether every one of the calls is a memory write that the gate has committed."""
        memory = self._memory
        return (
            memory is not None
            and bool(calls)
            and all(memory.is_committed(one.call.id) for one in calls)
        )

    async def observe(self, result: ToolResult) -> Verdict | None:
        """Mark the call of a result executed.  Never raises.

        A verdict means that the result must be withheld: a rule says so, or it proposes a memory
        update that the gate refuses.  Where the store cannot be told, a local mark is kept and
        written with the next attempt of that principal, before anything of it is judged.
        """
        memory = self._memory
        self.texts.of_result(result)
        withheld = self.judge_result(result)
        if memory is None:
            await self._state.executed(self._policy, result)
            return withheld
        result = memory.sourced(result)
        withheld = await memory.judge_result(result) or withheld
        # Together, so that their scripts travel in one pipeline.
        told = [memory.note_sources(result), self._state.executed(self._policy, result)]
        if memory.is_committed(result.call.call.id):
            failed = Fate.FAILED if result.is_error else Fate.ACKNOWLEDGED
            fate = Fate.UNKNOWN if result.is_lost else failed
            told.append(memory.settle(result.call.call.id, fate))
        with self._store.together():
            await asyncio.gather(*told)
        return withheld

    def judge_result(self, result: ToolResult) -> Verdict | None:
        """Return the verdict on a result that a rule withholds, recorded; None: release it."""
        policy = self._policy
        if policy is None or not policy.result_rules:
            return None
        verdict = decide_result(policy, result.call.classified, result.content)
        if verdict is None:
            return None
        if verdict.errors:
            self._metrics.error("rule")
        verdict = self._record(result.call, verdict, 0.0)
        return None if verdict.enforced.forwards else verdict

    async def note_prompt(self, identity: Identity, text: str, at: float) -> None:
        """Remember what a user named in a prompt; the channel has been authenticated.

        Raises:
            StateError: it could not be stored; nothing in it attests anything.
        """
        writes = self._provenance.hear(self._policy, identity, text, at)
        await self._store.note(identity, writes)

    async def note_claims(self, identity: Identity, values: Sequence[str], at: float) -> None:
        """Remember what an agent says that its user named.  Never raises."""
        try:
            writes = self._provenance.claims(self._policy, identity, values, at)
            await self._store.note(identity, writes)
        except Exception:  # noqa: BLE001  (a claim that is not kept attests nothing)
            self._metrics.error("provenance")

    async def import_memory(
        self, tenant: str, items: Sequence[tuple[str, str, Integrity]], at: float
    ) -> None:
        """Label memory that existed before the guard: store, text and label of each item.

        Raises:
            StateError: it could not be stored.
        """
        writes = self._provenance.imported(self._policy, tenant, items, at)
        await self._store.note(Identity("", "", tenant=tenant), writes)

    async def _judge(self, call: ToolCall) -> tuple[TracedCall, Verdict, float]:
        started = time.perf_counter()
        policy = self._policy
        errors: list[str] = []
        try:
            if policy is None:
                classified = ClassifiedCall(call, Role.OTHER)
            else:
                classified = classify(policy, call)
        except Exception as error:  # noqa: BLE001  (hop 2 must end in a block, whatever it met)
            classified = ClassifiedCall(call, Role.OTHER)
            errors.append(f"classify: {type(error).__name__}")
            self._metrics.error("parse")
        question, snapshot = await self._state.attempt(policy, classified, errors)
        if self._entering is not None:
            self._entering(call)
        traced, granted = untraced(classified), False
        try:
            traced, granted = self._provenance.trace(policy, classified, question, snapshot)
        except Exception as error:  # noqa: BLE001  (a value that was not traced must not leave)
            errors.append(f"provenance: {type(error).__name__}")
            self._metrics.error("provenance")
        findings = self._detect(policy, classified, snapshot, errors)
        situation = Situation(traced, snapshot, tuple(findings), tuple(errors), granted)
        verdict = decide(policy, situation)
        if self._entering is not None:
            self._entering(None)
        if len(verdict.errors) > len(errors):
            self._metrics.error("rule")
        if policy is not None and verdict.enforced is Action.REDACT:
            traced, verdict = redact(
                policy, situation, verdict, lambda c: self._find(policy, c, snapshot)
            )
        if self._memory is not None:
            verdict = await self._memory.judge(traced, snapshot, verdict)
        return traced, verdict, time.perf_counter() - started

    def _find(
        self, policy: Policy, classified: ClassifiedCall, snapshot: Snapshot
    ) -> list[Finding]:
        """Return what is found in a call that goes out in the place of another.

        Raises:
            GuardError: a detector failed.
        """
        errors: list[str] = []
        findings = self._detect(policy, classified, snapshot, errors)
        if errors:
            raise GuardError(errors[0])
        return findings

    def _detect(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        snapshot: Snapshot,
        errors: list[str],
    ) -> list[Finding]:
        findings: list[Finding] = []
        for detector in self._detectors:
            if detector.name in self._on_demand and (
                policy is None or detector.name not in policy.detectors
            ):
                continue
            try:
                findings.extend(detector.inspect(classified, snapshot))
            except BaseException as error:  # noqa: BLE001  (no await here: nothing is cancelled)
                errors.append(f"detector `{detector.name}`: {type(error).__name__}")
                self._metrics.error("detector")
        return findings

    def _record(self, traced: TracedCall, verdict: Verdict, seconds: float) -> Verdict:
        """Write the audit line; a verdict that cannot be recorded is a block."""
        record = DecisionRecord(traced.classified, verdict, seconds, self._model_digests)
        try:
            self._audit.decision(record)
        except AuditError:
            self._metrics.error("audit")
            self._metrics.fail_closed("audit", active=True)
            reason = Reason("audit_error", "", Action.BLOCK, "the decision could not be recorded")
            verdict = verdict.blocked(reason, "audit")
            record = DecisionRecord(traced.classified, verdict, seconds, self._model_digests)
        else:
            self._metrics.fail_closed("audit", active=False)
        self._metrics.decision(record)
        return verdict
