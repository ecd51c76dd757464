"""The three classifiers with the paper's settings, and their export to ONNX.  Deterministic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime as ort
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from guard.core.errors import ModelError
from lab.paper import SEED, Algorithm

if TYPE_CHECKING:
    from guard.core.model import Json

OPSET: Final = 17
LARGEST_DIFFERENCE: Final = 1e-5
"""An export whose scores differ by more from scikit-learn's is not written."""


TITLES: Final = {
    Algorithm.RANDOM_FOREST: "random forest",
    Algorithm.GRADIENT_BOOSTING: "gradient boosting",
    Algorithm.LOGISTIC_REGRESSION: "logistic regression",
}
SETTINGS: Final[dict[Algorithm, dict[str, Json]]] = {
    Algorithm.RANDOM_FOREST: {"n_estimators": 200, "max_depth": 8, "random_state": SEED},
    Algorithm.GRADIENT_BOOSTING: {
        "n_estimators": 200,
        "max_depth": 4,
        "learning_rate": 0.05,
        "random_state": SEED,
    },
    Algorithm.LOGISTIC_REGRESSION: {"C": 1.0, "max_iter": 1000},
}
"""The paper's hyper-parameters; logistic regression is L2 behind a ``StandardScaler``."""


def make(algorithm: Algorithm, *, trees: int | None = None) -> Any:
    """Return an unfitted scikit-learn classifier.

    Args:
        algorithm: which one.
        trees: in place of the paper's number, for trials where accuracy is not the point.
    """
    settings = dict(SETTINGS[algorithm])
    if trees is not None and "n_estimators" in settings:
        settings["n_estimators"] = trees
    match algorithm:
        case Algorithm.RANDOM_FOREST:
            return RandomForestClassifier(**settings)
        case Algorithm.GRADIENT_BOOSTING:
            return GradientBoostingClassifier(**settings)
        case Algorithm.LOGISTIC_REGRESSION:
            return make_pipeline(StandardScaler(), LogisticRegression(**settings))


def scores(model: Any, rows: np.ndarray) -> np.ndarray:
    """Return the probability of label 1 for each row, shape (rows,)."""
    answer: np.ndarray = model.predict_proba(rows)[:, 1]
    return answer


def importances(model: Any, algorithm: Algorithm) -> np.ndarray:
    """Return a weight per feature: impurity decrease of trees, scaled coefficients otherwise."""
    if algorithm is Algorithm.LOGISTIC_REGRESSION:
        weights: np.ndarray = model[-1].coef_[0]
        return weights
    decrease: np.ndarray = model.feature_importances_
    return decrease


def export(model: Any, name: str, width: int) -> bytes:
    """Return a fitted model as ONNX: float32 ``[None, width]`` in, ``probabilities`` out.

    The same model gives the same bytes.
    """
    exported = to_onnx(
        model,
        initial_types=[("features", FloatTensorType([None, width]))],
        options={id(model): {"zipmap": False}},
        target_opset=OPSET,
    )
    exported.graph.name = name
    return bytes(exported.SerializeToString(deterministic=True))


def onnx_scores(onnx: bytes, rows: np.ndarray) -> np.ndarray:
    """Return the exported model's probability of label 1 for each row, shape (rows,)."""
    session = ort.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    answer: np.ndarray = session.run(["probabilities"], {"features": rows})[0][:, 1]
    return answer


def largest_difference(model: Any, onnx: bytes, rows: np.ndarray) -> float:
    """Return the largest difference between the two models' scores over all rows."""
    return float(np.abs(onnx_scores(onnx, rows) - scores(model, rows)).max(initial=0.0))


def verified_export(model: Any, name: str, rows: np.ndarray) -> tuple[bytes, float]:
    """Return the export and by how much it differs from scikit-learn on these rows at most.

    Raises:
        ModelError: it differs by more than :data:`LARGEST_DIFFERENCE`.
    """
    onnx = export(model, name, rows.shape[1])
    difference = largest_difference(model, onnx, rows)
    if not difference <= LARGEST_DIFFERENCE:
        message = (
            f"the export of `{name}` differs from scikit-learn by {difference:.2e}, "
            "try the versions that requirements/dev.txt pins"
        )
        raise ModelError(message)
    return onnx, difference
