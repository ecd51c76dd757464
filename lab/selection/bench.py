"""``guard lab bench selection``: every figure of the selection's protection, and its cost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guard.extensions.graph_memory.audit import exposure
from guard.extensions.graph_memory.selectors import discover_selectors
from guard.extensions.graph_memory.selectors.leiden import Leiden
from guard.extensions.graph_memory.selectors.pagerank import PageRank
from guard.replay.reports import Check, Report, machine
from lab.judged_runs import wilson
from lab.selection.corpora import Memory, Reference, locomo, wiki, with_passages
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
from lab.selection.trials import DEFENCES, Benign, Trials, by_question, clustered, partings, pooled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Progress = Callable[[str, float], object]

DATA: Final = Path("../shared/data")
LOCOMO: Final = "locomo/locomo_dev.json.gz"
WIKI: Final = "2wiki/2wikimultihopqa_corpus.json.gz"
COMMUNITY_ROWS: Final = 16
"""Questions of a conversation on which Leiden is attacked: each costs some fifteen runs of it."""
AUDITED: Final = 25
"""Questions of a conversation that are audited."""
COMPARED: Final = 40
"""Questions of a conversation whose order is compared with igraph's."""
WIKI_ROWS: Final = 60
"""Chains of 2Wiki that are attacked with every defence."""
WIKI_BENIGN: Final = 400
"""Chains of 2Wiki over a graph some of whose facts are untrusted."""
EDGES: Final = 1_000_000
"""Number of edges of the largest ledger that is loaded."""
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
        data: folder with ``locomo`` and ``2wiki``.
        progress: told what is being done, and how much of all is.
        edges: of the largest ledger that is loaded.
    """
    path = locomo_file or data / LOCOMO
    memories = list(locomo(path)) if path.exists() else []
    corpus = data / WIKI
    chains = wiki(corpus, WIKI_BENIGN) if corpus.exists() else None
    second = replace(chains, questions=chains.questions[:WIKI_ROWS]) if chains else None
    checks: list[Check] = []
    details: dict[str, Any] = {"conversations": [m.name for m in memories]}
    checks += _pagerank(memories, second, details, progress)
    checks += _communities(memories, progress)
    checks += _pools(memories, progress)
    checks += _benign(memories, chains, progress)
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


def _mean(
    name: str, rows: Sequence[float], target: str | None = None, unit: str = "fraction"
) -> Check:
    """Return the mean of one figure per question, with its interval."""
    if not len(rows):
        return Check(id=name, value=None, unit=unit, reason="no data", target=target)
    value, interval = clustered(rows)
    if set(rows) <= {0.0} or set(rows) <= {1.0}:
        # Rows that are all alike say nothing of their spread when they are drawn again.
        interval = wilson(round(value * len(rows)), len(rows))
    return Check(id=name, value=value, unit=unit, n=len(rows), interval=interval, target=target)


def _pagerank(
    memories: list[Memory], second: Memory | None, details: dict[str, Any], progress: Progress
) -> list[Check]:
    trials = Trials(PageRank(), further=True)
    for number, memory in enumerate(memories):
        progress(f"attacks on {memory.name}", 0.02 + 0.34 * number / len(memories))
        trials.run(memory)
    real = Trials(PageRank(), further=False)
    for number, memory in enumerate(memories):
        progress(f"restarts at passages of {memory.name}", 0.36 + 0.04 * number / len(memories))
        real.run(with_passages(memory))
    other = Trials(PageRank(), further=False)
    if second is not None:
        progress("attacks on 2Wiki", 0.4)
        other.run(second)
    details["harm"] = {
        corpus: {name: {d: tally.rate(d) for d in DEFENCES} for name, tally in one.tallies.items()}
        for corpus, one in (("locomo", trials), ("with_passages", real), ("2wiki", other))
    }
    worst = [float(np.mean(row)) for row in trials.part_known.values()]
    return [
        _mean("ppr_oracle_blind", trials.paired("oracle"), BLIND),
        _mean("ppr_agnostic_blind", trials.paired("agnostic"), BLIND),
        *_defended(trials, real, other),
        _mean("label_recall_harm", worst),
        _mean("ours_over_block", [*trials.over_block, *real.over_block, *other.over_block], "0"),
    ]


def _defended(trials: Trials, *others: Trials) -> list[Check]:
    """Return what the defences let through of every arm but the forged one."""
    ours: list[float] = []
    alike: list[float] = []
    for one in (trials, *others):
        for name, tally in one.tallies.items():
            if name == "adaptive_forged":
                continue
            ours += [float(np.mean(row)) for row in tally.harm["ours"].values()]
            if name not in _WITH_TEXT:
                pairs = zip(
                    tally.harm["none"].values(),
                    tally.harm["justification_ifc"].values(),
                    tally.harm["context_ifc"].values(),
                    strict=True,
                )
                alike += [float(a == b == c) for a, b, c in pairs]
    forged = trials.tallies["adaptive_forged"].visible if trials.rows else []
    return [
        _mean("ifc_equals_none", alike, "1.0"),
        _mean("ours_harm", ours, "0, forged passages apart"),
        _mean("forged_visible", forged, "1.0", "no forged passage came through"),
    ]


_WITH_TEXT: Final = frozenset({"inject_only", "seed_alias", "content_only", "launder_text"})
"""Arms that add text which can be recalled: label checks see it, as they should."""


def _communities(memories: list[Memory], progress: Progress) -> list[Check]:
    rows: list[float] = []
    for number, memory in enumerate(memories):
        progress(f"communities of {memory.name}", 0.48 + 0.2 * number / len(memories))
        rows += partings(memory, Leiden, COMMUNITY_ROWS)
    return [_mean("leiden_blind", rows, BLIND)]


def _pools(memories: list[Memory], progress: Progress) -> list[Check]:
    progress("selectors over what content finds", 0.7)
    found: dict[str, list[tuple[float, int]]] = {
        name: [row for memory in memories for row in pooled(memory, discover_selectors()[name]())]
        for name in ("rrf", "vector", "node_distance")
    }
    harmed = {name: [harm for harm, _ in rows] for name, rows in found.items()}
    return [
        _mean("rrf_blind", harmed["rrf"], "0"),
        _mean("vector_blind", harmed["vector"], "0"),
        _outsiders([outside for _, outside in found["node_distance"]]),
        _mean("node_distance_harm", harmed["node_distance"]),
    ]


def _outsiders(rows: Sequence[int]) -> Check:
    """Return the items from outside the pool; the interval is of answers that have any."""
    name = "node_distance_outsiders"
    if not rows:
        return Check(id=name, value=None, unit="items", reason="no data", target="0")
    low, high = wilson(sum(count > 0 for count in rows), len(rows))
    within = (low * len(rows), high * len(rows))
    return Check(id=name, value=sum(rows), unit="items", n=len(rows), interval=within, target="0")


def _benign(memories: list[Memory], second: Memory | None, progress: Progress) -> list[Check]:
    progress("structure that is untrusted and right", 0.74)
    benign, other = Benign(), Benign()
    for memory in memories:
        benign.run(memory, PageRank())
    if second is not None:
        other.run(second, PageRank())
    return [
        _mean("benign_ask_rate", by_question(benign.asked), "<= 0.10"),
        _mean("benign_utility", by_question(other.useful), ">= 0.95"),
        _mean("advisory_harm", by_question(other.harmed)),
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
        _mean("replay_fidelity", same, ">= 0.99"),
        _mean("audit_gap", gaps, unit="edges"),
    ]


def _compared(memory: Memory, selector: PageRank) -> list[float]:
    """Return for some questions 1 where igraph's order is ours, equal scores apart."""
    reference = Reference(memory.graph)
    return [
        float(reference.agrees(q.recall, selector.rank(memory.graph, q.recall)))
        for q in memory.questions[:COMPARED]
    ]


