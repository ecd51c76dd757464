"""Draws the ablation: how much each combination of gates stops, and how much it flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl

from guard.lab.eval_ablation import COMBINATIONS

if TYPE_CHECKING:
    from pathlib import Path

STOPPED: Final = ("leong_stopped", "agentdojo_stopped", "evasions_stopped", "hippo_stopped")
FLAGGED: Final = (
    "leong_internal_flagged",
    "benign_memory_flagged",
    "agentdojo_benign_flagged",
    "hard_negatives_flagged",
    "hippo_benign_flagged",
)


def markdown(table: dict[str, dict[str, Any]]) -> str:
    """Return the ablation as a Markdown table: a row per side, a column per combination."""
    head = ["side", "sends", *COMBINATIONS]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for side, row in table.items():
        cells = [f"`{side}`", str(row["n"]), *(_percent(row[name]) for name in COMBINATIONS)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def draw(table: dict[str, dict[str, Any]], path: Path) -> None:
    """Write a plot with two panels: attacks stopped (more is better), honest sends flagged."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(13, 6), sharey=True)
    for panel, sides, title in zip(
        panels,
        (STOPPED, FLAGGED),
        ("attacks stopped (higher is better)", "honest sends flagged (lower is better)"),
        strict=True,
    ):
        present = [side for side in sides if side in table]
        width = 0.8 / max(1, len(present))
        for number, side in enumerate(present):
            heights = [100 * (table[side][name] or 0.0) for name in COMBINATIONS]
            places = [at + number * width for at in range(len(COMBINATIONS))]
            label = f"{side.rpartition('_')[0]} (n = {table[side]['n']})"
            panel.bar(places, heights, width, label=label)
        panel.set_xticks([at + 0.4 - width / 2 for at in range(len(COMBINATIONS))])
        panel.set_xticklabels(COMBINATIONS, rotation=30, ha="right")
        panel.set_title(title)
        panel.set_ylabel("% of sends")
        panel.set_ylim(0, 105)
        panel.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.28), ncol=2)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
