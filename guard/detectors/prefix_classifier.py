"""Prefix-13 model of the recall-before-send paper, asked immediately before a send.

The score is evidence about the calls before the send, not about intent: it fires on benign sends
that follow a recall as well.  Policies should escalate on it, not block on it alone; the
model's card has the figures.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, Self

from guard.core.errors import ModelError
from guard.core.model import DestinationStatus, Finding, Role
from guard.core.trajectory import FEATURES_13, Snapshot, Window, without_recalls
from guard.detectors import DetectorPlugin, DetectorResources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.calls import ClassifiedCall
    from guard.core.ports import ModelRunner

MODEL: Final = "prefix-13"
REMEMBERED_ROWS: Final = 1024
_INSIDE: Final = {DestinationStatus.INTERNAL}


def _stays_inside(call: ClassifiedCall) -> bool:
    """Return whether all that a send names is internal, and nothing of it is unclear."""
    if call.mapping is None or call.contested or call.suspects or not call.searched:
        return False
    statuses = {target.status for target in call.targets}
    return statuses == _INSIDE


def _row(window: Window, *, inside: bool) -> tuple[float, ...]:
    row = window.trajectory.features_13()
    return without_recalls(row) if inside else row


class PrefixClassifier(DetectorPlugin):
    """Scores the executed calls before a send, of the session and of the principal."""

    name: ClassVar[str] = "prefix_classifier"
    codes: ClassVar[frozenset[str]] = frozenset({"prefix_score"})

    def __init__(self, model: ModelRunner) -> None:
        # The score of a row never changes, and real sessions share few rows.  Errors are not kept.
        self._score = lru_cache(maxsize=REMEMBERED_ROWS)(model.score)
        self._found = lru_cache(maxsize=REMEMBERED_ROWS)(self._finding)

    @classmethod
    def create(cls, resources: DetectorResources) -> Self:
        """Return the detector around the model ``prefix-13``.

        Raises:
            ModelError: the model is missing or was trained on other features.
        """
        model = resources.models.get(MODEL)
        if model is None:
            raise ModelError(
                f"model `{MODEL}` is missing, point the guard at the shipped models directory"
            )
        if model.features != FEATURES_13:
            raise ModelError(
                f"model `{MODEL}` was trained on other features, use the shipped artefact"
            )
        return cls(model)

    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:
        """Return one ``prefix_score`` for a send or an unmapped call, nothing for others.

        An unmapped tool may be a send under another name, so it is scored as one.  The principal's
        window is scored too, because a client that opens a new session must not lose its past.
        """
        if call.role is not Role.SEND and call.mapping is not None:
            return ()
        inside = _stays_inside(call)
        session = principal = _row(snapshot.session, inside=inside)
        # One session per principal is the common case, and then the two are one.
        if snapshot.principal is not snapshot.session:
            principal = _row(snapshot.principal, inside=inside)
        return (self._found(session, principal),)

    def _finding(self, of_session: tuple[float, ...], of_principal: tuple[float, ...]) -> Finding:
        """Return the finding for the rows of a session and of its principal."""
        session, principal = self._score(of_session), self._score(of_principal)
        score = max(session, principal)
        return Finding(
            detector=self.name,
            code="prefix_score",
            score=score,
            detail=(
                f"calls before this one look like a recall-driven send: {score:.2f} "
                f"(session {session:.2f}, principal {principal:.2f})"
            ),
            data={"model": MODEL, "session": session, "principal": principal},
        )
