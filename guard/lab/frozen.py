"""Artefacts as they lie in a models directory, scored on recorded runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guard.core.errors import ModelError
from guard.lab.paper import FeatureSet
from guard.lab.protocols import figures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json
    from guard.core.ports import ModelRunner
    from guard.lab.dataset import Dataset
    from guard.lab.truth import Labelling


def features_of(model: ModelRunner) -> FeatureSet:
    """Return the features a model takes.

    Raises:
        ModelError: traces do not give them, or give them in another order.
    """
    for features in FeatureSet:
        if model.features == features.names:
            return features
    known = set(FeatureSet.FULL19.names)
    unknown = next((name for name in model.features if name not in known), None)
    what = f"`{unknown}`, which traces do not give" if unknown else "another choice or order"
    message = (
        f"the features of model `{model.name}` do not match: it takes {what}; "
        f"train it with --features {' or '.join(FeatureSet)}"
    )
    raise ModelError(message)


def score_frozen(
    models: Mapping[str, ModelRunner], data: Dataset, labelling: Labelling, threshold: float
) -> dict[str, Json]:
    """Return the figures of each model on the runs.

    Raises:
        ModelError: a model's features do not match, or it fails.
    """
    wanted = {name: features_of(model) for name, model in models.items()}
    labels = data.labels(labelling)
    found: dict[str, Json] = {}
    for name, features in wanted.items():
        distinct, inverse = np.unique(data.rows(features), axis=0, return_inverse=True)
        scored = np.array([models[name].score(row) for row in distinct.tolist()])
        found[name] = {
            "sha256": models[name].digest,
            "features": features.value,
            **figures(labels, scored[inverse.reshape(-1)], threshold),
        }
    return found
