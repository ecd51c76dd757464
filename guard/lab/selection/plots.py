"""Figures of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from guard.graph_memory.audit import LARGEST, Exposure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def draw_audit(found: Sequence[Exposure], path: Path) -> None:
    """Write the share of queries that are flipped, and that are proved not to be, by budget.

    Between the two curves lies what is not known.
    """
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    budgets = list(range(LARGEST + 1))
    total = max(1, len(found))
    flipped = [sum((s.flipped or LARGEST + 1) <= b for s in found) / total for b in budgets]
    possible = [sum(s.immune < b for s in found) / total for b in budgets]
    axes.step(budgets, flipped, where="post", label="an attack was found")
    axes.step(budgets, possible, where="post", label="none is ruled out")
    axes.fill_between(budgets, flipped, possible, step="post", alpha=0.15)
    axes.set(
        xlabel="edges of weight one that a stranger adds",
        ylabel="share of queries whose first item changes",
        ylim=(-0.02, 1.02),
        title=f"{len(found)} queries",
    )
    axes.legend()
    figure.savefig(path)