def _cost(details: dict[str, Any], progress: Progress, edges: int) -> list[Check]:
    checks: list[Check] = []
    certified: list[float] = []
    for label, nodes, p50, p95 in (
        ("10k", 10_000, "<= 2", "<= 5"),
        ("100k", 100_000, "<= 10", "<= 30"),
    ):
        progress(f"a replay on {nodes:,} nodes", 0.8)
        spent, proved = timing(nodes, 5 * nodes)
        certified += map(float, proved)
        checks += [
            _milliseconds(f"replay_p50_ms_{label}", spent, 50, p50),
            _milliseconds(f"replay_p95_ms_{label}", spent, 95, p95),
        ]
    checks.insert(2, _milliseconds("noop_p50_ms", noop(10_000, 50_000), 50, "<= 0.2"))
    checks.append(_mean("certified_share", certified, ">= 0.99"))
    details["ledgers"] = [
        ledger_cost(size, partial(_loaded, progress, size)) for size in (*LEDGERS, edges)
    ]
    return checks


def _loaded(progress: Progress, size: int, done: float) -> None:
    progress(f"a ledger of {size:,} edges is loaded", 0.84 + 0.08 * done)


def _milliseconds(name: str, seconds: Sequence[float], share: float, target: str) -> Check:
    value, interval = percentile(seconds, share), interval_of(seconds, share)
    return Check(
        id=name, value=round(value, 4), unit="ms", n=len(seconds), interval=interval, target=target
    )
