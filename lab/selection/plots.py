"""Plots of an audit, and of the cost of replays and ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from guard.graph_memory.certificate import LARGEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from guard.core.model import Json
    from guard.graph_memory.audit import Exposure
    from lab.selection.cost import Curve


def draw_audit(found: Sequence[Exposure], path: Path) -> None:
    """Write the share of queries that are flipped, and that are proved not to be, by budget.

    Between the two curves lies what is not known.
    """
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    budgets = list(range(LARGEST + 1))
    total = max(1, len(found))
    flipped = [sum((s.flipped or LARGEST + 1) <= b for s in found) / total for b in budgets]
    possible = [sum(s.proved < b for s in found) / total for b in budgets]
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


def draw_cost(points: Sequence[Curve], ledgers: Sequence[Mapping[str, Json]], path: Path) -> None:
    """Write the time of a replay over size and over untrusted share, and the bytes per edge."""
    shared = max((point.untrusted for point in points if _is_varied(points, point)), default=0.0)
    sizes = [point for point in points if point.untrusted == shared]
    middle = next((point.edges for point in points if point.untrusted != shared), 0)
    shares = sorted((p for p in points if p.edges == middle), key=lambda p: p.untrusted)
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    by_size, by_share, by_edge = figure.subplots(1, 3)
    _timed(by_size, [p.edges for p in sizes], sizes)
    by_size.set(xscale="log", yscale="log", xlabel="edges", ylabel="ms of processor time")
    by_size.set_title(f"replay on both graphs, {shared:.0%} untrusted")
    _timed(by_share, [p.untrusted for p in shares], shares)
    by_share.set(
        xlabel="untrusted share of the edges", ylabel="ms of processor time", ylim=(0, None)
    )
    by_share.set_title(f"replay, {middle:,} edges")
    edges = [one["edges"] for one in ledgers]
    for name, label in (("redis", "in Redis"), ("process", "in a worker")):
        by_edge.plot(edges, [one[f"bytes_per_edge_{name}"] for one in ledgers], "o-", label=label)
    by_edge.set(xscale="log", xlabel="edges of the ledger", ylabel="bytes per edge", ylim=(0, None))
    by_edge.legend()
    figure.savefig(path)


def _is_varied(points: Sequence[Curve], point: Curve) -> bool:
    """Return whether several sizes were measured at the untrusted share of a point."""
    return len({one.edges for one in points if one.untrusted == point.untrusted}) > 1


def _timed(axes: Axes, across: Sequence[float], points: Sequence[Curve]) -> None:
    axes.plot(across, [point.cpu_p50 for point in points], "o-", label="median")
    axes.plot(across, [point.cpu_p95 for point in points], "o--", label="95th percentile")
    axes.legend()
