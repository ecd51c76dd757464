"""Number of foreign edges that change the first item of PageRank.  Pure: no I/O.

Between a budget at which an attack was found (above) and one at which none can exist (below) lies
what is not known.  The formulas are derived in docs/adr (floor, capture, the bound below).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.extensions.graph_memory.graph import Graph, Recall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.extensions.graph_memory.selectors.pagerank import PageRank

LARGEST: Final = 64
"""Edges of the largest attack that is looked at."""
RIVALS: Final = 4
"""Items that an attack tries to bring to the front."""


def greatest_sum(first_edge: np.ndarray, ends: int, each: int) -> float:
    """Return the greatest sum over some ends of edges, of which a node can be ``each``."""
    nodes = min(ends, len(first_edge))
    best = np.partition(first_edge, -nodes)[-nodes:]
    return float(np.sort(np.repeat(best, min(each, ends)))[-ends:].sum())


@dataclass(frozen=True, slots=True)
class Exposure:
    """Cost of changing the first item of one recall."""

    first: int
    floor: float
    """Share of the walk that the first item keeps whatever is written: (1 - d) of its reset."""
    capture: float
    """Greatest share that edges can give to an item that is not a seed: d / (1 + d)."""
    margin: float
    """Score of the first item less that of the second."""
    immune: int
    """Edges of weight one with which no attack can change the first item."""
    flipped: int | None
    """Fewest edges of weight one with which an attack was found to; None up to ``LARGEST``."""
    towards: int | None = None
    """The item that then comes first."""


def exposure(
    selector: PageRank, graph: Graph, recall: Recall, *, entities_only: bool = False
) -> Exposure:
    """Return the exposure of one recall.

    Args:
        selector: PageRank with its damping.
        graph: audited.
        recall: asked.
        entities_only: whether an attacker can join entities alone, not an item itself.

    Raises:
        ValueError: the graph cannot be ranked, or ranks nothing.
    """
    scores = selector.scores(graph, recall)
    deep = Recall(recall.seeds, recall.lists, recall.without, RIVALS + 1)
    ranked = selector.rank(graph, deep).items
    if not ranked:
        raise ValueError("nothing is ranked")
    first, damping = ranked[0], selector.damping
    total = sum(recall.seeds.values())
    reset = recall.seeds.get(first, 0.0) / total
    margin = float(scores[first] - scores[ranked[1]]) if len(ranked) > 1 else float(scores[first])
    flipped, towards = _flipped(selector, graph, recall, ranked, entities_only=entities_only)
    joinable = np.ones(graph.size, dtype=bool)
    if entities_only:
        joinable[graph.items] = False
    return Exposure(
        first,
        (1 - damping) * reset,
        damping / (1 + damping),
        margin,
        immune(graph, scores * joinable, joinable, damping, margin),
        flipped,
        towards,
    )


def immune(
    graph: Graph, scores: np.ndarray, joinable: np.ndarray, damping: float, margin: float
) -> int:
    """Return the greatest number of edges of weight one that provably cannot use up a margin.

    With a_u edges added at u, a share a_u / (D_u + a_u) of the walk at u is diverted, and what is
    diverted moves the margin by at most d (2 R), R the greatest expected visits.  The diverted flow
    T is at most A / (1 - d R B) where A and B are the sums of that share over the ends of the
    edges, the first weighed by the score (docs/adr).

    Args:
        graph: audited.
        scores: of the nodes that an attacker can join, zero for the others.
        joinable: these nodes, as a mask.
        damping: of the walk.
        margin: score of the first item less that of the second.
    """
    loops = bool(graph.matrix.diagonal().any())
    visits = 1 / (1 - damping) if loops else 1 / (1 - damping**2)
    # The first edge at a node diverts the most, so the sum over the best ends is a bound.
    share = joinable / (np.maximum(graph.strength, 0.0) + 1)
    found = 0
    for budget in range(1, LARGEST + 1):
        most = greatest_sum(scores * share, 2 * budget, budget)
        room = 1 - damping * visits * greatest_sum(share, 2 * budget, budget)
        if room <= 0 or 2 * damping * visits * most / room >= margin:
            break
        found = budget
    return found


def attacks(
    graph: Graph, recall: Recall, item: int, budget: int, *, entities_only: bool
) -> Iterator[list[tuple[int, int]]]:
    """Yield edges that may bring an item to the front."""
    seeds = sorted(recall.seeds, key=lambda node: (graph.strength[node], node))
    if not entities_only:
        yield [(seeds[at % len(seeds)], item) for at in range(budget)]
    inside = set(graph.items.tolist())
    near = [node for node in graph.neighbours(item).tolist() if node not in inside]
    near.sort(key=lambda node: (graph.strength[node], node))
    pairs = [(seed, node) for node in near for seed in seeds if seed != node]
    if pairs:
        yield (pairs * (1 + budget // len(pairs)))[:budget]


def _flipped(
    selector: PageRank,
    graph: Graph,
    recall: Recall,
    ranked: tuple[int, ...],
    *,
    entities_only: bool,
) -> tuple[int | None, int | None]:
    """Return the fewest edges found to change the first item, and the item that comes first."""

    def found(budget: int) -> int | None:
        for item in ranked[1:]:
            for edges in attacks(graph, recall, item, budget, entities_only=entities_only):
                one, two = zip(*edges, strict=True)
                after = selector.rank(graph.joined(one, two, [1.0] * len(edges)), recall)
                if after.items and after.items[0] != ranked[0]:
                    return after.items[0]
        return None

    budget = 1
    while budget <= LARGEST and found(budget) is None:
        budget *= 2
    if budget > LARGEST:
        return None, None
    low = budget // 2
    while budget - low > 1:
        middle = (low + budget) // 2
        low, budget = (low, middle) if found(middle) is not None else (middle, budget)
    return budget, found(budget)
