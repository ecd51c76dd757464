"""The guard: judges calls and observes results.  Never raises.

:meth:`Guard.judge` is hops 3 to 6 of ``docs/explanation/architecture.md``: the state before the
call and the labels of its values in one atomic round trip, the detectors, the pure PDP, the memory
gate, the audit line and the metrics.  :meth:`Guard.observe` takes the result.  The PEP carries out
the verdict (hop 7).
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from guard.core.policy import Action, Policy, Verdict
from guard.extensions.propagation.live import Containment
from guard.pipeline.call_judge import CallJudge
from guard.pipeline.decision_log import DecisionLog, DecisionParts, Records
from guard.pipeline.detection import ContentScan, Detection, ResultEvidence
from guard.pipeline.large_work import OtherProcesses, Threads, is_large
from guard.pipeline.notes import Notes
from guard.pipeline.outcome import (
    JudgedCall,
    JudgeRequest,
    Outcome,
    all_forward,
    as_one_message,
    refused_with_others,
)
from guard.pipeline.refused_calls import RefusedCalls
from guard.pipeline.result_judge import ResultJudge
from guard.pipeline.selection import SelectionReplays
from guard.pipeline.trial import ActivePolicies, Trial
from guard.provenance.seal import KEY_BYTES, Seal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guard.core.calls import ToolResult, TracedCall
    from guard.core.ports import Detector
    from guard.memory.write_path import WritePath
    from guard.pipeline.stores import Stores


class Guard(ActivePolicies):
    """The PDP with its information points around it.

    Args:
        policy: in force; :meth:`swap_policy` replaces it whole.
        stores: of trajectories, labels and ledgers.
        records: destinations of decision records.
        detectors: run in this order.
        memory: memory gate; None if nothing is gated.
        seal: key of the deployment for labels; by default a random one.
        processes: functions in other processes; by default threads.
        open_loop: for replay: a refused call is not marked, because the recording executed it.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        policy: Policy | None,
        stores: Stores,
        records: Records,
        *,
        detectors: Sequence[Detector] = (),
        memory: WritePath | None = None,
        seal: Seal | None = None,
        processes: OtherProcesses | None = None,
        open_loop: bool = False,
    ) -> None:
        super().__init__(policy)
        self._log = DecisionLog(self, records)
        self._memory = memory
        self._store = stores.sessions
        self._detection = Detection(detectors, records.metrics)
        seal, processes = (
            seal or Seal(secrets.token_bytes(KEY_BYTES)),
            processes or OtherProcesses(),
        )
        parts = DecisionParts(
            policies=self,
            stores=stores,
            seal=seal,
            log=self._log,
            metrics=records.metrics,
            memory=memory,
            threads=Threads(),
            processes=processes,
            selections=SelectionReplays(
                stores, seal, records.audit, records.metrics, processes.select
            ),
            containment=Containment(seal, stores.sessions),
        )
        self.threads = parts.threads
        """Threads for large messages."""
        self.texts = ContentScan(detectors, records.audit, records.metrics)
        """Detectors for incoming text."""
        self.calls = CallJudge(parts, self._detection)
        self.evidence = ResultEvidence(detectors, records.metrics, parts.threads.run)
        """Detectors that rules on results name."""
        self.evidence.prepare(policy)
        self.results = ResultJudge(parts, self.texts, self.evidence)
        self.notes = Notes(parts)
        """Labels of prompts, claims and imported memory."""
        self._refused = RefusedCalls(parts, self.results, open_loop=open_loop)
        self._prepare()

    def swap_policy(self, policy: Policy) -> None:
        """Put another validated policy in force for every call judged from now on.

        Raises:
            GuardError: a detector that the policy names cannot be used; the old policy stays.
        """
        self.evidence.prepare(policy)
        if self._memory is not None:
            self._memory.swap_policy(policy)
        super().swap_policy(policy)
        self._prepare()

    def try_policy(self, trial: Trial | None) -> None:
        """Judge every call by a candidate as well from now on; None ends the trial."""
        super().try_policy(trial)
        self._prepare()

    def _prepare(self) -> None:
        """Prepare detectors before a call waits for them."""
        candidate = None if self.trial is None else self.trial.candidate
        self._detection.prepare((self.policy, candidate))

    # --- calls -----------------------------------------------------------------------------------

    async def judge(self, request: JudgeRequest) -> Outcome:
        """Judge the calls of one message; one round trip however many there are.

        Never raises: a failure is a block with an audit line and a counter.  A refused call has
        been marked so in the store; the caller marks the rest through :meth:`observe`.

        A message is forwarded whole or not at all: if one of its calls is refused, all are (reason
        ``batch_refused``).  A redacted call has the arguments to forward, which ``rewrite`` has put
        into the message.
        """
        judged: list[JudgedCall] = []
        try:
            pending = await self.calls.judge_all(request.calls)
            if len(pending) > 1 or pending[0].verdict.action is Action.REDACT:
                pending = as_one_message(pending, request.rewrite)
            gated = False
            for call, verdict, seconds in pending:
                judged.append(JudgedCall(call, self._log.record(call, verdict, seconds)))
                gated = gated or call.classified.memory_write is not None
            if self._memory is not None and gated:
                judged = await self._commit(self._memory, judged)
            refused = [one for one in judged if not one.verdict.enforced.forwards]
            if refused:
                await self._refused.mark(refused)
        except Exception as error:  # noqa: BLE001  (a call that was not judged must not go out)
            judged = await self._refused.failed(request.calls, judged, error)
        return Outcome(judged)

    async def _commit(self, memory: WritePath, judged: list[JudgedCall]) -> list[JudgedCall]:
        """Commit the staged writes of a message that is about to go out, all or none."""
        if not all_forward(one.verdict for one in judged):
            for call, _ in judged:
                await memory.discard(call.call.id)
            return judged
        after = [await memory.commit(call.call.id, verdict) for call, verdict in judged]
        forwards = all_forward(after)
        final: list[JudgedCall] = []
        for (call, before), committed in zip(judged, after, strict=True):
            verdict = committed
            if not forwards:
                await memory.discard(call.call.id)
                verdict = refused_with_others(verdict)
            if verdict is not before:
                verdict = self._log.record(call, verdict)
            final.append(JudgedCall(call, verdict))
        return final

    def is_committed(self, call: TracedCall) -> bool:
        """Return True if a call is a memory write that the gate has committed."""
        memory = self._memory
        if memory is None or call.classified.memory_write is None:
            return False
        return memory.is_committed(call.call.id)

    def adopt(self, call: TracedCall) -> None:
        """Take over a call that another process has released: its result comes to this one."""
        write = call.classified.memory_write
        if self._memory is not None and write is not None:
            self._memory.adopt(call.call, write.target)

    async def give_back(self, calls: Iterable[TracedCall]) -> None:
        """Put the grants of calls back that no server received.

        Raises:
            StateError: the store did not answer; the grants stay used up.
        """
        for call in calls:
            if call.taken:
                await self._store.note(call.call.identity, call.taken)

    # --- results ---------------------------------------------------------------------------------

    async def observe(self, result: ToolResult) -> Verdict | None:
        """Mark the call of a result executed.  Never raises.

        A verdict means that the result is changed or withheld: by a rule, or because it proposes a
        memory update that the gate refuses.  If the store fails, a local mark is kept and written
        with the next attempt of that principal, before anything of it is judged; without a mark
        the result is withheld.
        """
        large = is_large(result.content)
        refused: Verdict | None
        try:
            result, refused = await self.results.judge(result, large=large)
        except Exception as error:  # noqa: BLE001  (a result that was not judged is withheld)
            refused = self.results.failed(result, error)
        settling = [] if self._memory is None else self._memory.settling(result)
        if settling:
            # Together, so that their scripts travel in one pipeline.
            with self._store.together():
                kept, *_ = await asyncio.gather(
                    self.results.executed(result, large=large), *settling
                )
        else:
            kept = await self.results.executed(result, large=large)
        return refused if kept else self.results.unmarked(result) or refused
