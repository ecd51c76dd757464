"""What a save's text is made of, as the wire shows it.  Pure: no I/O.

The narrow port between the gate and the labels: the gate asks an :class:`EvidenceSource` and never
the agent.  :class:`TrajectoryEvidence` needs nothing but the trajectory: whoever has read anything
that strangers can write may be writing just that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from guard.core.memory import SourceEvidence, SourceType
from guard.core.model import Integrity, Role

if TYPE_CHECKING:
    from guard.core.model import ClassifiedCall
    from guard.core.policy import Policy
    from guard.core.trajectory import Snapshot, Window

READS: Final = frozenset({Role.RECALL, Role.LIST, Role.RETRIEVE, Role.OTHER})
"""Roles whose results carry text into the session.  Saves, drafts and sends answer receipts."""


class EvidenceSource(Protocol):
    """Says where the text of a save comes from."""

    def evidence(self, classified: ClassifiedCall, snapshot: Snapshot) -> SourceEvidence:
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

    def evidence(self, classified: ClassifiedCall, snapshot: Snapshot) -> SourceEvidence:
        """Return model inference, and tool results where any untrusted one was read."""
        del classified
        if self._has_read(snapshot.session) or self._has_read(snapshot.principal):
            types = frozenset({SourceType.MODEL_INFERENCE, SourceType.TOOL_RESULT})
            return SourceEvidence(types, Integrity.UNTRUSTED)
        # Without an authenticated prompt channel, nothing proves that the user said it.
        return SourceEvidence(frozenset({SourceType.MODEL_INFERENCE}), Integrity.ADVISORY)

    def _has_read(self, window: Window) -> bool:
        # Calls in flight count: their results may be in the text already.
        return window.unlabelled > 0 or any(window.possible(role) > 0 for role in self._tainting)
