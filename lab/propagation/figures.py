"""The paper's Figures 2 to 4 as the surrogate gives them, its tables beside ours, growth plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.figure import Figure

from lab.propagation.tables import surrogate_tables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RESOLUTION: Final = 110
PAPER_POINTS: Final = {"before": (3.8, 0.156), "after": (1.4, 0.023)}
"""Mean hops and misbehaviour in the paper's Figure 4."""


def draw_propagation(details: Mapping[str, Any], folder: Path) -> None:
    """Write ``surrogate.png``, its tables and ``growth.png``, each where the report has it."""
    folder.mkdir(parents=True, exist_ok=True)
    if "surrogate" in details:
        _surrogate(details["surrogate"], folder / "surrogate.png")
        tables = surrogate_tables(details["surrogate"])
        (folder / "surrogate.md").write_text(tables, encoding="utf-8")
    if "growth" in details:
        _growth(details["growth"], folder / "growth.png")


def _surrogate(found: Mapping[str, Any], path: Path) -> None:
    figure = Figure(figsize=(13, 8), dpi=RESOLUTION, layout="constrained")
    axes = figure.subplots(2, 3)
    _scores_by_depth(axes[0][0], found["figures"]["2"])
    _roc(axes[0][1], found)
    _agents(axes[0][2], found["figures"]["4"])
    _table_1(axes[1][0], found["table_1"])
    _table_2(axes[1][1], found["table_2"], found["paper_table_2"])
    _without(axes[1][2], found["main"])
    figure.savefig(path, metadata={"Software": None})


def _scores_by_depth(axes: Any, shown: Mapping[str, Any]) -> None:
    depths = sorted(shown["scores_by_depth"], key=int)
    counts = np.array([shown["scores_by_depth"][one] for one in depths], dtype=float)
    density = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    edges = [int(depths[0]) - 0.5, int(depths[-1]) + 0.5]
    axes.imshow(
        density.T, origin="lower", aspect="auto", extent=(*edges, 0, 1), cmap="Greys", vmax=0.5
    )
    axes.axhline(shown["threshold"], color="#cc5533", linestyle=":", label="threshold (F1)")
    axes.set(xlabel="reuses that led here", ylabel="score", title="Figure 2: scores by depth")
    axes.legend(fontsize=7)


def _roc(axes: Any, found: Mapping[str, Any]) -> None:
    shown = found["figures"]["3"]
    axes.plot(shown["false_positives"], shown["recall"], color="#225588", label="one draw")
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":")
    spread = found["main"]["auc"]["ours"]
    title = f"Figure 3: AUC {spread['median']:.3f} over {spread['n']} draws (paper 0.94)"
    axes.set(xlabel="false-positive rate", ylabel="recall", title=title)


def _agents(axes: Any, shown: Mapping[str, Any]) -> None:
    for when, colour in (("before", "#cc5533"), ("after", "#225588")):
        points = np.array(shown[when])
        axes.scatter(points[:, 0], points[:, 1], s=14, color=colour, label=f"agents, {when}")
        _, rate = PAPER_POINTS[when]
        axes.axhline(rate, color=colour, linestyle=":", label=f"paper's mean, {when}")
    axes.set(
        xlabel="poison among its items",
        ylabel="tasks that poison made fail",
        title="Figure 4: each agent",
    )
    axes.legend(fontsize=7)


def _table_1(axes: Any, table: Mapping[str, Any]) -> None:
    names = list(table)[::-1]
    places = np.arange(len(names))
    for place, name in zip(places, names, strict=True):
        spread = table[name]["auc"]
        axes.plot([spread["p5"], spread["p95"]], [place, place], color="#225588")
        axes.plot(spread["median"], place, "o", color="#225588")
        if table[name]["paper"] is not None:
            axes.plot(table[name]["paper"][0], place, "x", color="#cc5533")
    axes.set_yticks(places, [name.replace("_", " ") for name in names], fontsize=7)
    axes.set(xlabel="AUC: here (5-95 %), x: paper", title="Table 1")


def _table_2(axes: Any, table: Mapping[str, Any], paper: Mapping[str, Any]) -> None:
    ratios = [100 * float(ratio) for ratio in table]
    for name, column, colour in (
        ("misbehaviour_before", 1, "#cc5533"),
        ("misbehaviour_after", 2, "#225588"),
    ):
        here = [100 * table[ratio][name]["mean"] for ratio in table]
        axes.plot(ratios, here, marker="o", color=colour, label=name.replace("_", " "))
        theirs = [100 * paper[ratio][column] for ratio in table]
        axes.plot(ratios, theirs, marker="x", color=colour, linestyle=":")
    axes.set(
        xscale="log", xlabel="poison, %", ylabel="%", title="Table 2: here, and dotted the paper"
    )
    axes.legend(fontsize=7)  # fmt: skip


def _without(axes: Any, main: Mapping[str, Any]) -> None:
    left = {"whole": main["auc"]["ours"], **main["without"]}
    names = list(left)[::-1]
    axes.barh(
        [n.replace("_", " ") for n in names], [left[n]["median"] for n in names], color="#7799cc"
    )
    axes.tick_params(axis="y", labelsize=7)
    axes.set(xlim=(0.5, 1.0), xlabel="AUC, median", title="Without one part")  # fmt: skip


def _growth(rows: Mapping[str, Any], path: Path) -> None:
    figure = Figure(figsize=(9, 3.8), dpi=RESOLUTION, layout="constrained")
    axes = figure.subplots(1, 2)
    for panel, (name, title) in zip(
        axes, (("redis", "reach, read from Redis"), ("memory", "reach, in memory")), strict=True
    ):
        items = [row["items"] for row in rows[name]]
        panel.plot(items, [row["cpu_ms"] for row in rows[name]], marker="o", color="#225588")
        first = rows[name][0]
        even = [first["cpu_ms"] * count / first["items"] for count in items]
        panel.plot(items, even, color="grey", linestyle=":", label="in proportion")
        panel.set(xscale="log", yscale="log", xlabel="items", ylabel="CPU, ms", title=title)
        panel.legend(fontsize=7)
    figure.savefig(path, metadata={"Software": None})
