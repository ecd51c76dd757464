"""Protocols that test a classifier on unseen data: random folds and groups.

Only groups say what to expect of an agent that was not in the training data; random folds are the
paper's and put repeats of one run on both sides.
"""

from __future__ import annotations

import warnings
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.stats import bootstrap
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from guard.core.errors import InputError
from lab.models import scores
from lab.paper import FOLDS, SEED, THRESHOLD, FeatureSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Json
    from lab.dataset import Dataset, Labelling

RESAMPLES: Final = 1_000


class Protocol(StrEnum):
    """A way to divide runs; the value names it in reports and cards."""

    RANDOM = "random_folds"
    GROUPED = "grouped_model_x_defence"


def out_of_fold(
    build: Callable[[], Any],
    data: Dataset,
    features: FeatureSet,
    labels: np.ndarray,
    protocol: Protocol,
) -> np.ndarray:
    """Return the scores of runs by models that were fitted on the other folds, shape (runs,).

    Raises:
        InputError: a fold has runs of one class only, or there are too few groups.
    """
    rows, groups = data.rows(features), None
    kind = StratifiedKFold
    if protocol is Protocol.GROUPED:
        kind, groups = StratifiedGroupKFold, data.cells
    pooled = np.zeros(len(labels))
    try:
        for train, test in kind(FOLDS, shuffle=True, random_state=SEED).split(rows, labels, groups):
            require_two_classes(labels[train])
            pooled[test] = scores(build().fit(rows[train], labels[train]), rows[test])
    except ValueError as error:
        raise InputError(f"{protocol.value}: {error}") from error
    return pooled


def require_two_classes(labels: np.ndarray) -> None:
    """Raise unless both classes occur.

    Raises:
        InputError: one does not.
    """
    if len(np.unique(labels)) < 2:
        raise InputError(f"all {len(labels)} runs are of one class, a classifier needs both")


def measure(
    build: Callable[[], Any],
    data: Dataset,
    features: FeatureSet,
    labelling: Labelling,
    protocol: Protocol,
) -> dict[str, Json]:
    """Return one protocol's figures, with intervals; without a figure, ``reason`` says why."""
    labels = data.labels(labelling)
    try:
        scored = out_of_fold(build, data, features, labels, protocol)
    except InputError as error:
        return {"auc": None, "reason": str(error)}
    return figures(labels, scored, data.repeats)


def figures(labels: np.ndarray, scored: np.ndarray, repeats: np.ndarray) -> dict[str, Json]:
    """Return what scores are worth, with intervals over runs and over distinct runs."""
    flagged = scored >= THRESHOLD
    return {
        "auc": round(float(roc_auc_score(labels, scored)), 4),
        "recall_at_threshold": round(float(flagged[labels == 1].mean()), 4),
        "false_positive_rate_at_threshold": round(float(flagged[labels == 0].mean()), 4),
        "auc_interval_over_runs": auc_interval(labels, scored, np.arange(len(labels))),
        "auc_interval_over_distinct_runs": auc_interval(labels, scored, repeats),
    }


def auc_interval(
    labels: np.ndarray, scored: np.ndarray, clusters: np.ndarray, resamples: int | None = None
) -> list[float] | None:
    """Return the 95 % BCa interval of the AUC, or None where there is none.

    Args:
        labels: 0 or 1, shape (runs,).
        scored: shape (runs,).
        clusters: shape (runs,): whole clusters are drawn, as repeats of one run are one
            observation.
        resamples: how many; :data:`RESAMPLES` if None.
    """
    names, number = np.unique(clusters, return_inverse=True)
    if len(names) < 2:
        return None
    members = [np.flatnonzero(number == one) for one in range(len(names))]

    def statistic(drawn: np.ndarray) -> float:
        rows = np.concatenate([members[one] for one in drawn])
        if labels[rows].min() == labels[rows].max():
            # A resample of one class has no AUC; a coin toss keeps it from deciding the interval.
            return 0.5
        return float(roc_auc_score(labels[rows], scored[rows]))

    with warnings.catch_warnings():
        # A statistic that no resample changes has a degenerate interval, which is said by None.
        warnings.simplefilter("ignore")
        found = bootstrap(
            (np.arange(len(names)),),
            statistic,
            n_resamples=resamples or RESAMPLES,
            vectorized=False,
            rng=np.random.default_rng(SEED),
        ).confidence_interval
    ends = [round(float(end), 4) for end in found]
    return ends if np.isfinite(ends).all() else None
