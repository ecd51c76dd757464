"""The guard as two questions: may this call go out, and what came back.  Never raises.

:meth:`Guard.authorize` is hops 3 to 6 of ``docs/architecture.md`` from top to bottom: the state
before the call and the labels of its values in one atomic round trip, the detectors, the pure PDP,
the memory gate, the audit line and the metrics.  :meth:`Guard.observe` is the way back of a result.
What happens on the wire with a verdict (hop 7) is the PEP's.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar

from guard.core.calls import ClassifiedCall, untraced
from guard.core.errors import AuditError, GuardError, StateError
from guard.core.labels import NO_QUERY
from guard.core.memory import Fate
from guard.core.metrics import ERRORS, FAIL_CLOSED, LABEL_SATURATION
from guard.core.model import Identity, Role
from guard.core.policy import Action, Mode, Reason, Situation, Verdict, decide, decide_result
from guard.core.ports import Attempt, Completion, DecisionRecord, DetectorOnDemand
from guard.core.trajectory import Snapshot
from guard.core.work import WorkExceededError
from guard.decision.call_reading import CallQuestion, classified_at, classified_now
from guard.decision.content_scan import ContentScan
from guard.decision.large_calls import LargeCalls
from guard.decision.redaction import redact, redaction_failed, rewrite_message
from guard.decision.result_evidence import ResultEvidence
from guard.decision.selection import Apart, SelectionReplays
from guard.decision.trial import BASE, CANDIDATE, FAILED, ShadowCall, VerdictPair, verdict_pair
from guard.decision.unlabelled_marks import MemoryMarks
from guard.propagation.events import asked_writes
from guard.propagation.live import Containment, Spread, withheld
from guard.propagation.recording import result_events
from guard.provenance.approvals import Approvals
from guard.provenance.established import established_writes, sent_writes
from guard.provenance.imports import ImportedItem, import_writes
from guard.provenance.intake import metered_writes, result_writes
from guard.provenance.label_sets import label_sets, pin_mark
from guard.provenance.principal_status import AskCounter, PrincipalStatus
from guard.provenance.prompts import claim_writes, prompt_writes
from guard.provenance.saved_values import written_labels
from guard.provenance.seal import KEY_BYTES, Seal
from guard.provenance.tracing import Tracing
from guard.tool_pins.pins import Pins, ToolOffers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from guard.core.calls import Claim, ToolResult, TracedCall
    from guard.core.labels import LabelQuery, LabelWrite
    from guard.core.metrics import Metrics
    from guard.core.model import Finding, Json, ToolCall
    from guard.core.policy import Evidence, Policy
    from guard.core.ports import AsksStore, AuditLog, Detector, LedgerStore, Recorder, SessionStore
    from guard.decision.call_reading import CallReading, Findings
    from guard.decision.large_calls import Measures, ReadsCalls, Ready
    from guard.decision.redaction import Rewrite
    from guard.decision.trial import Trial
    from guard.decision.unlabelled_marks import UnlabelledMarks
    from guard.memory_gate.write_path import WritePath

LARGE: Final = 32 * 1024
"""Characters and values from which a call is judged, or a result labelled, in a thread or another
process: some milliseconds of work."""
LONG_PROMPT: Final = 4096
"""Characters of a prompt from which it is read in a thread."""
SOURCE_NAME: Final = 64
"""Characters of a mapping's pattern that name a source of labels."""
BATCH_REFUSED: Final = Reason(
    "batch_refused",
    "",
    Action.BLOCK,
    "another call of the same batch was refused",
    remedy="send this call on its own",
)
NO_FINDINGS: Final[Findings] = {}
NOT_WRITTEN: Final = "retry later; if it stays so, the operator finds why in the guard's log"
"""Remedy where something must be on record and could not be written."""


Learnt: TypeAlias = "tuple[list[LabelWrite], bool]"
"""The labels that a result brings, and whether a bound cut any off."""
ReadsAside: TypeAlias = "Callable[[Seal, Policy, ToolResult], Awaitable[Learnt]]"
ParamT = ParamSpec("ParamT")
ResultT = TypeVar("ResultT")
_ENFORCED: Final = attrgetter("verdict.enforced")
_NONE: Final[frozenset[str]] = frozenset()


class Queried(NamedTuple):
    """What has queried the store for a call; each reads its part of the snapshot."""

    tracing: Tracing | None = None
    spread: Spread | None = None
    status: PrincipalStatus | None = None


class Judged(NamedTuple):
    """A call with its verdict, before it is recorded."""

    call: TracedCall
    verdict: Verdict
    seconds: float
    """Time from the parsed call to the verdict."""


