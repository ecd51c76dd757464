"""The policy information point: where the values of a call came from, and who approved it.

Pure: no I/O.  The service asks it what to read with an attempt, what the answer means, and what to
write with a completion; every method may raise, and then the call is blocked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guard.core.calls import untraced
from guard.core.ports import Attempt
from guard.core.verdict import Action
from guard.provenance.approvals import Approvals
from guard.provenance.ledger import Ledger
from guard.tool_pins.pins import Pins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.calls import ClassifiedCall, ToolResult, TracedCall
    from guard.core.labels import LabelWrite
    from guard.core.model import Identity, Integrity, ToolCall
    from guard.core.policy import Policy
    from guard.core.trajectory import Snapshot
    from guard.core.verdict import Verdict
    from guard.provenance.label_query import LabelQuery
    from guard.provenance.seal import Seal


class InformationPoint:
    """Joins the provenance ledger and the approvals of one deployment.

    Args:
        seal: the deployment's key.
    """

    def __init__(self, seal: Seal) -> None:
        self.ledger = Ledger(seal)
        self.approvals = Approvals(seal)
        self.pins = Pins(seal)

    def ask(
        self, policy: Policy | None, classified: ClassifiedCall, unlabelled: int = 0
    ) -> tuple[LabelQuery | None, Attempt]:
        """Return the attempt of a call with everything that is to be read with it.

        Args:
            policy: the policy in force.
            classified: the call.
            unlabelled: results of its principal released unlabelled since the last attempt.
        """
        call, role = classified.call, classified.role
        if policy is None:
            return None, Attempt(call.id, call.identity, role, call.at, unlabelled)
        question = self.ledger.ask(policy, classified)
        lookups = self.ledger.lookups(question)
        if call.upstream:
            # First, and taken off again before the question reads its own answers.
            lookups = (self.pins.mark_of(call.upstream, call.tool), *lookups)
        grant = self.approvals.digest(policy, call)
        return question, Attempt(call.id, call.identity, role, call.at, unlabelled, lookups, grant)

    def trace(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        question: LabelQuery | None,
        snapshot: Snapshot,
    ) -> tuple[TracedCall, bool]:
        """Return the call with the rung of each value, and whether a human granted it.

        Raises:
            ValueError: the store's answer does not fit the question.
        """
        if policy is None or question is None:
            return untraced(classified), False
        granted = snapshot.grant is not None and self.approvals.holds(
            policy, classified.call, snapshot.grant
        )
        if not classified.call.upstream:
            traced = self.ledger.trace(classified, question, snapshot, granted=granted)
            return traced, granted
        mark, *labels = snapshot.labels
        known = replace(snapshot, labels=tuple(labels))
        traced = self.ledger.trace(classified, question, known, granted=granted)
        return (traced if mark is None else replace(traced, redefined=True)), granted

    def question(
        self, policy: Policy | None, call: ToolCall, verdict: Verdict
    ) -> tuple[LabelWrite, ...]:
        """Return what ``guard approve`` needs to know of a call that a human may release."""
        if policy is None or verdict.action is not Action.ASK:
            return ()
        return (self.approvals.question(policy, call),)

    def learn(
        self, policy: Policy | None, result: ToolResult
    ) -> tuple[tuple[LabelWrite, ...], bool]:
        """Return the labels that a result brings, and whether a bound cut any off."""
        if policy is None:
            return result.call.on_executed, True
        learnt, overflow = self.ledger.learn(policy, result)
        return (*result.call.on_executed, *learnt), overflow

    def told(self, policy: Policy, result: ToolResult, *, is_read: bool) -> tuple[LabelWrite, ...]:
        """Return the labels of what a server says besides results."""
        return tuple(self.ledger.learn(policy, result, is_read=is_read)[0])

    def hear(
        self, policy: Policy | None, identity: Identity, text: str, at: float
    ) -> tuple[LabelWrite, ...]:
        """Return the records of what a user names in a prompt."""
        return () if policy is None else tuple(self.ledger.hear(policy, identity, text, at))

    def claims(
        self, policy: Policy | None, identity: Identity, values: Sequence[str], at: float
    ) -> tuple[LabelWrite, ...]:
        """Return the records of what an agent says that its user named."""
        return () if policy is None else self.ledger.claims(policy, identity, values, at)

    def imported(
        self,
        policy: Policy | None,
        tenant: str,
        items: Sequence[tuple[str, str, Integrity]],
        at: float,
    ) -> tuple[LabelWrite, ...]:
        """Return the labels of memory that existed before the guard."""
        if policy is None:
            return ()
        return tuple(self.ledger.imported(policy.limits, tenant, items, at))
