"""One memory write through the gate: stage, check, record, commit or refuse, settle.

The candidate lives in the staging store alone until it is committed; it is committed after its
audit line is written and before a byte is forwarded; what became of it is settled before the answer
is released.  ``reached`` is told of each step, so that tests can kill the process between any two.
A read of a partition that the operator has closed is refused here as well.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from guard.core.calls import SAVING, ClassifiedCall, ToolResult, TracedCall
from guard.core.mappings import (
    DriftSettings,
    MemoryLimits,
    MemoryPolicy,
    ProposalMapping,
    ReadMapping,
)
from guard.core.memory import (
    DEFAULT_STORE,
    Candidate,
    Fate,
    GateDecision,
    MemoryClass,
    SecondLook,
    SourceEvidence,
    SourceType,
    StagedFacts,
    Trust,
)
from guard.core.model import UNKNOWN_TASK, Identity, Integrity, Json, ToolCall
from guard.core.policy import Action, Mode, Policy, Verdict
from guard.memory.candidate import (
    LabelledEvidence,
    candidate_of_call,
    candidates_of_result,
    named_texts,
    receipt_of,
)
from guard.memory.drift import endorsed
from guard.memory.gate import CommitGate, GateLog, with_reasons
from guard.provenance.result_documents import marks_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guard.core.metrics import Metrics
    from guard.core.ports import AuditLog
    from guard.core.trajectory import Snapshot

    Checker: TypeAlias = Callable[[Candidate, MemoryClass], Awaitable[bool]]
    """The operator's second look: whether a candidate may enter a class.  Never raises."""

DEFAULT_PARTITION: Final = "default"
"""The partition of whatever names none."""
READ_PARTITIONS: Final = 64
"""Partitions that one read may name; with more it is refused."""
IN_FLIGHT: Final = 100_000
"""Writes whose answers this process awaits; the oldest is then left to be resolved later."""
NO_GATE: Final = MemoryPolicy(matrix={}, second_look={}, writes=())
"""Stands for a policy without a ``memory`` section."""


class Staging(Protocol):
    """The staging store, isolated from every memory store."""

    limits: MemoryLimits

    async def stage(self, candidate: Candidate, receipt: str) -> StagedFacts:
        """Stage a candidate and return what is known of it, atomically."""
        ...

    async def commit(
        self, candidate: Candidate, decision: GateDecision, facts: StagedFacts, receipt: str
    ) -> str:
        """Commit it, or return the reason why another writer or time has overtaken it."""
        ...

    async def refuse(self, candidate: Candidate, reasons: tuple[str, ...]) -> Trust:
        """Refuse it and lower the trust in who is to blame."""
        ...

    async def settle(
        self,
        candidate: Candidate,
        fate: Fate,
        subjects: frozenset[str] = frozenset(),
        drift: DriftSettings | None = None,
    ) -> tuple[str, ...]:
        """Record its fate; return the subjects found to drift with it."""
        ...

    async def settle_by_id(self, tenant: str, identifier: str, fate: Fate) -> None:
        """Record the fate of one that another process has committed."""
        ...

    async def read(self, identity: Identity, sources: frozenset[bytes]) -> None:
        """Remember that a session has read from sources, given by their marks."""
        ...

    async def is_closed(self, identity: Identity, store: str, partitions: frozenset[str]) -> bool:
        """Return whether the operator has closed any of the partitions of a store."""
        ...

    async def reserve(self, candidate: Candidate) -> bool:
        """Bind its nonce to its text."""
        ...


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """A candidate that the gate lets through, until it is settled."""

    candidate: Candidate
    facts: StagedFacts
    decision: GateDecision
    receipt: str


