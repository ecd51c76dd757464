"""The benchmark's figure: where each system stands on the two surfaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def draw(details: Mapping[str, Any], path: Path) -> None:
    """Write the figure as SVG or PNG, by the file's ending."""
    systems = list(details["core_nfr"])
    total = max(row["n"] for row in details["prlr"].values())
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
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
    plt.close(figure)
