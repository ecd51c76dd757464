"""What a save's text is made of, as the wire shows it.  Pure: no I/O.

The narrow port between the gate and the labels: the gate asks an :class:`EvidenceSource` and never
the agent.  :class:`TrajectoryEvidence` needs nothing but the trajectory: whoever has read anything
that strangers can write may be writing just that.  :class:`LabelledEvidence` is that and the labels
of the values in the text, and the worse of the two counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from guard.core.memory import NO_EVIDENCE, SourceEvidence, SourceType
from guard.core.model import Integrity, Role

if TYPE_CHECKING:
    from guard.core.calls import TracedCall
    from guard.core.policy import Policy
    from guard.core.trajectory import Snapshot, Window

READS: Final = frozenset({Role.RECALL, Role.LIST, Role.RETRIEVE, Role.OTHER})
"""Roles whose results carry text into the session.  Saves, drafts and sends answer receipts."""
READ_AND_WRITTEN: Final = frozenset({SourceType.MODEL_INFERENCE, SourceType.TOOL_RESULT})
"""What the agent writes after it has read: its own inference, over somebody's text."""


class EvidenceSource(Protocol):
    """Says where the text of a save comes from."""

    def evidence(self, call: TracedCall, snapshot: Snapshot) -> SourceEvidence:
        """Return the sources of a save.  May raise: an error refuses the write."""
        ...


class TrajectoryEvidence:
    """Sources by what the session, and its principal, have read so far.

    Args:
        policy: says which results are untrusted.
    """

    def __init__(self, policy: Policy) -> None:
        untrusted = {
            mapping.role for mapping in policy.tools if mapping.source is Integrity.UNTRUSTED
        }
        # Tools that no mapping claims have role `other`, and their results are untrusted.
        self._tainting = tuple((untrusted | {Role.OTHER}) & READS)

    def evidence(self, call: TracedCall, snapshot: Snapshot) -> SourceEvidence:
        """Return model inference, and tool results where any untrusted one was read."""
        del call
        if self._has_read(snapshot.session) or self._has_read(snapshot.principal):
            return SourceEvidence(READ_AND_WRITTEN, Integrity.UNTRUSTED)
        # Without an authenticated prompt channel, nothing proves that the user said it.
        return SourceEvidence(frozenset({SourceType.MODEL_INFERENCE}), Integrity.ADVISORY)

    def _has_read(self, window: Window) -> bool:
        # Calls in flight count: their results may be in the text already.
        return window.unlabelled > 0 or any(window.possible(role) > 0 for role in self._tainting)


class LabelledEvidence:
    """Sources by the labels of what the text is made of, and by what was read before it.

    Args:
        policy: says which results are untrusted.
    """

    def __init__(self, policy: Policy) -> None:
        self._trajectory = TrajectoryEvidence(policy)

    def evidence(self, call: TracedCall, snapshot: Snapshot) -> SourceEvidence:
        """Return the user's input where the user said all of it, else the worse of the two."""
        saved = call.saved
        if saved is None:
            return NO_EVIDENCE
        sources = tuple(sorted(saved.origins))
        if saved.prompted:
            return SourceEvidence(frozenset({SourceType.USER_INPUT}), saved.label)
        if saved.label is Integrity.UNTRUSTED:
            return replace(NO_EVIDENCE, types=READ_AND_WRITTEN, sources=sources)
        return self._trajectory.evidence(call, snapshot)