class WritePath:
    """Takes memory writes through the gate.

    Args:
        policy: without a ``memory`` section no call is a write of the gate's.
        staging: where candidates are isolated.
        audit: one line per candidate, before it is committed.
        metrics: counts outcomes by reason and class.
        checker: looks again at what goes to a class whose second look is ``checker``.
        reached: told the name of each step as it is reached; for tests.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        staging: Staging,
        audit: AuditLog,
        metrics: Metrics,
        checker: Checker | None = None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._staging = staging
        self._log = GateLog(audit, metrics)
        self._checker = checker
        self._reached = reached
        self.swap_policy(policy)
        self._staged: OrderedDict[str, StagedWrite] = OrderedDict()
        self._committed: OrderedDict[str, StagedWrite | tuple[str, MemoryClass]] = OrderedDict()
        """By call; tenant and class of a write that another process has committed."""

    def swap_policy(self, policy: Policy) -> None:
        """Judge every later write by another policy; writes in flight are settled all the same."""
        self._policy = policy
        self._memory = policy.memory or NO_GATE
        self.has_reads = bool(self._memory.reads)
        """True if some calls count as reads of partitions, which may be closed."""
        self._staging.limits = self._memory.limits
        self._gate = CommitGate(self._memory, policy.status_of)
        self._evidence = LabelledEvidence(policy)

    @property
    def gated(self) -> MemoryPolicy | None:
        """The policy's ``memory`` section in force; None where nothing is gated."""
        return self._policy.memory

    async def judge(self, call: TracedCall, snapshot: Snapshot, verdict: Verdict) -> Verdict:
        """Stage and check a call that the policy lets through; return its verdict with the gate's.

        Never raises: whatever goes wrong refuses the write.
        """
        classified = call.classified
        mapping = classified.memory_write
        if mapping is None:
            read = await judge_read(self._memory, self._staging, classified, verdict)
            if read.reasons[:1] and read.reasons[0].code == "gate_error":
                self._log.failed()
            return read
        if not verdict.action.forwards:
            return verdict
        self._reached("asked")
        candidate: Candidate | None = None
        try:
            evidence = self._evidence.evidence(call, snapshot)
            candidate = candidate_of_call(classified, mapping, evidence, self._memory.limits)
            reasons, decision = await self._stage(candidate)
        except Exception as error:  # noqa: BLE001  (any failure of the gate refuses the write)
            self._log.failed()
            reasons, decision = ("gate_error",), None
            self._log.count("refused", reasons, mapping.target)
            return with_reasons(verdict, reasons, mapping.target, (), type(error).__name__)
        if reasons:
            allowed = decision.allowed if decision else ()
            return with_reasons(verdict, reasons, candidate.target, allowed)
        return verdict

    async def _stage(self, candidate: Candidate) -> tuple[tuple[str, ...], GateDecision]:
        receipt = receipt_of(candidate, self._policy.digest)
        facts = await self._staging.stage(candidate, receipt)
        self._reached("staged")
        decision = await self._looked_at_again(candidate, self._gate.decide(candidate, facts))
        self._log.record(candidate, decision, receipt, decision.reasons)
        self._reached("recorded")
        if decision.commits:
            self._staged[candidate.id] = StagedWrite(candidate, facts, decision, receipt)
            self._bound(self._staged)
        else:
            await self._staging.refuse(candidate, decision.reasons)
            self._reached("refused")
            self._log.count("refused", decision.reasons, candidate.target)
        return decision.reasons, decision

    async def _looked_at_again(self, candidate: Candidate, decision: GateDecision) -> GateDecision:
        """Ask the operator's checker, where the class asks for one; its failure is a refusal."""
        look = self._memory.second_look.get(decision.target)
        if self._checker is None or not decision.commits or look is not SecondLook.CHECKER:
            return decision
        if await self._checker(candidate, decision.target):
            return decision
        return replace(decision, commits=False, reasons=("second_look_failed",))

    async def commit(self, call_id: str, verdict: Verdict) -> Verdict:
        """Commit a staged call right before it is forwarded; return a block where that fails."""
        write = self._staged.pop(call_id, None)
        if write is None:
            return verdict
        try:
            reason = await self._staging.commit(
                write.candidate, write.decision, write.facts, write.receipt
            )
            if not reason:
                self._reached("committed")
                self._committed[call_id] = write
                self._bound(self._committed)
                self._log.count("committed", (), write.decision.target)
                return verdict
            self._log.record(write.candidate, write.decision, write.receipt, (reason,))
            await self._staging.refuse(write.candidate, (reason,))
        except Exception:  # noqa: BLE001  (any failure of the gate refuses the write)
            # It may have been committed in the store and was not sent: it stays in flight there
            # and is resolved like any other write of unknown fate.
            self._log.failed()
            reason = "gate_error"
        self._log.count("refused", (reason,), write.decision.target)
        return with_reasons(verdict, (reason,), write.decision.target, ())

    async def discard(self, call_id: str) -> None:
        """Give up a call that will not be sent: staged, it expires; committed, it is abandoned.

        Never raises.
        """
        self._staged.pop(call_id, None)
        await self.settle(call_id, Fate.ABANDONED)

    def is_committed(self, call_id: str) -> bool:
        """Return whether a call is a write that was committed and has no answer yet."""
        return call_id in self._committed

    def adopt(self, call: ToolCall, target: MemoryClass) -> None:
        """Take over a write that another process may have committed: its answer comes here."""
        self._committed[call.id] = call.identity.tenant, target
        self._bound(self._committed)

    async def settle(self, call_id: str, fate: Fate) -> None:
        """Record the fate of a write, before its answer is released.  Never raises."""
        write = self._committed.pop(call_id, None)
        if write is None:
            return
        self._reached("answered")
        try:
            target = await self._settled(call_id, write, fate)
        except Exception:  # noqa: BLE001  (its answer is released either way)
            # The store answered and the agent may know.  In flight it stays; reading back tells.
            self._log.failed()
        else:
            self._log.count(fate.value, (), target)
        self._reached("settled")

    async def _settled(
        self, call_id: str, write: StagedWrite | tuple[str, MemoryClass], fate: Fate
    ) -> MemoryClass:
        """Record the fate of a write in the staging store, and return its class."""
        if not isinstance(write, StagedWrite):
            tenant, target = write
            await self._staging.settle_by_id(tenant, call_id, fate)
            return target
        drift = self._memory.drift if fate is Fate.ACKNOWLEDGED else None
        subjects = endorsed(write.candidate.texts) if drift is not None else frozenset()
        for subject in await self._staging.settle(write.candidate, fate, subjects, drift):
            self._log.drift(write.candidate, subject)
        return write.decision.target

    def sourced(self, result: ToolResult) -> ToolResult:
        """Return a result with its sources, for the gate and the labels: what is released is read.

        Never raises: of a result without them, the principal is to blame.
        """
        if self._memory is NO_GATE or result.call.classified.role in SAVING:
            return result
        try:
            return replace(result, sources=marks_of(result))
        except Exception:  # noqa: BLE001  (blame then falls on the principal)
            self._log.failed()
            return result

    async def note_sources(self, result: ToolResult) -> None:
        """Remember whom a session reads, by a result from :meth:`sourced`.  Never raises."""
        if not result.sources:
            return
        try:
            await self._staging.read(result.call.call.identity, result.sources)
        except Exception:  # noqa: BLE001  (blame then falls on the principal)
            self._log.failed()

    def settling(self, result: ToolResult) -> list[Awaitable[None]]:
        """Return the records of a result that the gate has to store; none of them raises."""
        found: list[Awaitable[None]] = []
        if result.sources:
            found.append(self.note_sources(result))
        call = result.call.call.id
        if self.is_committed(call):
            failed = Fate.FAILED if result.is_error else Fate.ACKNOWLEDGED
            found.append(self.settle(call, Fate.UNKNOWN if result.is_lost else failed))
        return found

    async def judge_result(self, result: ToolResult) -> Verdict | None:
        """Judge the memory updates that a result proposes; a verdict means: withhold the result.

        The write of a proposal passes the gate itself; here its nonce is bound to its text.
        Never raises: what was not judged is not released.
        """
        tool = result.call.call.tool
        mapping = self._memory.proposal(tool)
        mappings: tuple[ProposalMapping, ...] = (mapping,) if mapping is not None else ()
        if tool == UNKNOWN_TASK:
            # Its tool is not known: an update that any tool could propose counts.
            mappings = self._memory.proposals
        for each in mappings if not result.is_error else ():
            withheld = await self._judge_proposals(result, each)
            if withheld is not None:
                return withheld
        return None

    async def _judge_proposals(
        self, result: ToolResult, mapping: ProposalMapping
    ) -> Verdict | None:
        verdict = Verdict(Action.BLOCK, self._policy.mode, (), self._policy.digest)
        try:
            for candidate in self._proposed(result, mapping):
                reasons, allowed = await self._propose(candidate)
                if reasons and self._memory.coupling and verdict.mode is Mode.ENFORCE:
                    codes = ("proposal_refused", *reasons)
                    return with_reasons(verdict, codes, candidate.target, allowed)
        except Exception as error:  # noqa: BLE001  (what was not judged is not released)
            self._log.failed()
            detail = type(error).__name__
            return with_reasons(verdict, ("gate_error",), mapping.target, (), detail)
        return None

    def _proposed(self, result: ToolResult, mapping: ProposalMapping) -> list[Candidate]:
        marks = sorted(marks_of(result))
        kinds = frozenset({SourceType.TOOL_RESULT})
        evidence = SourceEvidence(kinds, Integrity.UNTRUSTED, tuple(marks), certain=True)
        limits = self._memory.limits
        return candidates_of_result(
            result.call.classified, mapping, result.content, evidence, limits
        )

    async def _propose(
        self, candidate: Candidate
    ) -> tuple[tuple[str, ...], tuple[MemoryClass, ...]]:
        """Check an update without committing it: the write of it passes the gate itself."""
        nonced = candidate if candidate.nonce else replace(candidate, nonce=candidate.id)
        receipt = receipt_of(nonced, self._policy.digest)
        facts = await self._staging.stage(nonced, receipt)
        decision = self._gate.decide(nonced, facts)
        reasons = decision.reasons
        if not reasons and candidate.nonce and not await self._staging.reserve(nonced):
            reasons = ("content_hash_mismatch",)
        self._log.record(nonced, decision, receipt, reasons)
        if reasons:
            await self._staging.refuse(nonced, reasons)
            self._log.count("proposal_refused", reasons, candidate.target)
        return reasons, decision.allowed

    @staticmethod
    def _bound(writes: OrderedDict[str, Any]) -> None:
        if len(writes) > IN_FLIGHT:
            writes.popitem(last=False)