class Guard:
    """The PDP with its information points around it.

    Args:
        policy: the policy in force; :meth:`swap_policy` replaces it whole.
        store: where the trajectories and labels live.
        detectors: evidence producers, asked in order.
        audit: written before any call is forwarded.
        metrics: closed label sets only.
        model_digests: for audit lines, by model name.
        entering: called with each call before CPU-bound judgement starts and with None after it;
            the supervisor reads from it which call a hung worker was judging.
        open_loop: for replay: a refused call is not marked so in the store, because in the
            recording it was executed.
        memory: takes memory writes through the gate; None where nothing is gated.
        seal: the deployment's key for labels; left out, one that nobody else has.
        recorders: keep, or tell of, whole exchanges.
        ledger: where the structure of graph memories is on record; without it no selection of one
            vouches for anything.
        marks: of results that the store could not be told of; left out, they end with the process.
        reads_calls: :func:`guard.decision.call_reading.read_calls` in another process, for the
            calls of large messages; without it a thread does it.
        measures: :func:`guard.core.work.measure` in that process, on behalf of a principal;
            likewise.
        reads_aside: :func:`guard.provenance.intake.result_writes` in another process, for large
            results; without it a thread does it.
        scans_aside: runs a function in that process, for what detectors look for in such a result;
            likewise.
        asks_store: asks a memory server without what does not count, where a policy says so.
        apart: runs a function in another process, for selectors that hold the interpreter; without
            it a thread does it.
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
        seal: Seal | None = None,
        recorders: Sequence[Recorder] = (),
        ledger: LedgerStore | None = None,
        asks_store: AsksStore | None = None,
        marks: UnlabelledMarks | None = None,
        reads_calls: ReadsCalls | None = None,
        measures: Measures | None = None,
        reads_aside: ReadsAside | None = None,
        scans_aside: Apart | None = None,
        apart: Apart | None = None,
    ) -> None:
        self.policy = policy
        """The policy in force; only :meth:`swap_policy` replaces it."""
        self.trial: Trial | None = None
        """Another policy beside it; only :meth:`try_policy` replaces it."""
        self._store = store
        self._detectors = tuple(d for d in detectors if getattr(d, "reads_calls", True))
        self._on_demand = {d.name: d for d in detectors if isinstance(d, DetectorOnDemand)}
        self._audit = audit
        self._metrics = metrics
        self._model_digests = dict(model_digests or {})
        self._entering = entering
        self._open_loop = open_loop
        self._memory = memory
        self._recorders = tuple(recorders)
        self._seal = seal or Seal(secrets.token_bytes(KEY_BYTES))
        self._approvals = Approvals(self._seal)
        self._asking = AskCounter(self._seal, store)
        self._selections = SelectionReplays(
            ledger, store, self._seal, audit, metrics, asks_store, apart
        )
        self._pins = Pins(self._seal)
        self._containment = Containment(self._seal, store)
        self.offers = ToolOffers()
        """Which servers offer tools of one name, as far as this process has seen their listings."""
        self._marks = marks or MemoryMarks()
        """Results that were released and that the store could not be told of, by principal.  They
        are written with the next attempt, before anything of that principal is judged."""
        self.large = LargeCalls(
            self._seal, metrics, self._asked_about, self.aside, reads_calls, measures
        )
        """Reads the calls of large messages, and refuses those that take too much work."""
        self._reads_aside = reads_aside
        self._scans_aside = scans_aside
        self._begun: dict[int, float] = {}
        """When the threads that work on large messages began, by number."""
        self._numbers = itertools.count()
        self.texts = ContentScan(detectors, audit, metrics)
        self.evidence = ResultEvidence(detectors, metrics, self.aside)
        self._told: list[Callable[[], None]] = []
        self.evidence.prepare(policy)
        self._prepare()

    def swap_policy(self, policy: Policy) -> None:
        """Put another validated policy in force for every call judged from now on.

        A trial was of a candidate beside the policy before; it ends.

        Raises:
            GuardError: a detector that the policy names cannot be used; the old policy stays.
        """
        self.evidence.prepare(policy)
        self.policy = policy
        self.trial = None
        self._prepare()
        if self._memory is not None:
            self._memory.swap_policy(policy)
        self._tell()

    def try_policy(self, trial: Trial | None) -> None:
        """Judge every call by a candidate as well from now on; None ends that."""
        self.trial = trial
        self._prepare()
        self._tell()

    def on_change(self, tell: Callable[[], None]) -> None:
        """Have somebody told, on the event loop, whenever other policies decide."""
        self._told.append(tell)

    def _tell(self) -> None:
        for tell in self._told:
            tell()

    def _prepare(self) -> None:
        """Let the detectors that a policy asks for get ready, before a call waits for them."""
        trial = self.trial
        wanted = [self.policy, None if trial is None else trial.candidate]
        for detector in self._on_demand.values():
            # One that is asked about some tools only gets ready with the first call of one.
            if any(
                policy and policy.detectors.get(detector.name, _NONE) is None for policy in wanted
            ):
                detector.prepare()

    def policy_for(self, identity: Identity) -> Policy | None:
        """Return the policy that decides on the calls of a principal."""
        return self.policy if self.trial is None else self.trial.policy(self.policy, identity)

    # --- a call goes out -------------------------------------------------------------------------

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
        answers: list[tuple[TracedCall, Verdict]] = []
        refused: list[tuple[TracedCall, Verdict]] = []
        try:
            judged = await self._judged(calls)
            if len(judged) > 1 or judged[0].verdict.enforced is Action.REDACT:
                judged = _as_one_message(judged, rewrite)
            gated = False
            for one in judged:
                answers.append((one.call, self._record(*one)))
                gated = gated or one.call.classified.memory_write is not None
            if self._memory is not None and gated:
                answers = await self._commit(self._memory, answers)
            for answer in answers:
                if not (answer[1].enforced.forwards or self._open_loop):
                    refused.append(answer)
            if refused:
                await self._mark_refused(refused)
        except Exception as error:  # noqa: BLE001  (a call that was not judged must not go out)
            answers = await self._failed(calls, answers, error)
        return answers

    async def _failed(
        self,
        calls: Sequence[ToolCall],
        answers: Sequence[tuple[TracedCall, Verdict]],
        error: Exception,
    ) -> list[tuple[TracedCall, Verdict]]:
        """Refuse a message whose judgement failed, each call with an audit line.  Never raises.

        Args:
            calls: of the message.
            answers: those that were on record before.
            error: why.
        """
        self._metrics.count(ERRORS, "other")
        traced = {call.call.id: call for call, _ in answers}
        found: list[tuple[TracedCall, Verdict]] = []
        for call in calls:
            known = traced.get(call.id) or untraced(ClassifiedCall(call, Role.OTHER))
            verdict = self._record(known, self._failure(call.identity, error), 0.0)
            try:
                if self._memory is not None:
                    await self._memory.discard(call.id)
            except Exception:  # noqa: BLE001  (it stays staged, and expires)
                self._metrics.count(ERRORS, "memory")
            if not verdict.enforced.forwards and not self._open_loop:
                role = known.classified.role
                await self._complete(
                    Completion(call.id, call.identity, role, call.at, executed=False)
                )
            found.append((known, verdict))
        return found

    def _failure(self, identity: Identity, error: Exception) -> Verdict:
        """Return the verdict where a part of the guard failed."""
        policy = self.policy_for(identity)
        mode, digest = (Mode.ENFORCE, "") if policy is None else (policy.mode, policy.digest)
        detail = type(error).__name__
        reason = Reason("guard_error", "", Action.BLOCK, detail, remedy="retry later")
        return Verdict(Action.BLOCK, mode, (reason,), digest, errors=(f"guard: {detail}",))

    async def _judged(self, calls: Sequence[ToolCall]) -> list[Judged]:
        """Return the verdicts on the calls of one message, unrecorded."""
        ready: Sequence[Ready | None] = [None] * len(calls)
        is_one = len(calls) == 1  # the common case: no task, no extra turn of the event loop
        if is_large(calls[0].arguments if is_one else [dict(call.arguments) for call in calls]):
            policies = [self.policy_for(call.identity) for call in calls]
            ready = await self.large.read(policies, calls)
        if is_one:
            return [await self._judge(calls[0], ready[0])]
        with self._store.together():
            return await _all(map(self._judge, calls, ready))

    def _asked_about(self, policy: Policy, call: ToolCall) -> CallQuestion:
        """Return what is asked about a call of a large message."""
        pin = pin_mark(self._seal, call.upstream, call.tool) if call.upstream else None
        detectors = (
            detector
            for detector in self._detectors_for(policy, call)
            if getattr(detector, "reads_arguments", False)
        )
        return CallQuestion(policy, call, *self._offered(policy, call), pin, tuple(detectors))

    async def _judge(self, call: ToolCall, ready: Ready | None = None) -> Judged:
        """Return the verdict on one call, unrecorded."""
        started = time.perf_counter()
        policy, beside = self.policy, None
        errors: list[str] = []
        if ready is not None:
            policy = ready.policy
            if ready.refusals:
                return await self._unread(call, ready, started)
        if self.trial is not None and policy is not None:
            decides, beside = await self._on_trial(
                self.trial, self.policy or policy, call, is_large=ready is not None
            )
            # A large message was read by the policy that was in force then.
            policy = decides if ready is None else policy
        reading = None if ready is None else ready.reading
        if reading is not None:
            classified = reading.classified
            errors += reading.errors
        else:
            classified = self._classified(policy, call, errors)
        queried, snapshot = await self._attempt(policy, classified, errors, beside, reading)
        given = policy, classified, queried, snapshot, errors
        if reading is not None:
            traced, verdict = await self.aside(self._decided, *given, reading.findings)
        else:
            traced, verdict = self._decided(*given)
        if beside is not None:
            is_large = ready is not None
            verdict = await self._compared(beside, queried.status, verdict, is_large=is_large)
        if policy is not None and policy.replays and verdict.action is not Action.ALLOW:
            verdict = await self._selections.explained(policy, traced, verdict)
        memory = self._memory
        if memory is not None and (classified.memory_write is not None or memory.has_reads):
            verdict = await memory.judge(traced, snapshot, verdict)
        if queried.spread is not None and policy is not None:
            verdict = await self._uncontained(policy, queried.spread, traced, verdict)
        return Judged(traced, verdict, time.perf_counter() - started)

    async def _unread(self, call: ToolCall, ready: Ready, started: float) -> Judged:
        """Return the block of a call that was not read; it counts as attempted."""
        policy, errors = ready.policy, list[str]()
        classified = ClassifiedCall(call, Role.OTHER)
        await self._attempt(None, classified, errors)
        mode, digest = (Mode.ENFORCE, "") if policy is None else (policy.mode, policy.digest)
        verdict = Verdict(Action.BLOCK, mode, ready.refusals, digest, tuple(errors))
        return Judged(untraced(classified), verdict, time.perf_counter() - started)

    def claim(self, call: ToolCall) -> None:
        """Note that a call's server has its tool, where whoever makes the call knows that."""
        policy, place = self.policy, (call.server, call.upstream)
        # Names that nobody maps mean nothing, and a model could invent any number of them.
        if call.upstream and policy is not None and policy.mapping(call.tool, *place) is not None:
            self.offers.note(call.upstream, (call.tool,))

    def classified(self, policy: Policy, call: ToolCall) -> ClassifiedCall:
        """Return what a policy says of a call to the server that it goes to."""
        return classified_at(policy, call, *self._offered(policy, call))

    def _offered(self, policy: Policy, call: ToolCall) -> tuple[Claim, str]:
        """Return the claim of a call's server to the tool's name, and the server called."""
        at = call.upstream, call.tool, policy.origins.get(call.tool, "")
        return self.offers.claim(*at), self.offers.place(*at)

    def _classified(
        self, policy: Policy | None, call: ToolCall, errors: list[str]
    ) -> ClassifiedCall:
        """Return what the policy says of a call; an error is noted, and blocks it."""
        try:
            if policy is not None:
                return classified_now(policy, call, *self._offered(policy, call))
        except Exception as error:  # noqa: BLE001  (hop 2 must end in a block, whatever it met)
            errors.append(f"classify: {type(error).__name__}")
            self._metrics.count(ERRORS, "parse")
        return ClassifiedCall(call, Role.OTHER)

    async def _attempt(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        errors: list[str],
        beside: ShadowCall | None = None,
        reading: CallReading | None = None,
    ) -> tuple[Queried, Snapshot]:
        """Append a call as attempted; return what has queried the store, and the state before it.

        Never raises: without state nothing is traced, and the error that is noted blocks the call.
        """
        call = classified.call
        owner = (call.identity.tenant, call.identity.principal)
        marks = 0
        started = time.perf_counter()
        tracing, spread, status, query, grant = None, None, None, NO_QUERY, ""
        try:
            if self._marks.pending[0]:
                # Before the wait: two parallel attempts must not both carry the same marks.
                marks = self._marks.take(owner)
            if policy is not None:
                tracing, query, grant = self._query(policy, classified, reading)
                if policy.propagation is not None:
                    spread = await self._spread(policy, classified, is_large=reading is not None)
                    query = query if spread is None else spread.extended(query)
                if policy.has_standing:
                    status = PrincipalStatus(self._seal, call, policy.approvals)
                    query = status.extended(query)
                if beside is not None:
                    query = beside.joined(query)
            snapshot = await self._store.attempt(
                Attempt(call.id, call.identity, classified.role, call.at, marks, query, grant)
            )
            snapshot = snapshot if beside is None else beside.taken(snapshot)
            snapshot = snapshot if status is None else status.taken(snapshot)
            snapshot = snapshot if spread is None else spread.taken(snapshot)
        except Exception as error:  # noqa: BLE001  (no state, no decision: block)
            if marks:
                self._marks.put_back(owner, marks)
            errors.append(f"state: {type(error).__name__}")
            self._metrics.count(ERRORS, "state")
            self._metrics.set(FAIL_CLOSED, 1, "state")
            return Queried(), Snapshot()
        self._metrics.attempted(time.perf_counter() - started, snapshot)
        if marks:
            self._marks.written(owner, marks)
        return Queried(tracing, spread, status), snapshot

    def _query(
        self, policy: Policy, classified: ClassifiedCall, reading: CallReading | None
    ) -> tuple[Tracing | None, LabelQuery, str]:
        """Return how the values of a call are traced, the query, and the digest of a grant."""
        if reading is not None:
            return reading.tracing, reading.query or NO_QUERY, reading.grant
        call = classified.call
        tracing = Tracing(self._seal, policy, classified)
        mark = pin_mark(self._seal, call.upstream, call.tool) if call.upstream else None
        return tracing, tracing.query(mark), self._approvals.digest(policy, call)

    async def _spread(
        self, policy: Policy, classified: ClassifiedCall, *, is_large: bool
    ) -> Spread | None:
        if is_large:
            return await self.aside(Spread.of, self._seal, policy, classified)
        return Spread.of(self._seal, policy, classified)

    def _decided(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        queried: Queried,
        snapshot: Snapshot,
        errors: list[str],
        found: Findings = NO_FINDINGS,
    ) -> tuple[TracedCall, Verdict]:
        """Return the call with the rung of each value, and the verdict of findings and rules."""
        if self._entering is not None:
            self._entering(classified.call)
        traced, granted = self._traced(policy, classified, queried, snapshot, errors)
        findings = self._detect(policy, classified, snapshot, errors, found)
        situation = Situation(traced, snapshot, tuple(findings), tuple(errors), granted)
        verdict = decide(policy, situation)
        if queried.status is not None and verdict.action is Action.ASK:
            verdict = queried.status.judged(verdict)
        if self._entering is not None:
            self._entering(None)
        if len(verdict.errors) > len(errors):
            self._metrics.count(ERRORS, "rule")
        if policy is not None and verdict.enforced is Action.REDACT:
            traced, verdict = redact(
                policy, situation, verdict, lambda c: self._find(policy, c, snapshot)
            )
        if policy is not None and policy.selections:
            return self._selections.let_through(policy, traced, verdict, granted=granted)
        return traced, verdict

    def _traced(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        queried: Queried,
        snapshot: Snapshot,
        errors: list[str],
    ) -> tuple[TracedCall, bool]:
        """Return the call with the rung of each value, and whether a human granted it."""
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
            if spread is not None:
                traced = spread.recorded(traced, granted=grant is not None)
        except Exception as error:  # noqa: BLE001  (a value that was not traced must not leave)
            errors.append(f"provenance: {type(error).__name__}")
            self._metrics.count(ERRORS, "provenance")
            return untraced(classified), False
        else:
            return traced, grant is not None

    def _detect(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        snapshot: Snapshot,
        errors: list[str],
        found: Findings = NO_FINDINGS,
    ) -> list[Finding]:
        """Return what the detectors find; one that fails is noted, and blocks the call.

        Args:
            policy: in force.
            classified: the call.
            snapshot: the state before it.
            errors: get a line for each detector that fails.
            found: what some detectors have found in it already.
        """
        findings: list[Finding] = []
        for detector in self._detectors_for(policy, classified.call):
            known = found.get(detector.name)
            if isinstance(known, str):
                errors.append(f"detector `{detector.name}`: {known}")
                self._metrics.count(ERRORS, "detector")
                continue
            try:
                findings.extend(
                    known if known is not None else detector.inspect(classified, snapshot)
                )
            except BaseException as error:  # noqa: BLE001  (no await here: nothing is cancelled)
                errors.append(f"detector `{detector.name}`: {type(error).__name__}")
                self._metrics.count(ERRORS, "detector")
        return findings

    def _detectors_for(self, policy: Policy | None, call: ToolCall) -> Iterator[Detector]:
        """Yield the detectors that look at a call: all but those that no rule asks for."""
        for detector in self._detectors:
            if detector.name in self._on_demand:
                tools = _NONE if policy is None else policy.detectors.get(detector.name, _NONE)
                if tools is not None and call.tool not in tools:
                    continue
            yield detector

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

    async def _uncontained(
        self, policy: Policy, spread: Spread, traced: TracedCall, verdict: Verdict
    ) -> Verdict:
        """Return the verdict of a call, as a block where it saves what an incident contains.

        Never raises: where it cannot be known what is contained, nothing is saved or recalled.
        """
        try:
            return await self._containment.judge(policy, spread, traced, verdict)
        except Exception as error:  # noqa: BLE001  (what is contained must not get out)
            self._metrics.count(ERRORS, "state")
            reason = Reason("guard_error", "", Action.BLOCK, "containment", remedy="retry later")
            return verdict.blocked(reason, f"containment: {type(error).__name__}")

    def _record(self, call: TracedCall, verdict: Verdict, seconds: float) -> Verdict:
        """Write the audit line; a verdict that cannot be recorded is a block."""
        policy = self.policy if self.trial is None else self.policy_for(call.call.identity)
        if self._recorders or (policy is not None and policy.requires_recording):
            verdict = self._kept(call, verdict)
        record = DecisionRecord(call.classified, verdict, seconds, self._model_digests)
        try:
            self._audit.decision(record)
        except Exception:  # noqa: BLE001  (what is not on record must not go out)
            self._metrics.count(ERRORS, "audit")
            detail = "the decision could not be recorded"
            reason = Reason("audit_error", "", Action.BLOCK, detail, remedy=NOT_WRITTEN)
            verdict = verdict.blocked(reason, "audit")
            self._metrics.decision(replace(record, verdict=verdict))
            self._metrics.set(FAIL_CLOSED, 1, "audit")
        else:
            self._metrics.decision(record)
        return verdict

    def _kept(self, call: TracedCall, verdict: Verdict) -> Verdict:
        """Put a call into the recording; a block where it must be there and is not."""
        required = self.policy is not None and self.policy.requires_recording
        try:
            for recorder in self._recorders:
                recorder.call(call.call, verdict, required=required)
            if required and not any(one.keeps for one in self._recorders):
                raise AuditError("the policy requires a recording, and none is written")
        except Exception as error:  # noqa: BLE001  (likewise)
            self._metrics.count(ERRORS, "recording")
            self._metrics.set(FAIL_CLOSED, 1, "recording")
            detail = str(error) if isinstance(error, AuditError) else type(error).__name__
            reason = Reason("recording_error", "", Action.BLOCK, detail, remedy=NOT_WRITTEN)
            return verdict.blocked(reason, "recording")
        self._metrics.set(FAIL_CLOSED, 0, "recording")
        return verdict

    async def _commit(
        self, memory: WritePath, answers: list[tuple[TracedCall, Verdict]]
    ) -> list[tuple[TracedCall, Verdict]]:
        """Commit the staged writes of a message that is about to go out, all or none."""
        if not _all_forward([verdict for _, verdict in answers]):
            for call, _ in answers:
                await memory.discard(call.call.id)
            return answers
        after = [(call, await memory.commit(call.call.id, verdict)) for call, verdict in answers]
        forwards = _all_forward([verdict for _, verdict in after])
        final: list[tuple[TracedCall, Verdict]] = []
        for (call, committed), (_, before) in zip(after, answers, strict=True):
            verdict = committed
            if not forwards:
                await memory.discard(call.call.id)
                verdict = _with_the_others(verdict)
            if verdict is not before:
                verdict = self._record(call, verdict, 0.0)
            final.append((call, verdict))
        return final

    async def _mark_refused(self, refused: list[tuple[TracedCall, Verdict]]) -> None:
        """Mark refused calls in the store, with a request for approval where a human may grant."""
        policy = self.policy
        if self.trial is not None:
            policy = self.policy_for(refused[0][0].call.identity)
        ends: list[Completion] = []
        asked: list[tuple[TracedCall, Verdict]] = []
        for answer in refused:
            if answer[1].action is Action.ASK:
                asked.append(answer)
        requests: list[tuple[LabelWrite, ...]] = []
        if policy is not None and asked:
            requests = [*self._approvals.requests(policy, asked)]
        for traced, verdict in refused:
            call, role = traced.classified.call, traced.classified.role
            writes: tuple[LabelWrite, ...] = ()
            if policy is not None and requests and verdict.action is Action.ASK:
                writes = requests.pop(0)
                if policy.propagation is not None or policy.approvals.asks:
                    writes += await self._further(policy, traced)
            ends.append(
                Completion(call.id, call.identity, role, call.at, executed=False, writes=writes)
            )
        if len(ends) == 1:
            await self._complete(ends[0])
        elif ends:
            with self._store.together():
                await asyncio.gather(*(self._complete(end) for end in ends))

    async def _further(self, policy: Policy, asked: TracedCall) -> tuple[LabelWrite, ...]:
        """Return what is stored of an asked call besides the request."""
        writes: tuple[LabelWrite, ...] = ()
        if policy.propagation is not None:
            writes = asked_writes(self._seal, asked.on_executed)
        if policy.approvals.asks:
            try:
                writes += await self._asking.noted(policy, asked.call)
            except Exception:  # noqa: BLE001  (the call is refused either way)
                # It is refused all the same; it only does not count towards a pause.
                self._metrics.count(ERRORS, "state")
        return writes

    # --- the policy that does not decide ----------------------------------------------------------

    async def _on_trial(
        self, trial: Trial, base: Policy, call: ToolCall, *, is_large: bool
    ) -> tuple[Policy, ShadowCall | None]:
        """Return the policy that decides on a call, and the call as the other one reads it."""
        candidate = trial.decides(call.identity)
        policy, other = (trial.candidate, base) if candidate else (base, trial.candidate)
        decided_by = CANDIDATE if candidate else BASE
        try:
            if is_large:
                [reading] = await self.large.answered([self._asked_about(other, call)])
                found, errors = reading.classified, list(reading.errors)
                tracing, query = reading.tracing, reading.query
            else:
                reading, errors = None, list[str]()
                found = self._classified(other, call, errors)
                tracing, query, _ = self._query(other, found, None)
            if errors or tracing is None or query is None:
                raise GuardError(*errors[:1])
            findings = reading.findings if reading is not None else NO_FINDINGS
            return policy, ShadowCall(other, decided_by, found, tracing, query, findings)
        except Exception:  # noqa: BLE001  (the comparison failed; the call is judged all the same)
            trial.counts[VerdictPair(decided_by, FAILED, FAILED)] += 1
            return policy, None

    async def _compared(
        self,
        beside: ShadowCall,
        status: PrincipalStatus | None,
        verdict: Verdict,
        *,
        is_large: bool,
    ) -> Verdict:
        """Count what the other policy would have done; return the verdict, and that if it differs.

        Never raises, and never changes what is carried out.
        """
        trial = self.trial
        if trial is None:
            return verdict
        try:
            given = beside, status, verdict
            if is_large:
                other = await self.aside(self._beside, *given)
            else:
                other = self._beside(*given)
            pair, verdict = verdict_pair(beside, verdict, other)
        except Exception:  # noqa: BLE001  (as above)
            pair = VerdictPair(beside.decided_by, FAILED, FAILED)
        trial.counts[pair] += 1
        return verdict

    def _beside(
        self, beside: ShadowCall, status: PrincipalStatus | None, verdict: Verdict
    ) -> Verdict:
        """Return what the policy that does not decide would have decided.

        Raises:
            GuardError: its labels were not read, or a part failed.
        """
        snapshot, errors = beside.snapshot, list[str]()
        if snapshot is None:
            raise GuardError("the labels of a trial could not be read")
        queried = Queried(beside.tracing)
        traced, _ = self._traced(beside.policy, beside.classified, queried, snapshot, errors)
        findings = self._detect(beside.policy, beside.classified, snapshot, errors, beside.findings)
        if errors:
            raise GuardError(errors[0])
        # A person's grant answers what either policy asks.
        granted = any(reason.code == "granted" for reason in verdict.reasons)
        other = decide(beside.policy, Situation(traced, snapshot, tuple(findings), (), granted))
        if status is not None and other.action is Action.ASK:
            other = status.judged(other)
        return other

    # --- a result comes back ---------------------------------------------------------------------

    async def observe(self, result: ToolResult) -> Verdict | None:
        """Mark the call of a result executed.  Never raises.

        A verdict means that the result must be withheld: a rule says so, or it proposes a memory
        update that the gate refuses.  Where the store cannot be told, a local mark is kept and
        written with the next attempt of that principal, before anything of it is judged; where no
        mark can be kept either, the result is withheld.
        """
        large = is_large(result.content)
        refused: Verdict | None
        try:
            result, refused = await self._judged_result(result, large=large)
        except Exception as error:  # noqa: BLE001  (a result that was not judged is withheld)
            self._metrics.count(ERRORS, "other")
            verdict = self._failure(result.call.call.identity, error)
            verdict = self._record(result.call, verdict, 0.0)
            refused = None if verdict.enforced.forwards else verdict
        settling = [] if self._memory is None else _settling(self._memory, result)
        if settling:
            # Together, so that their scripts travel in one pipeline.
            with self._store.together():
                kept, _ = await asyncio.gather(
                    self._executed(result, large=large), asyncio.gather(*settling)
                )
        else:
            kept = await self._executed(result, large=large)
        return refused if kept else self._unmarked(result) or refused

    async def _judged_result(
        self, result: ToolResult, *, large: bool
    ) -> tuple[ToolResult, Verdict | None]:
        """Return a result as it is released, and the verdict that changes or withholds it."""
        for recorder in self._recorders:
            recorder.result(result)
        findings = await self._found_aside(result) if large else None
        self.texts.of_result(result, findings)
        selected = contained = None
        policy = self.policy
        if policy is not None and policy.selections:
            result, selected = await self._selected(policy, result)
        if policy is not None and policy.propagation is not None:
            result, contained = self._without_contained(policy, result)
        refused = await self.judge_result(result) or contained or selected
        if selected is not None and not selected.enforced.forwards:
            refused = selected
        if self._memory is not None:
            result = self._memory.sourced(result)
            refused = await self._memory.judge_result(result) or refused
        return result, refused

    def _unmarked(self, result: ToolResult) -> Verdict | None:
        """Return the verdict that withholds a result without labels or a mark that says so."""
        policy = self.policy
        mode, digest = (Mode.ENFORCE, "") if policy is None else (policy.mode, policy.digest)
        reason = Reason(
            "result_unlabelled",
            "",
            Action.BLOCK,
            "what it brings could not be labelled, nor that be kept in mind",
            remedy="go on without this answer",
        )
        verdict = self._record(result.call, Verdict(Action.BLOCK, mode, (reason,), digest), 0.0)
        return None if verdict.enforced.forwards else verdict

    def _without_contained(
        self, policy: Policy, result: ToolResult
    ) -> tuple[ToolResult, Verdict | None]:
        """Return a result without what incidents contain, and the verdict that says so."""
        apart = self._containment.taken_apart(result)
        if apart is None:
            return result, None
        verdict = self._record(result.call, withheld(policy, apart), 0.0)
        if verdict.enforced is Action.REDACT:
            result = replace(result, content=apart.content)
        return result, None if verdict.enforced is Action.ALLOW else verdict

    def is_committed(self, call: TracedCall) -> bool:
        """Return whether a call is a memory write that the gate has committed."""
        memory = self._memory
        if memory is None or call.classified.memory_write is None:
            return False
        return memory.is_committed(call.call.id)

    def adopt(self, call: TracedCall) -> None:
        """Take over a call that another process has released: its result comes to this one."""
        write = call.classified.memory_write
        if self._memory is not None and write is not None:
            self._memory.adopt(call.call, write.target)

    async def judge_result(self, result: ToolResult) -> Verdict | None:
        """Return the verdict on a result that a rule withholds, recorded; None: release it."""
        [verdict] = await self.judge_results(result.call, [result.content])
        return verdict

    async def judge_results(
        self, call: TracedCall, contents: Sequence[Json]
    ) -> list[Verdict | None]:
        """Return the verdict on each of several results of one call; None: release it."""
        policy = self.policy
        if self.trial is not None:
            policy = self.policy_for(call.call.identity)
        if policy is None or not policy.result_rules:
            return [None] * len(contents)
        found = await self.evidence.find(policy, call.classified, contents)
        return [self._withheld(policy, call, evidence) for evidence in found]

    def _withheld(self, policy: Policy, call: TracedCall, evidence: Evidence) -> Verdict | None:
        verdict = decide_result(policy, call.classified, evidence)
        if verdict is None:
            return None
        if verdict.errors:
            self._metrics.count(ERRORS, "rule")
        verdict = self._record(call, verdict, 0.0)
        return None if verdict.enforced.forwards else verdict

    async def _selected(
        self, policy: Policy, result: ToolResult
    ) -> tuple[ToolResult, Verdict | None]:
        """Mark what a graph memory's selection does not vouch for, before anybody reads it.

        Returns:
            the result as it is released, and the verdict that changes it, or that withholds it
            where the marks could not be stored.
        """
        try:
            found = await self._selections.learn(policy, result)
            if found.writes:
                await self._store.note(result.call.call.identity, found.writes)
        except Exception:  # noqa: BLE001  (an answer that is not marked would vouch)
            self._metrics.count(ERRORS, "state")
            reason = Reason(
                "selection_unmarked",
                "",
                Action.BLOCK,
                "what the memory's selection does not vouch for could not be marked",
                remedy="recall it again later",
            )
            verdict = Verdict(Action.BLOCK, policy.mode, (reason,), policy.digest)
            verdict = self._record(result.call, verdict, 0.0)
            return result, None if verdict.enforced.forwards else verdict
        if found.reason is None:
            return result, None
        verdict = Verdict(
            Action.REDACT, policy.mode, (found.reason,), policy.digest, instead=found.content
        )
        verdict = self._record(result.call, verdict, 0.0)
        return replace(result, content=found.content), verdict

    async def _executed(self, result: ToolResult, *, large: bool) -> bool:
        """Mark the call of a result executed and label what it brings or saved.

        Returns:
            False where neither labels nor a mark in their place could be kept.
        """
        kept = True
        call, classified = result.call.call, result.call.classified
        writes: tuple[LabelWrite, ...] = ()
        overflow, source = True, ""
        try:
            if large or is_large(call.arguments):
                writes, overflow = await self._learn_aside(result)
            else:
                writes, overflow = self._learn(result)
            self._metrics.observe(LABEL_SATURATION, overflow, "result")
            mapping = classified.mapping
            source = mapping.pattern[:SOURCE_NAME] if mapping is not None else "unmapped"
        except Exception:  # noqa: BLE001  (a result that could not be labelled leaves a mark)
            self._metrics.count(ERRORS, "provenance")
            writes, overflow, source = (), True, ""
            kept = self._mark(call.identity)
        return kept & await self._complete(
            Completion(
                call.id,
                call.identity,
                classified.role,
                result.at,
                executed=True,
                writes=writes,
                overflow=overflow,
                source=source,
            )
        )

    async def _learn_aside(self, result: ToolResult) -> tuple[tuple[LabelWrite, ...], bool]:
        """As :meth:`_learn`, of a large result, while others are judged.

        Where another process has read it, a thread is left out that nothing long is done in: it
        would share the interpreter with the small calls.
        """
        known, policy = await self._read_aside(result), self.policy_for(result.call.call.identity)
        if known is None or (policy is not None and policy.propagation is not None):
            return await self.aside(self._learn, result, known)
        return self._learn(result, known)

    async def _found_aside(self, result: ToolResult, *, deep: bool = False) -> list[Finding]:
        """Return what detectors find in a large result."""
        if self._scans_aside is None:
            return await self.aside(self.texts.find, result.content, deep=deep)
        return await self.texts.find_apart(self._scans_aside, result.content, deep=deep)

    async def read_declared(
        self, policy: Policy, result: ToolResult, *, deep: bool
    ) -> tuple[list[Finding], list[LabelWrite]]:
        """Return what detectors find in what a server says of itself, and its labels.

        Raises:
            WorkExceededError: it needs more work than one message may.
            StateError: it is large, and could not be read elsewhere.
        """
        if not is_large(result.content):
            found = self.texts.find(result.content, deep=deep)
            return found, result_writes(self._seal, policy, result)[0]
        found = await self._found_aside(result, deep=deep)
        try:
            learnt = await self._read_aside(result)
        except WorkExceededError:
            raise
        except Exception as error:
            raise StateError("the process that reads large messages failed") from error
        if learnt is None:
            learnt = await self.aside(metered_writes, self._seal, policy, result)
        return found, learnt[0]

    async def _read_aside(self, result: ToolResult) -> Learnt | None:
        """Return what another process reads in a result; None where no process is there for it.

        Raises:
            Exception: that process died, took too long, or has too much to do.
        """
        policy = self.policy_for(result.call.call.identity)
        if self._reads_aside is None or policy is None:
            return None
        return await self._reads_aside(self._seal, policy, result)

    def _learn(
        self, result: ToolResult, known: Learnt | None = None
    ) -> tuple[tuple[LabelWrite, ...], bool]:
        """Return the labels that a result brings, and whether a bound cut any off.

        Args:
            result: of a call.
            known: what was read in it already.
        """
        policy, traced = self.policy, result.call
        if self.trial is not None:
            policy = self.policy_for(traced.call.identity)
        saved = traced.on_executed
        if policy is None:
            return saved, True
        seal, sets = self._seal.folding(policy.fold), label_sets(policy.limits)
        saved += tuple(written_labels(seal, sets, traced, result.content))
        failed = result.is_error or result.is_lost or result.says_error
        if not failed and traced.classified.role is Role.SEND:
            saved += tuple(established_writes(seal, sets, traced))
            saved += tuple(sent_writes(self._seal, sets, traced.classified))
        reads = metered_writes if is_large(result.content) else result_writes
        learnt, overflow = known or reads(self._seal, policy, result)
        return (*saved, *learnt, *result_events(self._seal, policy, result)), overflow

    async def _complete(self, completion: Completion) -> bool:
        """Tell the store of the end of a call; keep a mark of what it could not take.

        Returns:
            False where no mark could be kept either.
        """
        try:
            await self._store.complete(completion)
        except Exception:  # noqa: BLE001  (the mark below keeps what the store could not take)
            self._metrics.count(ERRORS, "state")
            self._metrics.set(FAIL_CLOSED, 1, "state")
            return not completion.executed or self._mark(completion.identity)
        return True

    def _mark(self, identity: Identity) -> bool:
        """Keep in mind that a result has no labels; return whether that was possible."""
        try:
            self._marks.add((identity.tenant, identity.principal), 1)
        except OSError:
            self._metrics.count(ERRORS, "state")
            return False
        return True

    # --- what belongs to no call -----------------------------------------------------------------

    async def note_prompt(self, identity: Identity, text: str, at: float) -> None:
        """Remember what a user named in a prompt; the channel has been authenticated.

        Raises:
            StateError: it could not be stored; nothing in it attests anything.
        """
        policy = self.policy
        writes: list[LabelWrite] = []
        if policy is not None:
            seal, sets = self._seal.folding(policy.fold), label_sets(policy.limits)
            if len(text) > LONG_PROMPT:
                writes = await self.aside(prompt_writes, seal, sets, identity, text, at)
            else:
                writes = prompt_writes(seal, sets, identity, text, at)
        await self._store.note(identity, writes)
        for recorder in self._recorders:
            recorder.prompt(identity, text, at)

    async def note_claims(self, identity: Identity, values: Sequence[str], at: float) -> None:
        """Remember what an agent says that its user named.  Never raises."""
        policy = self.policy
        try:
            writes: list[LabelWrite] = []
            if policy is not None:
                writes = claim_writes(
                    self._seal.folding(policy.fold), label_sets(policy.limits), identity, values, at
                )
            await self._store.note(identity, writes)
        except Exception:  # noqa: BLE001  (a claim that is not kept attests nothing)
            self._metrics.count(ERRORS, "provenance")

    async def import_memory(self, tenant: str, items: Sequence[ImportedItem], at: float) -> None:
        """Label memory that existed before the guard.

        Raises:
            StateError: it could not be stored.
        """
        policy = self.policy
        writes: list[LabelWrite] = []
        if policy is not None:
            writes = import_writes(
                self._seal.folding(policy.fold), label_sets(policy.limits), tenant, items, at
            )
        await self._store.note(Identity("", "", tenant=tenant), writes)

    # --- what would hold up the calls of others --------------------------------------------------

    async def aside(
        self, work: Callable[ParamT, ResultT], *args: ParamT.args, **options: ParamT.kwargs
    ) -> ResultT:
        """Do the work on a large message in a thread, while others are judged."""
        number = next(self._numbers)

        def timed() -> ResultT:
            self._begun[number] = time.monotonic()
            try:
                return work(*args, **options)
            finally:
                del self._begun[number]

        return await asyncio.to_thread(timed)

    def is_stuck(self, seconds: float) -> bool:
        """Return whether a thread has been at work on one message for longer than so."""
        before = time.monotonic() - seconds
        return any(begun < before for begun in list(self._begun.values()))


