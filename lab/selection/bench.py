"""``guard lab bench selection``: every figure of the selection's protection, and its cost."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guard.extensions.graph_memory.audit import exposure
from guard.extensions.graph_memory.selectors.pagerank import PageRank
from guard.replay.reports import Check, Report, machine
from lab.judged_runs import wilson
from lab.selection.benign import asked_about
from lab.selection.corpora import locomo
from lab.selection.cost import (
    LEDGERS,
    interval_of,
    ledger_cost,
    noop,
    percentile,
    timing,
)
from lab.selection.derived import derived_structure
from lab.selection.fitting import fit_fidelity
from lab.selection.live import stopped_end_to_end
from lab.selection.live_stores import live_stores
from lab.selection.reference import Reference
from lab.selection.trials import Trials, clustered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lab.selection.corpora import Memory
    from lab.selection.cost import Timing

    Progress = Callable[[str, float], object]

DATA: Final = Path("../shared/data")
LOCOMO: Final = "locomo/locomo_dev.json.gz"
AUDITED: Final = 25
"""Questions of a conversation that are audited."""
COMPARED: Final = 40
"""Questions of a conversation whose order is compared with igraph's."""
EDGES: Final = 1_000_000
"""Of the largest ledger that is loaded."""
BLIND: Final = "> 0: the interval excludes it"


def bench_selection(
    locomo_file: Path | None,
    data: Path,
    progress: Progress,
    *,
    edges: int = EDGES,
) -> Report:
    """Run everything and return the report.

    Args:
        locomo_file: conversations to use in the place of the development ones.
        data: folder with ``locomo``.
        progress: told what is being done, and how much of all is.
        edges: of the largest ledger that is loaded.
    """
    path = locomo_file or data / LOCOMO
    memories = list(locomo(path)) if path.exists() else []
    details: dict[str, Any] = {"conversations": [m.name for m in memories]}
    checks = _pagerank(memories, details, progress)
    progress("structure that is untrusted and right", 0.74)
    benign = [asked for memory in memories for asked in asked_about(memory, PageRank())]
    checks.append(_rate("benign_ask_rate", benign, "<= 0.10"))
    checks += _fidelity(memories, progress)
    checks += _cost(details, progress, edges)
    progress("a peer's six edges, through the proxy", 0.93)
    checks += stopped_end_to_end(details)
    progress("content that a store derives structure from", 0.96)
    checks += fit_fidelity(details)
    checks += live_stores(details)
    with TemporaryDirectory() as directory:
        checks += derived_structure(details, Path(directory))
    return Report(name="selection", machine=machine(), checks=checks, details=details)


def _rate(
    name: str, rows: Sequence[float], target: str | None = None, reason: str | None = None
) -> Check:
    if not len(rows):
        return Check(
            id=name, value=None, unit="fraction", reason=reason or "no data", target=target
        )
    value, interval = clustered(rows)
    if set(rows) <= {0.0} or set(rows) <= {1.0}:
        # Rows that are all alike say nothing of their spread when they are drawn again.
        interval = wilson(round(value * len(rows)), len(rows))
    return Check(
        id=name, value=value, unit="fraction", n=len(rows), interval=interval, target=target
    )


def _paired(trials: Trials, name: str, arm: str) -> Check:
    if not trials.rows:
        return Check(id=name, value=None, unit="fraction", reason="no data", target=BLIND)
    value, interval = trials.paired(arm)
    return Check(
        id=name, value=value, unit="fraction", n=trials.rows, interval=interval, target=BLIND
    )


def _pagerank(memories: list[Memory], details: dict[str, Any], progress: Progress) -> list[Check]:
    trials = Trials(PageRank(), further=True)
    for number, memory in enumerate(memories):
        progress(f"attacks on {memory.name}", 0.02 + 0.7 * number / len(memories))
        trials.run(memory)
    details["locomo"] = {name: tally.table() for name, tally in trials.tallies.items()}
    ours = [
        float(np.mean(row))
        for name, tally in trials.tallies.items()
        if name != "adaptive_forged"
        for row in tally.harm["ours"].values()
    ]
    forged = trials.tallies["adaptive_forged"].visible if trials.rows else []
    return [
        _paired(trials, "ppr_oracle_blind", "oracle"),
        _paired(trials, "ppr_agnostic_blind", "agnostic"),
        _rate("ours_harm", ours, "0, forged passages apart"),
        _rate("forged_visible", forged, "1.0", "no forged passage came through"),
        _rate("ours_over_block", trials.over_block, "0"),
    ]


def _fidelity(memories: list[Memory], progress: Progress) -> list[Check]:
    progress("the replica beside igraph, and the audit", 0.78)
    selector, same = PageRank(), []
    gaps: list[float] = []
    for memory in memories:
        same += _compared(memory, selector)
        for question in memory.questions[:AUDITED]:
            seen = exposure(selector, memory.graph, question.recall)
            if seen.flipped is not None:
                gaps.append(float(seen.flipped - 1 - seen.proved))
    return [
        _rate("replay_fidelity", same, ">= 0.99"),
        _gap(gaps),
    ]


def _gap(rows: list[float]) -> Check:
    if not rows:
        return Check(id="audit_gap", value=None, unit="edges", reason="no data")
    _, interval = clustered(rows)
    return Check(
        id="audit_gap", value=float(np.mean(rows)), unit="edges", n=len(rows), interval=interval
    )


def _compared(memory: Memory, selector: PageRank) -> list[float]:
    """Return for some questions 1 where igraph's order is ours, equal scores apart."""
    reference = Reference(memory.graph)
    return [
        float(reference.agrees(q.recall, selector.rank(memory.graph, q.recall)))
        for q in memory.questions[:COMPARED]
    ]


def _cost(details: dict[str, Any], progress: Progress, edges: int) -> list[Check]:
    checks: list[Check] = []
    rows: list[Timing] = []
    for place, (label, nodes, joined) in enumerate(
        (("10k", 10_000, 50_000), ("100k", 100_000, 500_000))
    ):
        progress(f"a replay on {nodes:,} nodes", 0.8 + 0.01 * place)
        found = timing(nodes, joined)
        rows.append(found)
        p50, p95 = ("<= 2", "<= 5") if label == "10k" else ("<= 10", "<= 30")
        checks += [
            _milliseconds(f"replay_p50_ms_{label}", found.cpu, 50, p50),
            _milliseconds(f"replay_p95_ms_{label}", found.cpu, 95, p95),
        ]
        if label == "10k":
            checks.append(_milliseconds("noop_p50_ms", noop(nodes, joined), 50, "<= 0.2"))
    checks.append(
        _rate("certified_share", [float(one) for row in rows for one in row.certified], ">= 0.99")
    )
    ledgers = []
    for size in (*LEDGERS, edges):
        announce = partial(_loaded, progress, size)
        ledgers.append(ledger_cost(size, announce))
    details["cost"] = {
        "unit": "processor milliseconds of the thread that ranks; `p50`, `p95`: on the clock",
        "pagerank": [row.table() for row in rows],
        "ledger": ledgers,
    }
    return checks


def _loaded(progress: Progress, size: int, done: float) -> None:
    progress(f"a ledger of {size:,} edges is loaded", 0.84 + 0.08 * done)


def _milliseconds(name: str, seconds: Sequence[float], share: float, target: str) -> Check:
    value, interval = percentile(seconds, share), interval_of(seconds, share)
    return Check(
        id=name, value=round(value, 4), unit="ms", n=len(seconds), interval=interval, target=target
    )
