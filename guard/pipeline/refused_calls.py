"""Refused calls: marked in the store, with a request for approval if a person may grant them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from guard.core.calls import ClassifiedCall, TracedCall, untraced
from guard.core.metrics import ERRORS
from guard.core.model import Role, ToolCall
from guard.core.policy import Action, Policy
from guard.core.ports import Completion
from guard.extensions.propagation.events import asked_writes
from guard.pipeline.outcome import JudgedCall
from guard.provenance.approvals import Approvals
from guard.provenance.principal_status import AskCounter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.labels import LabelWrite
    from guard.pipeline.decision_log import DecisionParts
    from guard.pipeline.result_judge import ResultJudge


class RefusedCalls:
    """Records of calls that are not forwarded.

    Args:
        parts: of the guard.
        results: stores the ends of calls.
        open_loop: for replay: a refused call is not marked, because the recording executed it.
    """

    def __init__(self, parts: DecisionParts, results: ResultJudge, *, open_loop: bool) -> None:
        self._parts = parts
        self._results = results
        self._approvals = Approvals(parts.seal)
        self._asks = AskCounter(parts.seal, parts.stores.sessions)
        self._open_loop = open_loop

    async def mark(self, refused: Sequence[JudgedCall]) -> None:
        """Mark the refused calls of one message."""
        if self._open_loop:
            return
        policy = self._parts.policies.policy_for(refused[0].call.call.identity)
        asked = [one for one in refused if one.verdict.action is Action.ASK]
        requests: list[tuple[LabelWrite, ...]] = []
        if policy is not None and asked:
            requests = [*self._approvals.requests(policy, asked)]
        ends: list[Completion] = []
        for traced, verdict in refused:
            writes: tuple[LabelWrite, ...] = ()
            if policy is not None and requests and verdict.action is Action.ASK:
                writes = requests.pop(0)
                if policy.propagation is not None or policy.approvals.asks:
                    writes += await self._ask_writes(policy, traced)
            call, role = traced.classified.call, traced.classified.role
            ends.append(
                Completion(call.id, call.identity, role, call.at, executed=False, writes=writes)
            )
        if len(ends) == 1:
            await self._results.complete(ends[0])
            return
        with self._parts.stores.sessions.together():
            await asyncio.gather(*map(self._results.complete, ends))

    async def _ask_writes(self, policy: Policy, asked: TracedCall) -> tuple[LabelWrite, ...]:
        """Return the records of an asked call besides its request for approval."""
        writes: tuple[LabelWrite, ...] = ()
        if policy.propagation is not None:
            writes = asked_writes(self._parts.seal, asked.on_executed)
        if policy.approvals.asks:
            try:
                writes += await self._asks.noted(policy, asked.call)
            except Exception:  # noqa: BLE001  (the call is refused either way)
                # It does not count towards a pause.
                self._parts.metrics.count(ERRORS, "state")
        return writes

    async def failed(
        self, calls: Sequence[ToolCall], judged: Sequence[JudgedCall], error: Exception
    ) -> list[JudgedCall]:
        """Refuse a message whose judgement failed, each call with an audit line.  Never raises.

        Args:
            calls: of the message.
            judged: the calls that were on record before.
            error: the failure.
        """
        self._parts.metrics.count(ERRORS, "other")
        traced = {one.call.call.id: one.call for one in judged}
        found: list[JudgedCall] = []
        for call in calls:
            known = traced.get(call.id) or untraced(ClassifiedCall(call, Role.OTHER))
            verdict = self._parts.log.record(known, self._parts.log.failure(call.identity, error))
            try:
                if self._parts.memory is not None:
                    await self._parts.memory.discard(call.id)
            except Exception:  # noqa: BLE001  (it stays staged, and expires)
                self._parts.metrics.count(ERRORS, "memory")
            if not verdict.enforced.forwards and not self._open_loop:
                role = known.classified.role
                await self._results.complete(
                    Completion(call.id, call.identity, role, call.at, executed=False)
                )
            found.append(JudgedCall(known, verdict))
        return found
