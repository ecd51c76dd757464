"""Training one artefact: fit, export, verify, evaluate, describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guard.lab.card import Artefact, make_card
from guard.lab.intervals import bca_interval, rounded
from guard.lab.models import importances, make, verified_export
from guard.lab.paper import RESAMPLES, THRESHOLD, TRIGGER_SESSION, Algorithm, FeatureSet
from guard.lab.protocols import (
    LEAVE_ONE_OUT,
    NotMeasuredError,
    Protocol,
    by_group,
    figures,
    out_of_fold,
    require_two_classes,
)
from guard.lab.sends import describe_sends, flagged_first_sends, score_histogram, score_sends
from guard.lab.truth import Labelling

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Json
    from guard.lab.dataset import Dataset
    from guard.lab.protocols import OutOfFold

DEFAULT_NAMES: Final = {FeatureSet.PREFIX13: "prefix-13", FeatureSet.FULL19: "full-19"}
"""The forests' names; other algorithms append their own."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to train."""

    algorithm: Algorithm = Algorithm.RANDOM_FOREST
    features: FeatureSet = FeatureSet.PREFIX13
    labelling: Labelling = Labelling.MAILED
    session: str = TRIGGER_SESSION
    threshold: float = THRESHOLD
    name: str | None = None
    trees: int | None = None
    """In place of the paper's number."""
    resamples: int = RESAMPLES
    """Of the intervals; 0 leaves them out."""

    @property
    def artefact_name(self) -> str:
        """The name asked for, or the default of these features and this algorithm."""
        if self.name is not None:
            return self.name
        base = DEFAULT_NAMES[self.features]
        forest = self.algorithm is Algorithm.RANDOM_FOREST
        return base if forest else f"{base}-{self.algorithm.value}"

    def build(self) -> Any:
        """Return an unfitted classifier."""
        return make(self.algorithm, trees=self.trees)


def train(
    order: Order,
    data: Dataset,
    benign: Dataset | None = None,
    advance: Callable[[], object] = lambda: None,
) -> tuple[bytes, dict[str, Json]]:
    """Return the verified model as ONNX, and its card.

    Args:
        order: what to train.
        data: the runs to learn from.
        benign: runs without an attack whose first sends are scored for the card.
        advance: called after each protocol.

    Raises:
        NotMeasuredError: the runs hold one class only.
        ModelError: the export differs from scikit-learn's model.
    """
    rows, labels = data.rows(order.features), data.labels(order.labelling)
    require_two_classes(labels)
    model = order.build().fit(rows, labels)
    onnx, difference = verified_export(model, order.artefact_name, rows)
    measured: dict[str, Json] = {}
    for protocol in Protocol:
        measured[protocol.value], _ = measure(order, data, protocol)
        advance()
    measured["onnx_max_difference"] = difference
    measured["importances"] = named_importances(model, order)
    measured["score_histogram"] = score_histogram(model, data, order.features)
    if order.features is FeatureSet.PREFIX13:
        scored, attack = score_sends(model, data)
        measured["every_send_of_the_training_runs"] = describe_sends(
            scored, attack, order.threshold
        )
        if benign is not None:
            measured["benign_memory_grounded"] = flagged_first_sends(model, benign, order.threshold)
    artefact = Artefact(
        order.artefact_name,
        onnx,
        order.algorithm,
        order.features,
        order.labelling,
        order.session,
        order.threshold,
    )
    return onnx, make_card(artefact, data, measured)


def measure(
    order: Order, data: Dataset, protocol: Protocol, *, distinct: bool = True
) -> tuple[dict[str, Json], OutOfFold | None]:
    """Return one protocol's figures, with intervals, and the pooled scores behind them.

    Where there is no figure, ``reason`` says why and there are no scores.

    Args:
        order: which classifier.
        data: the runs.
        protocol: how to divide them.
        distinct: whether to train and test on distinct runs as well.
    """
    labels = data.labels(order.labelling)
    try:
        pooled = out_of_fold(order.build, data, data.rows(order.features), labels, protocol)
    except NotMeasuredError as error:
        return {"auc": None, "reason": str(error)}, None
    repeats = data.repeats
    found: dict[str, Json] = figures(labels, pooled.scores, order.threshold)
    found["auc_interval_over_runs"] = rounded(
        bca_interval(labels, pooled.scores, resamples=order.resamples)
    )
    found["auc_interval_over_distinct_runs"] = rounded(
        bca_interval(labels, pooled.scores, repeats, order.resamples)
    )
    found["groups"] = None if pooled.groups is None else len(np.unique(pooled.groups))
    if protocol in LEAVE_ONE_OUT:
        found["by_group"] = by_group(pooled, order.threshold)
    if distinct and len(np.unique(repeats)) < len(data):
        once, _ = measure(order, data.distinct(), protocol, distinct=False)
        found["distinct_runs"] = {key: once[key] for key in once if key != "by_group"}
    return found, pooled


def named_importances(model: Any, order: Order) -> dict[str, float]:
    """Return the weight of each feature, the largest first."""
    weights = importances(model, order.algorithm).tolist()
    pairs = sorted(zip(order.features.names, weights, strict=True), key=lambda p: -abs(p[1]))
    return {name: round(weight, 4) for name, weight in pairs}
