"""The policy information point: where the values of a call came from, and who approved it.

Pure: no I/O.  The service asks it what to read with an attempt, what the answer means, and what to
write with a completion; every method may raise, and then the call is blocked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guard.core.verdict import Action
from guard.memory.approvals import Approvals
from guard.memory.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.model import ClassifiedCall, Identity, Integrity, ToolResult
    from guard.core.policy import Policy
    from guard.core.ports import Attempt, Write
    from guard.core.trajectory import Snapshot
    from guard.core.verdict import Verdict
    from guard.memory.questions import Question
    from guard.memory.seal import Seal


class InformationPoint:
    """Joins the provenance ledger and the approvals of one deployment.

    Args:
        seal: the deployment's key.
    """

    def __init__(self, seal: Seal) -> None:
        self.ledger = Ledger(seal)
        self.approvals = Approvals(seal)

    def ask(
        self, policy: Policy | None, classified: ClassifiedCall, attempt: Attempt
    ) -> tuple[Question | None, Attempt]:
        """Return the attempt with everything that is to be read with it."""
        if policy is None:
            return None, attempt
        question = self.ledger.ask(policy, classified)
        grant = self.approvals.digest(policy, classified.call)
        return question, replace(attempt, lookups=question.lookups(), grant=grant)

    def trace(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        question: Question | None,
        snapshot: Snapshot,
    ) -> tuple[ClassifiedCall, bool]:
        """Return the call with the rung of each value, and whether a human granted it.

        Raises:
            ValueError: the store's answer does not fit the question.
        """
        if policy is None or question is None:
            return classified, False
        granted = snapshot.grant is not None and self.approvals.holds(
            policy, classified.call, snapshot.grant
        )
        traced = self.ledger.trace(policy, classified, question, snapshot, granted=granted)
        return traced, granted

    def question(
        self, policy: Policy | None, classified: ClassifiedCall, verdict: Verdict
    ) -> tuple[Write, ...]:
        """Return what ``guard approve`` needs to know of a call that a human may release."""
        if policy is None or verdict.action is not Action.ASK:
            return ()
        return (self.approvals.question(policy, classified.call),)

    def learn(self, policy: Policy | None, result: ToolResult) -> tuple[tuple[Write, ...], bool]:
        """Return the labels that a result brings, and whether a bound cut any off."""
        if policy is None:
            return result.call.on_executed, True
        learnt, overflow = self.ledger.learn(policy, result)
        return (*result.call.on_executed, *learnt), overflow

    def hear(
        self, policy: Policy | None, identity: Identity, text: str, at: float
    ) -> tuple[Write, ...]:
        """Return the records of what a user names in a prompt."""
        return () if policy is None else tuple(self.ledger.hear(policy, identity, text, at))

    def imported(
        self,
        policy: Policy | None,
        tenant: str,
        items: Sequence[tuple[str, str, Integrity]],
        at: float,
    ) -> tuple[Write, ...]:
        """Return the labels of memory that existed before the guard."""
        if policy is None:
            return ()
        return tuple(self.ledger.imported(policy.limits, tenant, items, at))