def _rewritten(judged: list[Judged], rewrite: Rewrite | None) -> list[Judged]:
    """Return the calls of a message once it has been rewritten, refused where it cannot be."""
    redacted = [one.verdict.enforced is Action.REDACT for one in judged]
    if not _all_forward([one.verdict for one in judged]):
        return judged
    arguments = [
        one.call.call.arguments if changed else None
        for one, changed in zip(judged, redacted, strict=True)
    ]
    try:
        rewrite_message(rewrite, arguments)
    except Exception:  # noqa: BLE001  (what was not written anew must not go out as it was)
        return [
            one._replace(verdict=redaction_failed(one.verdict)) if changed else one
            for one, changed in zip(judged, redacted, strict=True)
        ]
    return judged


def _as_one_message(judged: list[Judged], rewrite: Rewrite | None) -> list[Judged]:
    """Return the calls of a message, rewritten; where any is refused, so are the others."""
    if Action.REDACT in set(map(_ENFORCED, judged)):
        judged = _rewritten(judged, rewrite)
    if _all_forward([one.verdict for one in judged]):
        return judged
    return [one._replace(verdict=_with_the_others(one.verdict)) for one in judged]


def _all_forward(verdicts: Sequence[Verdict]) -> bool:
    return all(verdict.enforced.forwards for verdict in verdicts)


