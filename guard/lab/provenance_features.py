"""What a model may know of a send: the road to it, and where its destinations came from.

Pure: no I/O.  The first 13 features are the paper's (:mod:`guard.core.trajectory`); the others are
counts over the attestations of the call's destinations and guarded values.  No text, no address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.labels import Rung
from guard.core.model import Role
from guard.core.trajectory import FEATURES_13

if TYPE_CHECKING:
    from guard.core.labels import Attestation
    from guard.core.model import ClassifiedCall, Target
    from guard.core.trajectory import Snapshot

PROVENANCE_FEATURES: Final = (
    "principal_retrieve_count",
    "principal_recall_count",
    "principal_save_count",
    "destination_count",
    "weakest_rung",
    "listed_count",
    "vouched_count",
    "unknown_count",
    "tainted_count",
    "vector_memory",
    "vector_in_session",
    "vector_earlier_session",
    "saturated",
    "guarded_tainted_count",
    "mail_count",
    "url_count",
    "handle_count",
)
FEATURES: Final = FEATURES_13 + PROVENANCE_FEATURES
_VOUCHED: Final = frozenset({Rung.GRANTED, Rung.PROMPTED, Rung.REPLY, Rung.REMEMBERED})


def features(call: ClassifiedCall, snapshot: Snapshot) -> tuple[float, ...]:
    """Return the row of a send, in the order of ``FEATURES``.

    Raises:
        ValueError: nobody has looked where a destination came from.
    """
    found = [_attestation(target) for target in call.targets]
    guarded = [_attestation(target) for target in call.guarded]
    principal = snapshot.principal.trajectory
    rungs = [one.rung for one in found]
    vectors = [one.vector for one in found]
    kinds = [target.destination.kind for target in call.targets]
    row = (
        principal.count(Role.RETRIEVE),
        principal.count(Role.RECALL),
        principal.count(Role.SAVE),
        len(found),
        max(rungs, default=0),
        rungs.count(Rung.LISTED),
        sum(rung in _VOUCHED for rung in rungs),
        rungs.count(Rung.UNKNOWN),
        rungs.count(Rung.TAINTED),
        "memory" in vectors,
        "in_session" in vectors,
        "earlier_session" in vectors,
        any(one.saturated for one in found),
        sum(one.rung is Rung.TAINTED for one in guarded),
        kinds.count("mail"),
        kinds.count("url") + kinds.count("host"),
        kinds.count("handle"),
    )
    return snapshot.session.trajectory.features_13() + tuple(float(value) for value in row)


def _attestation(target: Target) -> Attestation:
    if target.attestation is None:
        raise ValueError("where a value came from was not looked up")
    return target.attestation
