"""A monotone model of the recall-before-send signature, as a graph of ONNX operators.

The score rises with every recall before a send: weights of recalls cannot be negative.  Counts are
bounded (``x / (1 + x)``), so that a long session does not saturate the score.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from scipy.optimize import minimize

from guard.core.model import Role
from guard.core.trajectory import RECALL_FEATURES, Trajectory, without_recalls
from lab.models import bounded, softmax_onnx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LEAST: Final = 0.5
"""Smallest weight of the number of recalls: the score of a road with one is strictly higher."""
RIDGE: Final = 0.02
SETTINGS: Final[dict[str, Any]] = {"least_recall_weight": LEAST, "ridge": RIDGE}


class SignatureModel:
    """A logistic model with weights of one sign for recalls; like a classifier of scikit-learn."""

    def fit(self, rows: np.ndarray, labels: np.ndarray) -> Self:
        """Fit weights, both classes of equal weight."""
        x, y = bounded(rows.astype(float)), labels.astype(float)
        share = np.where(y == 1, 0.5 / max(y.sum(), 1), 0.5 / max((1 - y).sum(), 1))

        def loss(given: np.ndarray) -> tuple[float, np.ndarray]:
            logits = x @ given[1:] + given[0]
            slope = share * (1 / (1 + np.exp(-logits)) - y)
            value = float(share @ (np.logaddexp(0, logits) - y * logits))
            value += RIDGE * float(given[1:] @ given[1:]) / 2
            return value, np.concatenate(([slope.sum()], x.T @ slope + RIDGE * given[1:]))

        bounds = [(None, None), *((0.0, None) if one else (None, None) for one in RECALL_FEATURES)]
        bounds[1] = (LEAST, None)
        start = np.array([0.0, LEAST, *np.zeros(x.shape[1] - 1)])
        found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
        self.bias, self.weights = float(found[0]), found[1:]
        return self

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        """Return the probabilities of both classes, shape (rows, 2)."""
        positive = 1 / (1 + np.exp(-(bounded(rows.astype(float)) @ self.weights + self.bias)))
        return np.stack([1 - positive, positive], axis=1)

    def onnx(self, name: str) -> bytes:
        """Return the model as ONNX."""
        both = np.stack([np.zeros_like(self.weights), self.weights], axis=1)
        return softmax_onnx(name, both, np.array([0.0, self.bias]))


ROLES: Final = (Role.RECALL, Role.LIST, Role.SAVE, Role.DRAFT, Role.RETRIEVE, Role.OTHER)
LONGEST: Final = 4
LONG: Final = (40, 400)


def roads() -> Iterator[tuple[Role, ...]]:
    """Yield roads to a send with a recall in them: every short one, and long repetitive ones."""
    for length in range(1, LONGEST + 1):
        for road in itertools.product(ROLES, repeat=length):
            if Role.RECALL in road:
                yield road
    for count, before, after in itertools.product(LONG, ROLES, ROLES):
        yield (*(before,) * count, Role.RECALL, *(after,) * count)
        yield (before, Role.RECALL, after) * count


def respected(score: Callable[[Sequence[float]], float]) -> tuple[int, int]:
    """Return pairs in which a send outside scores above one inside, and pairs in all.

    Both sends of a pair follow the same road; one has an internal recipient.
    """
    kept = total = 0
    for road in roads():
        row = Trajectory.of(road).features_13()
        kept += score(row) > score(without_recalls(row))
        total += 1
    return kept, total
