"""Number of foreign edges that change the first item of PageRank.  Pure: no I/O.

Between a budget at which an attack was found (above) and one at which none can exist (below) lies
what is not known.  The formulas are derived in docs/adr (floor, capture, the bound below).

The certificate of "Certifiable Robustness to Graph Perturbations" (Bojchevski and Günnemann, arXiv
1910.14356) for a global budget, taken over to undirected weighted graphs.  What an attacker can do
is a Markov decision process whose states are the nodes: at each he adds edges, and pays for them.
Their linear program bounds it from below; its dual in the one coupling constraint, the budget, is a
process with a price per edge, which value iteration solves (docs/adr).
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
ROUNDS: Final = 24
"""Iterations of a value; they grow from below, so that fewer only prove less."""
PRICES: Final = (0.3, 0.5, 0.15, 0.7, 0.07, 0.85, 0.03)
"""Prices that are tried, as shares of what two ends of each edge may cost: every one gives a bound,
and one of 1 or more none that is positive."""
NEAR: Final = 1024
"""Items that one budget is looked at for; where more could come first, nothing is proved."""
REFINED: Final = 3
"""Times that the bounds on visits are narrowed by each other."""
RIVALS: Final = 4
"""Items that an attack tries to bring to the front."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Parts shared by every budget and rival.

    Args:
        graph: audited.
        seeds: where the walk restarts, shape (nodes,), summing to one.
        scores: of every node, as the walk has them (not normalised).
        damping: of the walk.
        joinable: nodes that an attacker can join, as a mask.
    """

    graph: Graph
    seeds: np.ndarray
    scores: np.ndarray
    damping: float
    joinable: np.ndarray

    @classmethod
    def of(
        cls, graph: Graph, recall: Recall, scores: np.ndarray, damping: float, *, entities: bool
    ) -> Certificate:
        """Return it for one recall.

        Args:
            graph: audited.
            recall: asked.
            scores: of every node, summing to one.
            damping: of the walk.
            entities: whether an attacker joins entities alone, no item.
        """
        seeds = np.zeros(graph.size)
        for node, weight in recall.seeds.items():
            seeds[node] += weight
        seeds /= seeds.sum()
        # Where a walk restarts at a node without edges it ends there.
        lost = damping * float(seeds[graph.strength <= 0].sum())
        joinable = np.ones(graph.size, dtype=bool)
        if entities:
            joinable[graph.items] = False
        return cls(graph, seeds, scores * (1 - lost), damping, joinable)

    @property
    def returns(self) -> float:
        """Greatest number of visits to a node of a walk that begins there."""
        loops = bool(self.graph.matrix.diagonal().any())
        return 1 / (1 - self.damping) if loops else 1 / (1 - self.damping**2)

    def diverted(self, budget: int) -> tuple[float, np.ndarray]:
        """Return the greatest flow that a budget can divert, and the most that each node gets.

        A node's first edge diverts the most of it, and no node has more than ``budget`` ends.
        """
        damping, strength = self.damping, self.graph.strength
        share = self.joinable / (strength + 1)
        most = np.minimum(
            1.0, ((1 - damping) * self.seeds + damping) * self.returns * (1 - damping)
        )
        flow = 1.0
        for _ in range(REFINED):
            flow = min(flow, greatest_sum(most * share, 2 * budget, budget))
            most = np.minimum(most, self.scores + damping * self.returns * flow)
        return flow, most

    def greatest(self, first: int, items: np.ndarray) -> int:
        """Return the greatest budget within which no item can come before the first one."""
        low, high = 0, 1
        while high <= LARGEST and self.holds(first, items, high):
            low, high = high, 2 * high
        high = min(high, LARGEST + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.holds(first, items, middle) else (low, middle)
        return low

    def holds(self, first: int, items: np.ndarray, budget: int) -> bool:
        """Return whether it is proved that a budget changes no order with the first item."""
        flow, most = self.diverted(budget)
        others = items[items != first]
        gaps = self.scores[first] - self.scores[others]
        near = others[gaps <= 2 * self.damping * self.returns * flow]
        if len(near) > NEAR or (gaps <= 0).any():
            return False
        near = near[np.argsort(-self.scores[near], kind="stable")]
        return all(self.margin(first, int(rival), budget, most) > 0 for rival in near)

    def margin(self, first: int, rival: int, budget: int, most: np.ndarray) -> float:
        """Return a lower bound on the score of the first item less that of a rival.

        Args:
            first: the item that comes first.
            rival: another.
            budget: edges of weight one that an attacker adds between any two nodes.
            most: upper bound on the score of each node, whatever he adds.
        """
        gap, best = float(self.scores[first] - self.scores[rival]), -np.inf
        for share in PRICES:
            price = share * gap / (2 * budget)
            value = self._value(first, rival, budget, price / np.maximum(most, 1e-12))
            best = max(best, (1 - self.damping) * float(self.seeds @ value) - share * gap)
            if best > 0:
                break
        return best

    def _value(self, first: int, rival: int, budget: int, price: np.ndarray) -> np.ndarray:
        """Return what a walk from each node is worth at least, edges paid by the visit.

        With ``a`` edges at ``u`` the share ``f = a / (D + a)`` of its visits goes to the node of
        least worth.  The price is ``a = D f / (1 - f)``.  The best ``f`` has a closed form.
        """
        graph, damping = self.graph, self.damping
        strength = graph.strength
        limit = np.where(self.joinable, budget / (strength + budget), 0.0)
        value = np.full(graph.size, -1 / (1 - damping))
        for _ in range(ROUNDS):
            around = graph.inverse * (graph.matrix @ value)
            least = float(value[self.joinable].min())
            gain = damping * np.maximum(around - least, 0.0)
            paid = price * strength
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(gain > 0, 1 - np.sqrt(paid / gain), 0.0)
            share = np.clip(share, 0.0, limit)
            value = damping * around - share * gain + paid * share / (1 - share + 1e-15)
            value[first] += 1.0
            value[rival] -= 1.0
        return value


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
    certified: int
    """The same by the certificate of arXiv 1910.14356."""
    flipped: int | None
    """Fewest edges of weight one with which an attack was found to; None up to ``LARGEST``."""
    towards: int | None = None
    """The item that then comes first."""

    @property
    def proved(self) -> int:
        """Edges within which one of the two bounds proves that no attack can."""
        return max(self.immune, self.certified)


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
    items = np.setdiff1d(graph.items, np.fromiter(recall.without, dtype=np.int64))
    total = sum(recall.seeds.values())
    reset = recall.seeds.get(first, 0.0) / total
    margin = float(scores[first] - scores[ranked[1]]) if len(ranked) > 1 else float(scores[first])
    flipped, towards = _flipped(selector, graph, recall, ranked, entities_only=entities_only)
    certificate = Certificate.of(graph, recall, scores, damping, entities=entities_only)
    return Exposure(
        first,
        (1 - damping) * reset,
        damping / (1 + damping),
        margin,
        immune(certificate, margin),
        certificate.greatest(first, items),
        flipped,
        towards,
    )


def immune(certificate: Certificate, margin: float) -> int:
    """Return the greatest number of edges of weight one that provably cannot use up a margin.

    With a_u edges added at u, a share a_u / (D_u + a_u) of the walk at u is diverted, and what is
    diverted moves the margin by at most d (2 R), R the greatest expected visits.  The diverted flow
    T is at most A / (1 - d R B) where A and B are the sums of that share over the ends of the
    edges, the first weighed by the score (docs/adr).
    """
    visits, damping = certificate.returns, certificate.damping
    # The first edge at a node diverts the most, so the sum over the best ends is a bound.
    share = certificate.joinable / (np.maximum(certificate.graph.strength, 0.0) + 1)
    found = 0
    for budget in range(1, LARGEST + 1):
        most = greatest_sum(certificate.scores * share, 2 * budget, budget)
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
