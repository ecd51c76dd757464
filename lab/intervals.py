"""The area under the ROC curve and its bias-corrected and accelerated bootstrap intervals."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.stats import bootstrap, rankdata

from lab.paper import RESAMPLES, SEED

if TYPE_CHECKING:
    from guard.core.model import Json

LEVEL: Final = 0.95
LARGEST: Final = 5_000
"""Kinds of units beyond which the quadratic table of pairs is not built."""
_BATCH: Final = 500
"""Resamples in memory at a time."""


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Return the area under the ROC curve; not a number where one class is missing."""
    positive = int(labels.sum())
    negative = len(labels) - positive
    if not positive or not negative:
        return float("nan")
    ranks = rankdata(scores)[labels == 1].sum()
    return float((ranks - positive * (positive + 1) / 2) / (positive * negative))


def bca_interval(
    labels: np.ndarray,
    scores: np.ndarray,
    clusters: np.ndarray | None = None,
    resamples: int = RESAMPLES,
) -> tuple[float, float] | None:
    """Return the 95 % BCa interval of the AUC, or None where there is none.

    Args:
        labels: 0 or 1, shape (runs,).
        scores: shape (runs,).
        clusters: shape (runs,): whole clusters are drawn, as repeats of one run are one
            observation; None draws runs, as the paper does.
        resamples: how many; 0 asks for no interval.
    """
    if not resamples:
        return None
    units = np.arange(len(labels)) if clusters is None else clusters
    wins, positive, negative, kinds = _pair_table(labels, scores, units)
    if len(kinds) < 2 or len(positive) > LARGEST:
        return None

    def statistic(drawn: np.ndarray, axis: int = -1) -> np.ndarray:
        indices = np.moveaxis(np.atleast_2d(drawn), axis, -1)
        weights = np.stack([np.bincount(kinds[row], minlength=len(positive)) for row in indices])
        weights = weights.astype(np.float64)
        pairs = (weights @ positive) * (weights @ negative)
        won = np.einsum("ij,ij->i", weights @ wins, weights)
        # A resample of one class has no AUC; a coin toss keeps it from deciding the interval.
        value = np.divide(won, pairs, out=np.full(len(pairs), 0.5), where=pairs > 0)
        answer: np.ndarray = value if drawn.ndim > 1 else value[0]
        return answer

    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        # A statistic that no resample changes has a degenerate interval, which is said by None.
        warnings.simplefilter("ignore")
        found = bootstrap(
            (np.arange(len(kinds)),),
            statistic,
            n_resamples=resamples,
            batch=_BATCH,
            vectorized=True,
            confidence_level=LEVEL,
            method="BCa",
            rng=np.random.default_rng(SEED),
        ).confidence_interval
    low, high = float(found.low), float(found.high)
    return (low, high) if np.isfinite([low, high]).all() else None


def _pair_table(
    labels: np.ndarray, scores: np.ndarray, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the pair-win table, positives and negatives per kind of unit, and each unit's kind.

    Units with the same labels and scores are of one kind; there are few, as trees on counts give
    few scores.  ``wins[g, h]`` counts pairs of a positive of g and a negative of h in which the
    positive has the higher score, ties as a half: the AUC of drawn units is a quadratic form.
    """
    names, inverse = np.unique(units, return_inverse=True)
    levels, level = np.unique(scores, return_inverse=True)
    table = np.zeros((len(names), 2, len(levels)))
    np.add.at(table, (inverse, labels, level), 1)
    distinct, kinds = np.unique(table.reshape(len(names), -1), axis=0, return_inverse=True)
    negative, positive = distinct.reshape(-1, 2, len(levels)).transpose(1, 0, 2)
    below = np.cumsum(negative, axis=1) - negative / 2
    return positive @ below.T, positive.sum(axis=1), negative.sum(axis=1), kinds.reshape(-1)


def rounded(interval: tuple[float, float] | None) -> Json:
    """Return an interval for a report, four places, or None."""
    return None if interval is None else [round(end, 4) for end in interval]
