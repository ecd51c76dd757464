"""A budget of edges within which nobody can change what PageRank puts first.  Pure: no I/O.

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

if TYPE_CHECKING:
    from guard.extensions.graph_memory.graph import Graph, Recall

LARGEST: Final = 64
"""Edges of the largest attack that is looked at."""
ROUNDS: Final = 24
"""Iterations of a value; they grow from below, so that fewer only prove less."""
PRICES: Final = (0.3, 0.5, 0.15, 0.7, 0.07, 0.85, 0.03)
"""Prices that are tried, as shares of what two ends of each edge may cost: every one gives a bound,
and one of 1 or more none that is positive."""
RIVALS: Final = 1024
"""Items that one budget is looked at for; where more could come first, nothing is proved."""
REFINED: Final = 3
"""Times that the bounds on visits are narrowed by each other."""


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
        if len(near) > RIVALS or (gaps <= 0).any():
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

        With ``a`` edges at ``u`` the share ``f = a / (D + a)`` of its visits goes where it is worth
        least, at the price ``a = D f / (1 - f)``; the best ``f`` has a closed form.
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
