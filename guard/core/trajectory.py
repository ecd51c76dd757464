"""The session's trajectory as fixed-size counters.  Pure: no I/O.

The features are those of Leong, "Forensic Trajectory Signatures" (arXiv:2606.30566), section on
``extract_features``: 19 over a completed session, 13 of them computable immediately before a
send.  All follow from the counters below, so the cost of a decision does not grow with the session.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from guard.core.frozen import frozen
from guard.core.labels import LabelReply
from guard.core.model import ROLES, Role

if TYPE_CHECKING:
    from collections.abc import Iterable

FEATURES_19: Final = (
    "recall_count",
    "list_count",
    "save_count",
    "draft_count",
    "send_count",
    "rag_count",
    "seq_len",
    "send_without_recall",
    "recall_before_send",
    "recall_to_send_ratio",
    "max_recall_chain",
    "list_then_recall",
    "recall_then_recall",
    "recall_then_draft",
    "list_then_draft",
    "draft_then_send",
    "first_tool_is_list",
    "first_tool_is_recall",
    "first_tool_is_draft",
)
FEATURES_13: Final = (
    "recall_count",
    "list_count",
    "save_count",
    "draft_count",
    "rag_count",
    "max_recall_chain",
    "list_then_recall",
    "recall_then_recall",
    "recall_then_draft",
    "list_then_draft",
    "first_tool_is_list",
    "first_tool_is_recall",
    "first_tool_is_draft",
)
RECALL_FEATURES: Final = tuple("recall" in name for name in FEATURES_13)
"""Prefix features that count recalls, one flag per feature."""
PAIRS: Final = (
    (Role.LIST, Role.RECALL),
    (Role.RECALL, Role.RECALL),
    (Role.RECALL, Role.DRAFT),
    (Role.LIST, Role.DRAFT),
    (Role.DRAFT, Role.SEND),
)
"""Adjacent pairs that are counted, in storage order."""

_INDEX: Final = {role: index for index, role in enumerate(ROLES)}
_RECALL, _LIST, _DRAFT = _INDEX[Role.RECALL], _INDEX[Role.LIST], _INDEX[Role.DRAFT]
NO_ROLE: Final = len(ROLES)
"""Stands for "nothing yet" where a role's index is stored."""


@frozen
class Trajectory:
    """Sufficient statistics of the executed calls of one session (or one principal's window)."""

    executed: tuple[int, ...] = (0,) * len(ROLES)
    """Executed calls by role, in the order of ``ROLES``."""
    pairs: tuple[int, ...] = (0,) * len(PAIRS)
    """Adjacent pairs, in the order of ``PAIRS``."""
    first: int = NO_ROLE
    """Index of the first executed role, or ``NO_ROLE``."""
    last: int = NO_ROLE
    recall_chain: int = 0
    """Length of the run of recalls that ends now."""
    max_recall_chain: int = 0
    recall_before_send: bool = False
    """True if any recall was executed before any send."""
    save_before_send: bool = False
    """True if any save was executed before any send (the paper's write-axis rule)."""

    def count(self, role: Role) -> int:
        """Executed calls of this role."""
        return self.executed[_INDEX[role]]

    def append(self, role: Role) -> Trajectory:
        """Return the trajectory after one more executed call.

        INVARIANT (incremental equals recomputed): folding ``append`` over any sequence of roles
        gives the features of the whole sequence.  The session store's script does the same
        arithmetic; a property test holds the two together.
        """
        index = _INDEX[role]
        executed = list(self.executed)
        executed[index] += 1
        pairs = list(self.pairs)
        for position, (before, after) in enumerate(PAIRS):
            if after is role and self.last == _INDEX[before]:
                pairs[position] += 1
        chain = self.recall_chain + 1 if role is Role.RECALL else 0
        is_send = role is Role.SEND
        return replace(
            self,
            executed=tuple(executed),
            pairs=tuple(pairs),
            first=index if self.first == NO_ROLE else self.first,
            last=index,
            recall_chain=chain,
            max_recall_chain=max(self.max_recall_chain, chain),
            recall_before_send=self.recall_before_send or (is_send and self.count(Role.RECALL) > 0),
            save_before_send=self.save_before_send or (is_send and self.count(Role.SAVE) > 0),
        )

    def features_19(self) -> tuple[float, ...]:
        """Return the 19 features, in the order of ``FEATURES_19``."""
        recall, send = self.count(Role.RECALL), self.count(Role.SEND)
        list_recall, recall_recall, recall_draft, list_draft, draft_send = self.pairs
        return (
            float(recall),
            float(self.count(Role.LIST)),
            float(self.count(Role.SAVE)),
            float(self.count(Role.DRAFT)),
            float(send),
            float(self.count(Role.RETRIEVE)),
            float(sum(self.executed)),
            float(send > 0 and recall == 0),
            float(self.recall_before_send),
            recall / max(send, 1),
            float(self.max_recall_chain),
            float(list_recall),
            float(recall_recall),
            float(recall_draft),
            float(list_draft),
            float(draft_send),
            float(self.first == _INDEX[Role.LIST]),
            float(self.first == _INDEX[Role.RECALL]),
            float(self.first == _INDEX[Role.DRAFT]),
        )

    def features_13(self) -> tuple[float, ...]:
        """Return the 13 prefix features, in the order of ``FEATURES_13``."""
        recall, listed, save, draft, _, retrieve, _ = self.executed
        counts = recall, listed, save, draft, retrieve, self.max_recall_chain, *self.pairs[:4]
        first = self.first
        return tuple(map(float, (*counts, first == _LIST, first == _RECALL, first == _DRAFT)))

    @classmethod
    def of(cls, roles: Iterable[Role]) -> Trajectory:
        """Return the trajectory of a sequence of executed calls."""
        trajectory = cls()
        for role in roles:
            trajectory = trajectory.append(role)
        return trajectory


@lru_cache(maxsize=1024)
def without_recalls(row: tuple[float, ...]) -> tuple[float, ...]:
    """Return prefix features as if nothing had been recalled.

    The signature is a recall before a send to the outside: before any other send it is absent.
    """
    return tuple(0.0 if recalls else v for v, recalls in zip(row, RECALL_FEATURES, strict=True))


@frozen
class Window:
    """History of one session, or of one principal over its recent sessions."""

    trajectory: Trajectory = Trajectory()
    attempted: tuple[int, ...] = (0,) * len(ROLES)
    """Calls asked for, by role: executed, refused, in flight, or of unknown fate."""
    refused: tuple[int, ...] = (0,) * len(ROLES)
    refused_in_a_row: int = 0
    """Refusals since the last executed call (deny-loop breaker)."""
    unlabelled: int = 0
    """Results that were released while no label could be stored for them."""

    def possible(self, role: Role) -> int:
        """Calls of this role that were executed, or may have been: executed and in flight.

        Two parallel calls of one session see each other through this number.
        """
        index = _INDEX[role]
        return self.attempted[index] - self.refused[index]


@frozen
class Snapshot:
    """The state before a call, as the one atomic script returned it (hop 3)."""

    session: Window = Window()
    principal: Window = Window()
    labels: LabelReply = LabelReply()
    """Label records read with the attempt."""
    grant: bytes | None = None
    """The grant that was taken for this call, if there was one."""
    full: bool = False
    """True if a bound of the principal's labels was reached lately, or the store lost labels."""
    incomplete: bool = False
    """True if labels may be missing because the store was lost, or keeps none across restarts."""
