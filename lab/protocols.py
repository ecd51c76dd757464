"""Protocols that test a classifier on unseen data: random folds and groups.

Only groups say what to expect of an agent that was not in the training data; random folds are the
paper's and put repeats of one run on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from guard.core.errors import InputError
from lab.intervals import auc
from lab.models import scores
from lab.paper import FOLDS, SEED, THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Json
    from lab.dataset import Dataset

_Split = tuple[np.ndarray, np.ndarray]


class NotMeasuredError(InputError):
    """A figure that this data cannot give; the message says why."""


class Protocol(StrEnum):
    """A way to divide runs; the value names it in reports and cards."""

    RANDOM = "random_folds"
    GROUPED = "grouped_model_x_defence"


@dataclass(frozen=True, slots=True)
class OutOfFold:
    """Scores of runs by models that had not seen them, pooled over the folds."""

    labels: np.ndarray
    scores: np.ndarray
    groups: np.ndarray | None
    """Groups that were kept together, shape (runs,), or None."""


def require_two_classes(labels: np.ndarray) -> None:
    """Raise unless both classes occur.

    Raises:
        NotMeasuredError: the message says which one does not.
    """
    if not len(labels):
        raise NotMeasuredError("no run is left to learn from, check the labels `attack`")
    if labels.min() == labels.max():
        kind = "positive" if labels[0] else "negative"
        raise NotMeasuredError(
            f"all {len(labels)} runs are {kind}, a classifier needs both classes"
        )


def divide(data: Dataset, labels: np.ndarray, protocol: Protocol) -> list[_Split]:
    """Return (train, test) row numbers per fold.

    Raises:
        NotMeasuredError: too few runs or groups.
    """
    require_two_classes(labels)
    groups = groups_of(data, protocol)
    if groups is not None and (found := len(np.unique(groups))) < FOLDS:
        raise NotMeasuredError(f"{protocol.value} needs at least {FOLDS} groups, there are {found}")
    if (rarest := int(min(labels.sum(), len(labels) - labels.sum()))) < FOLDS:
        raise NotMeasuredError(
            f"{protocol.value} needs {FOLDS} runs of each class, there are {rarest} of one"
        )
    kind = StratifiedKFold if protocol is Protocol.RANDOM else StratifiedGroupKFold
    return list(kind(FOLDS, shuffle=True, random_state=SEED).split(labels, labels, groups))


def groups_of(data: Dataset, protocol: Protocol) -> np.ndarray | None:
    """Return what a protocol keeps together, shape (runs,), or None."""
    return data.cells if protocol is Protocol.GROUPED else None


def out_of_fold(
    build: Callable[[], Any],
    data: Dataset,
    rows: np.ndarray,
    labels: np.ndarray,
    protocol: Protocol,
) -> OutOfFold:
    """Return pooled out-of-fold scores.

    Args:
        build: makes an unfitted classifier.
        data: where the groups come from.
        rows: shape (runs, features).
        labels: shape (runs,).
        protocol: how to divide.

    Raises:
        NotMeasuredError: too few runs or groups.
    """
    pooled = np.zeros(len(labels))
    # One after the other: scikit-learn changes the process's warning filters while it fits.
    for train, test in divide(data, labels, protocol):
        pooled[test] = fit_and_score(build, rows[train], labels[train], rows[test])
    return OutOfFold(labels, pooled, groups_of(data, protocol))


def fit_and_score(
    build: Callable[[], Any], rows: np.ndarray, labels: np.ndarray, unseen: np.ndarray
) -> np.ndarray:
    """Return scores of unseen rows; a fold with one class only scores everything as that class."""
    if labels.min() == labels.max():
        return np.full(len(unseen), float(labels[0]))
    return scores(build().fit(rows, labels), unseen)


def figures(
    labels: np.ndarray, scored: np.ndarray, threshold: float = THRESHOLD
) -> dict[str, Json]:
    """Return what scores are worth; a figure that needs a class that is absent is None."""
    positive = labels == 1
    flagged = scored >= threshold
    true, false = int(flagged[positive].sum()), int(flagged[~positive].sum())
    return {
        "auc": _rounded(auc(labels, scored)),
        "recall_at_threshold": _share(true, int(positive.sum())),
        "false_positive_rate_at_threshold": _share(false, int((~positive).sum())),
        "precision_at_threshold": _share(true, true + false),
        "brier": _rounded(float(np.mean((scored - labels) ** 2))) if len(labels) else None,
        "positive": int(positive.sum()),
        "negative": int((~positive).sum()),
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)
