"""Plots of evaluations and benchmarks, and an evaluation as one HTML page."""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader
from matplotlib.figure import Figure
from sklearn.metrics import roc_curve

from lab.intervals import auc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from guard.replay.reports import Report

BINS: Final = 10
SIZE: Final = (6.4, 4.4)
RESOLUTION: Final = 110


def draw_classifier(
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
    axes.legend(fontsize=7, loc="lower right")


def _calibration(axes: Any, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for name, (labels, scores) in curves.items():
        bins = np.minimum((scores * BINS).astype(int), BINS - 1)
        used = [b for b in range(BINS) if (bins == b).any()]
        said = [float(scores[bins == b].mean()) for b in used]
        seen = [float(labels[bins == b].mean()) for b in used]
        axes.plot(said, seen, marker="o", label=name.replace("_", " "))
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":")
    axes.set(xlabel="mean score of a bin", ylabel="share of positives", title="Calibration")
    axes.legend(fontsize=7, loc="upper left")


def _scores(axes: Any, name: str, labels: np.ndarray, scores: np.ndarray) -> None:
    edges = np.linspace(0, 1, 2 * BINS + 1)
    chosen = [scores[labels == 0], scores[labels == 1]]
    axes.hist(chosen, bins=edges, label=["negative", "positive"], stacked=True)
    axes.set(xlabel="score", ylabel="runs", title=f"Scores: {name.replace('_', ' ')}")
    axes.legend(fontsize=8, loc="upper right")


def _importances(axes: Any, name: str, weights: Mapping[str, float]) -> None:
    names = list(weights)[::-1]
    axes.barh(names, [weights[feature] for feature in names])
    axes.tick_params(axis="y", labelsize=7)
    axes.set(title=f"Weight of each feature: {name}")


def render(report: Report, plots: Mapping[str, bytes], reason: str | None = None) -> str:
    """Return the page.

    Args:
        report: checks and details of ``guard lab eval classifier``.
        plots: PNG by name.
        reason: why nothing was measured, if so.
    """
    # Names of models, defences and files come from traces: everything is escaped.
    environment = Environment(loader=PackageLoader("lab", "."), autoescape=True)
    return environment.get_template("report.html.jinja").render(
        checks=report.checks,
        details=report.details,
        machine=report.machine,
        plots={name: b64encode(image).decode() for name, image in plots.items()},
        reason=reason,
    )


def draw_write_path(details: Mapping[str, Any], path: Path) -> None:
    """Write the figure as SVG or PNG, by the file's ending."""
    systems = list(details["core_nfr"])
    total = max(row["n"] for row in details["prlr"].values())
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    axes = figure.subplots(1, 3)
    core = [details["core_nfr"][name]["all"] / total for name in systems]
    leaks = [details["prlr"][name]["leaked"] / total for name in systems]
    for axis, values, title in (
        (axes[0], core, "refused writes that never formed"),
        (axes[1], leaks, "refused writes in the next turn"),
    ):
        axis.bar(systems, values, color=["#999999"] * 3 + ["#7799cc", "#225588"])
        axis.set_ylim(0, 1.05)
        axis.set_title(title)
    noise = details["label_noise"]
    names = [f"{row['mode']} {row['rate']:.0%}" for row in noise]
    axes[2].plot([row["core_nfr"] for row in noise], names, "o", color="#225588", label="here")
    axes[2].plot([row["paper"] for row in noise], names, "x", color="#cc5533", label="paper")
    axes[2].invert_yaxis()
    axes[2].set_title("core NFR under label noise")
    axes[2].legend(loc="center left")
    figure.savefig(path)
