"""Plots of an evaluation as PNG.  Pure: bytes out, no file."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import roc_curve

from guard.lab.intervals import auc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BINS: Final = 10
SIZE: Final = (6.4, 4.4)
RESOLUTION: Final = 110


def draw(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    importances: Mapping[str, Mapping[str, float]],
) -> dict[str, bytes]:
    """Return the plots by name.

    Args:
        curves: labels and scores by name.
        importances: weight by feature, by model.
    """
    plots: dict[str, bytes] = {}
    if curves:
        plots["roc"] = _png(lambda axes: _roc(axes, curves))
    scored = _scored(curves)
    if scored:
        plots["calibration"] = _png(lambda axes: _calibration(axes, scored))
    for name, (labels, scores) in scored.items():
        key = "scores-" + name.replace(", ", "-").replace("_", "-")
        plots[key] = _png(partial(_scores, name=name, labels=labels, scores=scores))
    for name, weights in importances.items():
        plots[f"importances-{name}"] = _png(partial(_importances, name=name, weights=weights))
    return plots


def _scored(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the curves of classifiers on the paper's folds: more would be one smear."""
    return {n: c for n, c in curves.items() if n.endswith(("random_folds", "x_defence"))}


def _png(plot: Callable[[Any], None]) -> bytes:
    figure = Figure(figsize=SIZE, dpi=RESOLUTION, layout="constrained")
    plot(figure.add_subplot())
    out = BytesIO()
    # Without a version in it, the same figures give the same bytes.
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _roc(axes: Any, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for name, (labels, scores) in curves.items():
        wrong, right, _ = roc_curve(labels, scores)
        axes.plot(wrong, right, label=f"{name.replace('_', ' ')} ({auc(labels, scores):.3f})")
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":")
    axes.set(xlabel="false-positive rate", ylabel="recall", title="ROC, pooled out of fold")
    axes.legend(fontsize=7)


def _calibration(axes: Any, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for name, (labels, scores) in curves.items():
        bins = np.minimum((scores * BINS).astype(int), BINS - 1)
        used = [b for b in range(BINS) if (bins == b).any()]
        said = [float(scores[bins == b].mean()) for b in used]
        seen = [float(labels[bins == b].mean()) for b in used]
        axes.plot(said, seen, marker="o", label=name.replace("_", " "))
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":")
    axes.set(xlabel="mean score of a bin", ylabel="share of positives", title="Calibration")
    axes.legend(fontsize=7)


def _scores(axes: Any, name: str, labels: np.ndarray, scores: np.ndarray) -> None:
    edges = np.linspace(0, 1, 2 * BINS + 1)
    chosen = [scores[labels == 0], scores[labels == 1]]
    axes.hist(chosen, bins=edges, label=["negative", "positive"], stacked=True)
    axes.set(xlabel="score", ylabel="runs", title=f"Scores: {name.replace('_', ' ')}")
    axes.legend(fontsize=8)


def _importances(axes: Any, name: str, weights: Mapping[str, float]) -> None:
    names = list(weights)[::-1]
    axes.barh(names, [weights[feature] for feature in names])
    axes.tick_params(axis="y", labelsize=7)
    axes.set(title=f"Weight of each feature: {name}")
