"""What the second prefix model says of a send: an explanation for people, never a gate.

It is asked by ``guard explain`` only.  Its card says why: on sends of a kind it was not trained on
it does worse than the attestation ladder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from guard.adapters.onnx import load_models
from guard.core.model import Finding, Role
from guard.lab.provenance_features import FEATURES, features
from guard.shipped import models_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.model import ClassifiedCall
    from guard.core.ports import ModelRunner
    from guard.core.trajectory import Snapshot

MODEL: Final = "provenance-30"
FOLDER: Final = "explain"
"""Apart from the models of the request path, which loads everything in its own manifest."""


class SendOpinion:
    """Scores the road to a send together with where its destinations came from.

    Args:
        model: over ``FEATURES``.

    Raises:
        ValueError: the model was trained on other features.
    """

    name: ClassVar[str] = "send_opinion"

    def __init__(self, model: ModelRunner) -> None:
        if tuple(model.features) != FEATURES:
            raise ValueError(f"model `{MODEL}` was trained on other features")
        self._model = model

    @classmethod
    def shipped(cls) -> SendOpinion:
        """Return the opinion of the shipped model.

        Raises:
            ModelError: the artefact is missing or altered.
        """
        return cls(load_models(models_directory() / FOLDER)[MODEL])

    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:
        """Return one ``provenance_score`` for a send whose destinations have been traced."""
        traced = all(t.attestation is not None for t in (*call.targets, *call.guarded))
        if call.role is not Role.SEND or not call.targets or not traced:
            return ()
        score = self._model.score(features(call, snapshot))
        detail = f"sends like this one were attacks in {score:.0%} of the generated runs"
        data = {"model": MODEL, "explanation_only": True}
        return (Finding(self.name, "provenance_score", score, detail, data),)