async def judge_read(
    memory: MemoryPolicy, staging: Staging, classified: ClassifiedCall, verdict: Verdict
) -> Verdict:
    """Return the verdict of a call, as a block where it reads a closed partition.

    Never raises: a store that does not answer refuses the read.
    """
    by_tool = classified.mapping.store if classified.mapping is not None else ""
    mapping = memory.read(classified.call.tool, by_tool)
    if mapping is None or not verdict.action.forwards:
        return verdict
    named = _named(mapping, dict(classified.call.arguments))
    store = mapping.store or by_tool or DEFAULT_STORE
    try:
        closed = len(named) > READ_PARTITIONS or await staging.is_closed(
            classified.call.identity, store, named
        )
    except Exception as error:  # noqa: BLE001  (what cannot be known to be open is closed)
        return with_reasons(verdict, ("gate_error",), MemoryClass.L4, (), type(error).__name__)
    if not closed:
        return verdict
    return with_reasons(verdict, ("partition_quarantined",), MemoryClass.L4, ())


def _named(mapping: ReadMapping, arguments: Json) -> frozenset[str]:
    if mapping.partition is None:
        return frozenset({DEFAULT_PARTITION})
    found = frozenset(named_texts(mapping.partition, arguments))
    return found or frozenset({DEFAULT_PARTITION})