def _with_the_others(verdict: Verdict) -> Verdict:
    """Return the verdict on a call of a message that is refused for another call of it."""
    return verdict.blocked(BATCH_REFUSED) if verdict.enforced.forwards else verdict


async def _all(parts: Iterable[Awaitable[ResultT]]) -> list[ResultT]:
    """Return what some parts return, in their order, once all of them have ended.

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


def _settling(memory: WritePath, result: ToolResult) -> list[Awaitable[None]]:
    """Return what the memory gate has to store of a result; none of it raises."""
    found: list[Awaitable[None]] = []
    if result.sources:
        found.append(memory.note_sources(result))
    call = result.call.call.id
    if memory.is_committed(call):
        failed = Fate.FAILED if result.is_error else Fate.ACKNOWLEDGED
        found.append(memory.settle(call, Fate.UNKNOWN if result.is_lost else failed))
    return found


_HOLDERS: Final = (dict, list)
"""Not their union, which Python makes anew at every look."""


def is_large(content: Json) -> bool:
    """Return whether to judge a call, or to label a result, would hold up the calls of others."""
    room = LARGE - 2
    waiting: list[Json] = [content]
    for item in waiting:
        if isinstance(item, str):
            room -= len(item)
        elif isinstance(item, _HOLDERS):
            room -= 2 * len(item)
            if room <= 0:
                return True
            waiting += item.values() if isinstance(item, dict) else item
    return room <= 0
