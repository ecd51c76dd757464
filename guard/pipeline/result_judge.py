"""Results of calls: the verdict before release, and the labels that they leave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guard.core.errors import StateError
from guard.core.metrics import ERRORS, FAIL_CLOSED, LABEL_SATURATION
from guard.core.model import Finding, Identity, Json, Role
from guard.core.policy import Action, Evidence, Policy, Reason, Verdict, blocked_for, decide_result
from guard.core.ports import Completion
from guard.core.work import WorkExceededError
from guard.extensions.propagation.live import withheld
from guard.extensions.propagation.recording import result_events
from guard.pipeline.large_work import LabelledResult, is_large
from guard.provenance.errands import used_writes
from guard.provenance.established import established_writes, sent_writes
from guard.provenance.intake import metered_writes, result_writes
from guard.provenance.label_sets import label_sets
from guard.provenance.saved_values import written_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.calls import ToolResult, TracedCall
    from guard.core.labels import LabelWrite
    from guard.pipeline.decision_log import DecisionParts
    from guard.pipeline.detection import ContentScan, ResultEvidence

SOURCE_NAME: Final = 64
"""Characters of a mapping's pattern that name a source of labels."""


class ResultJudge:
    """Judge of results.

    Args:
        parts: of the guard.
        texts: detectors for incoming text.
        evidence: detectors that rules on results name.
    """

    def __init__(self, parts: DecisionParts, texts: ContentScan, evidence: ResultEvidence) -> None:
        self._parts = parts
        self._marks = parts.stores.marks
        self._seal = parts.seal
        self._metrics = parts.metrics
        self._processes = parts.processes
        self._texts = texts
        self._evidence = evidence

    async def judge(self, result: ToolResult, *, large: bool) -> tuple[ToolResult, Verdict | None]:
        """Return a result as it is released, and the verdict that changes or withholds it."""
        for recorder in self._parts.log.recorders:
            recorder.result(result)
        findings = await self._findings(result) if large else None
        self._texts.of_result(result, findings)
        selected = contained = None
        policy = self._parts.policies.policy
        if policy is not None and policy.selections:
            result, selected = await self._selected(policy, result)
        if policy is not None and policy.propagation is not None:
            result, contained = self._without_contained(policy, result)
        refused = await self.by_rules(result) or contained or selected
        if selected is not None and not selected.enforced.forwards:
            refused = selected
        if self._parts.memory is not None:
            result = self._parts.memory.sourced(result)
            refused = await self._parts.memory.judge_result(result) or refused
        return result, refused

    async def by_rules(self, result: ToolResult) -> Verdict | None:
        """Return the recorded verdict of a rule that withholds a result; None releases it."""
        [verdict] = await self.judge_all(result.call, [result.content])
        return verdict

    async def judge_all(self, call: TracedCall, contents: Sequence[Json]) -> list[Verdict | None]:
        """Return the recorded verdict on each of several results of one call; None releases it."""
        policy = self._parts.policies.policy_for(call.call.identity)
        if policy is None or not policy.index.result_rules:
            return [None] * len(contents)
        found = await self._evidence.find(policy, call.classified, contents)
        return [self._withheld(policy, call, evidence) for evidence in found]

    def _withheld(self, policy: Policy, call: TracedCall, evidence: Evidence) -> Verdict | None:
        verdict = decide_result(policy, call.classified, evidence)
        if verdict is None:
            return None
        if verdict.errors:
            self._metrics.count(ERRORS, "rule")
        return self._parts.log.withheld(call, verdict)

    def failed(self, result: ToolResult, error: Exception) -> Verdict | None:
        """Withhold a result whose judgement failed, with an audit line."""
        self._metrics.count(ERRORS, "other")
        return self._parts.log.withheld(
            result.call, self._parts.log.failure(result.call.call.identity, error)
        )

    def unmarked(self, result: ToolResult) -> Verdict | None:
        """Return the verdict that withholds a result without labels and without a mark."""
        reason = Reason(
            "result_unlabelled",
            "",
            Action.BLOCK,
            "neither its labels nor a mark for missing labels could be stored",
            remedy="go on without this answer",
        )
        return self._parts.log.withheld(
            result.call, blocked_for(self._parts.policies.policy, reason)
        )

    async def _selected(
        self, policy: Policy, result: ToolResult
    ) -> tuple[ToolResult, Verdict | None]:
        """Mark items that a graph memory's selection does not vouch for, before their release.

        Returns:
            the result as it is released, and the verdict that changes it, or that withholds it
            because the marks could not be stored.
        """
        try:
            found = await self._parts.selections.learn(policy, result)
            if found.writes:
                await self._parts.stores.sessions.note(result.call.call.identity, found.writes)
        except Exception:  # noqa: BLE001  (an answer that is not marked would vouch)
            self._metrics.count(ERRORS, "state")
            reason = Reason(
                "selection_unmarked",
                "",
                Action.BLOCK,
                "items that the memory's selection does not vouch for could not be marked",
                remedy="recall it again later",
            )
            return result, self._parts.log.withheld(result.call, blocked_for(policy, reason))
        if found.reason is None:
            return result, None
        verdict = Verdict(
            Action.REDACT, policy.mode, (found.reason,), policy.digest, instead=found.content
        )
        verdict = self._parts.log.record(result.call, verdict)
        return replace(result, content=found.content), verdict

    def _without_contained(
        self, policy: Policy, result: ToolResult
    ) -> tuple[ToolResult, Verdict | None]:
        """Return a result without contained items, and the verdict that removes them."""
        apart = self._parts.containment.taken_apart(result)
        if apart is None:
            return result, None
        verdict = self._parts.log.record(result.call, withheld(policy, apart))
        if verdict.enforced is Action.REDACT:
            result = replace(result, content=apart.content)
        return result, None if verdict.enforced is Action.ALLOW else verdict

    # --- labels ----------------------------------------------------------------------------------

    async def executed(self, result: ToolResult, *, large: bool) -> bool:
        """Mark the call of a result executed and store the labels of the result.

        Returns:
            False if neither labels nor a mark for missing labels could be stored.
        """
        kept = True
        call, classified = result.call.call, result.call.classified
        writes: tuple[LabelWrite, ...] = ()
        overflow, source = True, ""
        try:
            if large or is_large(call.arguments):
                writes, overflow = await self._large_labels(result)
            else:
                writes, overflow = self._labels(result)
            self._metrics.observe(LABEL_SATURATION, overflow, "result")
            mapping = classified.mapping
            source = mapping.pattern[:SOURCE_NAME] if mapping is not None else "unmapped"
        except Exception:  # noqa: BLE001  (a result that could not be labelled leaves a mark)
            self._metrics.count(ERRORS, "provenance")
            writes, overflow, source = (), True, ""
            kept = self._mark(call.identity)
        return kept & await self.complete(
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

    async def _large_labels(self, result: ToolResult) -> tuple[tuple[LabelWrite, ...], bool]:
        """Return the labels of a large result; other calls are judged meanwhile.

        After another process has read the result, the rest is short and needs no thread: a thread
        would share the interpreter with small calls.
        """
        policy = self._parts.policies.policy_for(result.call.call.identity)
        known = None if policy is None else await self._read_apart(policy, result)
        is_long = policy is not None and policy.propagation is not None
        return await self._parts.threads.run_if(is_long, self._labels, result, known)

    async def read_declared(
        self, policy: Policy, result: ToolResult, *, deep: bool
    ) -> tuple[list[Finding], list[LabelWrite]]:
        """Return the findings in a server's own declarations, and their labels.

        Raises:
            WorkExceededError: it needs more work than one message may.
            StateError: it is large, and could not be read in the other process.
        """
        if not is_large(result.content):
            found = self._texts.find(result.content, deep=deep)
            return found, result_writes(self._seal, policy, result)[0]
        found = await self._findings(result, deep=deep)
        try:
            labels, _ = await self._read_apart(policy, result)
        except WorkExceededError:
            raise
        except Exception as error:
            raise StateError("the process that reads large messages failed") from error
        return found, labels

    async def _findings(self, result: ToolResult, *, deep: bool = False) -> list[Finding]:
        """Return the findings of detectors in a large result."""
        run = self._processes.scan or self._parts.threads.run
        return await self._texts.find_apart(run, result.content, deep=deep)

    async def _read_apart(self, policy: Policy, result: ToolResult) -> LabelledResult:
        """Return the labels of a result, read in another process, or else in a thread.

        Raises:
            Exception: that process died, took too long, or has too much to do.
        """
        read = self._processes.read_result
        if read is None:
            return await self._parts.threads.run(metered_writes, self._seal, policy, result)
        return await read(self._seal, policy, result)

    def _labels(
        self, result: ToolResult, known: LabelledResult | None = None
    ) -> tuple[tuple[LabelWrite, ...], bool]:
        """Return the labels of a result, and True if a bound cut any off.

        Args:
            result: of a call.
            known: labels of its content, if it was read already.
        """
        traced = result.call
        policy = self._parts.policies.policy_for(traced.call.identity)
        saved = traced.on_executed
        if policy is None:
            return saved, True
        seal, sets = self._seal.folding(policy.fold), label_sets(policy.limits)
        saved += tuple(written_labels(seal, sets, traced, result.content))
        failed = result.is_error or result.is_lost or result.says_error
        mapping = traced.classified.mapping
        acts = traced.tool is not None or (mapping is not None and mapping.action is not None)
        uses = traced.context is not None and bool(traced.context.established)
        acts = acts or uses or bool(traced.reached) or traced.classified.role is Role.SEND
        if not failed and acts:
            saved += tuple(established_writes(seal, sets, traced))
            saved += tuple(sent_writes(self._seal, sets, traced))
        saved += tuple(used_writes(self._seal, traced))
        reads = metered_writes if is_large(result.content) else result_writes
        learnt, overflow = known or reads(self._seal, policy, result)
        return (*saved, *learnt, *result_events(self._seal, policy, result)), overflow

    async def complete(self, completion: Completion) -> bool:
        """Store the end of a call; keep a mark if the store fails.

        Returns:
            False if the mark could not be kept either.
        """
        try:
            await self._parts.stores.sessions.complete(completion)
        except Exception:  # noqa: BLE001  (the mark below keeps what the store could not take)
            self._metrics.count(ERRORS, "state")
            self._metrics.set(FAIL_CLOSED, 1, "state")
            return not completion.executed or self._mark(completion.identity)
        return True

    def _mark(self, identity: Identity) -> bool:
        """Keep a mark for a result without labels; return False if that failed."""
        try:
            self._marks.add((identity.tenant, identity.principal), 1)
        except OSError:
            self._metrics.count(ERRORS, "state")
            return False
        return True
