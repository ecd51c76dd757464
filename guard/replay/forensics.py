"""Kind of incident that the order of a session's calls shows, after the fact.  Pure: no I/O.

A memory holds an attacker's address only until a recall fetches it, so the order of calls tells an
incident through memory from one through text that was just read.  Nothing in an argument is looked
at.  The answer is evidence for an investigator and decides no call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import ModelError
from guard.core.model import Role
from guard.core.trajectory import FEATURES_19, Trajectory
from guard.policy import load_policies
from guard.replay.traces import Call, read_traces
from guard.settings import policies_directory
from guard.telemetry.audit_log import EVENT_DECISION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from guard.inference.onnx import OnnxModel

MODEL: Final = "forensic-19"
KINDS: Final = ("neither", "prompt_injection", "memory_poisoning")
"""Classes of the model, in its order."""
UNDECIDED: Final = "undecided"
_SENDS, _RECALLED = FEATURES_19.index("send_count"), FEATURES_19.index("recall_before_send")


@dataclass(frozen=True, slots=True)
class Classified:
    """Answer of the model about one session."""

    verdict: str
    """One of :data:`KINDS`, or :data:`UNDECIDED`."""
    if_incident: str
    """Likelier kind if other evidence shows an incident; empty for a session without a send."""
    shares: Mapping[str, float]
    """Probability of each kind."""


def classify_session(models: Mapping[str, OnnxModel], roles: Iterable[Role]) -> Classified:
    """Return the kind that the calls of one session, in their order, show.

    A kind is named from the threshold on that the model's card has for it.

    Raises:
        ModelError: the model is missing, or was trained on other features.
    """
    model = models.get(MODEL)
    if model is None or model.features != FEATURES_19:
        raise ModelError(
            f"model `{MODEL}` is missing or has other features; restore the shipped models"
        )
    row = Trajectory.of(roles).features_19()
    if not row[_SENDS]:
        return Classified(KINDS[0], "", {kind: float(kind == KINDS[0]) for kind in KINDS})
    shares = dict(zip(KINDS, model.probabilities(row), strict=True))
    verdict = verdict_of(row, [*shares.values()], model.thresholds)
    return Classified(verdict, max(KINDS[1:], key=shares.__getitem__), shares)


def verdict_of(
    row: Sequence[float], shares: Sequence[float], thresholds: Mapping[str, float]
) -> str:
    """Return the likeliest kind from its threshold on, else :data:`UNDECIDED`.

    INVARIANT (the order clears no recall before a send): memory poisoning has the same order.
    """
    if not row[_SENDS]:
        return KINDS[0]
    share, kind = max(zip(shares, KINDS, strict=True))
    is_named = kind in thresholds and share >= thresholds[kind]
    return kind if is_named and (kind != KINDS[0] or not row[_RECALLED]) else UNDECIDED


def roles_in_log(session: str, entries: Iterable[Mapping[str, Any]]) -> list[Role]:
    """Return the roles of a session's calls in an audit log, in the order of their decisions."""
    return [
        Role(entry["role"])
        for entry in entries
        if entry.get("event") == EVENT_DECISION
        and entry.get("session") == session
        and entry.get("role") in set(Role)
    ]


def roles_in_runs(name: str, files: Sequence[Path], policy: Path | None = None) -> list[Role]:
    """Return the roles of the calls of one session of a recorded run, or of all of its sessions.

    Args:
        name: ``RUN`` or ``RUN/SESSION``.
        files: recorded runs.
        policy: says what the tools do; the default policy if unset.

    Raises:
        TraceError: a file has no recorded runs.
    """
    loaded = load_policies([policy or policies_directory() / "default.yaml"])
    mapped = ((call, loaded.mapping(call.tool)) for call in _calls(name, files))
    return [mapping.role if mapping is not None else Role.OTHER for _, mapping in mapped]


def _calls(name: str, files: Sequence[Path]) -> list[Call]:
    for run in read_traces(files):
        if run.run_id == name:
            return list(run.calls)
        if name.startswith(f"{run.run_id}/"):
            session = name.removeprefix(f"{run.run_id}/")
            return [call for call in run.calls if call.session == session]
    return []
