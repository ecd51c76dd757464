"""Memory updates that a tool's result proposes: judged before the result is released.  Pure.

The write of a proposal passes the gate itself; here nothing is committed, but the nonce of an
update is bound to its text, and a result that proposes a refused update is withheld whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guard.core.memory import SourceEvidence, SourceType
from guard.core.model import UNKNOWN_TASK, Integrity
from guard.core.policy import Action, Mode, Verdict
from guard.memory.candidate import candidates_of_result, receipt_of
from guard.memory.gate import with_reasons
from guard.provenance.result_documents import marks_of

if TYPE_CHECKING:
    from guard.core.calls import ToolResult
    from guard.core.mappings import MemoryPolicy, ProposalMapping
    from guard.core.memory import Candidate, MemoryClass
    from guard.core.policy import Policy
    from guard.memory.gate import CommitGate, GateLog
    from guard.memory.staging import Staging


class Proposals:
    """Judges the updates in results under one policy.

    Args:
        policy: in force.
        memory: its ``memory`` section.
        gate: made of both.
        staging: where candidates are isolated.
        log: audit lines and counts.
    """

    def __init__(
        self,
        policy: Policy,
        memory: MemoryPolicy,
        gate: CommitGate,
        staging: Staging,
        log: GateLog,
    ) -> None:
        self._policy = policy
        self._memory = memory
        self._gate = gate
        self._staging = staging
        self._log = log

    async def judge(self, result: ToolResult) -> Verdict | None:
        """Return a verdict where the result must be withheld; in monitor mode nothing is.

        Never raises: what was not judged is not released.
        """
        tool = result.call.call.tool
        mapping = self._memory.proposal(tool)
        mappings: tuple[ProposalMapping, ...] = (mapping,) if mapping is not None else ()
        if tool == UNKNOWN_TASK:
            # Whose result it is nobody knows: an update that any tool could propose counts.
            mappings = self._memory.proposals
        for each in mappings if not result.is_error else ():
            withheld = await self._judge(result, each)
            if withheld is not None:
                return withheld
        return None

    async def _judge(self, result: ToolResult, mapping: ProposalMapping) -> Verdict | None:
        verdict = Verdict(Action.BLOCK, self._policy.mode, (), self._policy.digest)
        try:
            for candidate in self._candidates(result, mapping):
                reasons, allowed = await self._propose(candidate)
                if reasons and self._memory.coupling and verdict.mode is Mode.ENFORCE:
                    codes = ("proposal_refused", *reasons)
                    return with_reasons(verdict, codes, candidate.target, allowed)
        except Exception as error:  # noqa: BLE001  (what was not judged is not released)
            self._log.failed()
            detail = type(error).__name__
            return with_reasons(verdict, ("gate_error",), mapping.target, (), detail)
        return None

    def _candidates(self, result: ToolResult, mapping: ProposalMapping) -> list[Candidate]:
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
