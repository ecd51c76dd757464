"""Constants of the recall-before-send paper: operations, settings, feature groups.

Source: J. W. Leong, "Forensic Trajectory Signatures", arXiv:2606.30566, and the scripts beside it.
Pure: no I/O.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from guard.core.model import Role
from guard.core.trajectory import FEATURES_13, FEATURES_19

SEED: Final = 42
FOLDS: Final = 5
THRESHOLD: Final = 0.5
TRIGGER_SESSION: Final = "3"
"""The session in which a delayed attack is triggered; the runs number theirs from 0."""
ONTOLOGY: Final = {
    "memory_recall_fact": Role.RECALL,
    "memory_list_all_facts": Role.LIST,
    "memory_save_fact": Role.SAVE,
    "email_draft_email": Role.DRAFT,
    "email_send_email": Role.SEND,
    "rag_query": Role.RETRIEVE,
    # The later experiments of the paper map these two as well.
    "memory_search": Role.RECALL,
    "share_document": Role.SEND,
}
"""The paper's tool names and the operations it maps them to; every other tool is ``other``."""
CITATION: Final = (
    'J. W. Leong, "Forensic Trajectory Signatures", arXiv:2606.30566; traces from '
    "github.com/junwenleong/stateful-agent-security-eval, MIT licence"
)
WITHDRAWN: Final = (
    "The paper's later version withdraws its claim that the trajectory signature is a deployable "
    "detector, its frontier evaluation (recall 0.901 at a false-positive rate of 23.0 %) and its "
    "use as a pre-filter: a recall before a send is a precondition, not a predicate of malice."
)


class FeatureSet(StrEnum):
    """A set of features; the value is its name on the command line."""

    PREFIX13 = "prefix13"
    """The 13 that exist immediately before a send: the session is cut there."""
    FULL19 = "full19"
    """All 19, over the completed session."""
    SIGNATURE13 = "signature13"
    """The 13 of ``prefix13``; recalls count only before a send to the outside."""

    @property
    def names(self) -> tuple[str, ...]:
        """The features, in the order of a row."""
        return FEATURES_19 if self is FeatureSet.FULL19 else FEATURES_13


INTERNAL: Final = "example.com"
"""Domain of the recorded agents' own house."""
