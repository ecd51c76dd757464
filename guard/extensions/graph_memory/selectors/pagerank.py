"""Personalised PageRank; by default as HippoRAG 2 runs it: undirected, weighted, damping 0.5.

HippoRAG 2 (``run_ppr``) calls igraph's ``personalized_pagerank`` with the reset distribution of the
query and sorts passages by their score.  Here only the order of the first items is computed, to the
precision that it takes, by a bound on the error (docs/adr; Andersen, Chung, Lang 2006, section 3).
A directed walk, and one that stops at a tolerance as networkx does, is stepped to its end.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np

from guard.extensions.graph_memory.graph import Graph, Ranking, Recall
from guard.extensions.graph_memory.selectors.base import Selector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


DAMPING: Final = 0.5
"""Probability that the walk goes on: HippoRAG 2's."""
PRECISION: Final = 42.0
"""Digits (natural) after which the error is below what a float64 can tell apart."""
MOST_STEPS: Final = 100
"""Steps after which networkx gives a walk up that has not come to its tolerance."""
PUSHED: Final = 0.2
"""Share of the whole graph's edges that may be pushed over before it is stepped over instead: an
edge costs some ten times as much that way."""
SMALL: Final = 20_000
"""Nodes up to which nothing is pushed."""
UNSEEN: Final = 5
"""States before the first look at the order: so early the bound is too wide to prove any."""
NARROWER: Final = 6.0
"""By how much the bound of what is left narrows from one look at the order to the next."""
NARROWEST: Final = 1e-8
"""Share of the first bound below which nothing is pushed: what is not proved by then is a tie."""
NEAR: Final = 256
"""Items whose order is looked at; where more can be among the first, the bound is too wide."""
ROUNDING: Final = 1e-12
"""Bound on the relative error of float64 sums here."""
EQUAL: Final = 1e-13
"""Scores nearer than this, relative to the first, are one score."""


class _State(NamedTuple):
    """Scores by degree, and what is not yet spread, by degree; both of shape (nodes,).

    The truth is ``scores + (1 - d) (left + d P left + d^2 P^2 left + ...)`` with ``P = D^-1 W``,
    whose rows sum to one.
    """

    scores: np.ndarray
    left: np.ndarray


class PageRank(Selector):
    """Ranks items by the share of a random walk's time that it spends at each.

    Args:
        damping: probability that the walk goes on rather than restarting.
        directed: whether it follows an edge from its first node to its second alone.
        weights: whether the weight of an edge counts.
        personalization: where it restarts: at the ``seeds``, at the seeds by one over the number of
            their neighbours (``inverse_degree``), or at every node (``uniform``).
        tolerance: change per node at which the store stops; 0 where its scores are exact.
    """

    name: ClassVar[str] = "pagerank"
    parameters: ClassVar[Mapping[str, tuple[float | str | bool, ...]]] = {
        "damping": (DAMPING, *(percent / 100 for percent in range(1, 100))),
        "directed": (False, True),
        "weights": (True, False),
        "personalization": ("seeds", "inverse_degree", "uniform"),
        "tolerance": (0.0, 1e-6),
    }

    def __init__(
        self,
        damping: float = DAMPING,
        *,
        directed: bool = False,
        weights: bool = True,
        personalization: str = "seeds",
        tolerance: float = 0.0,
    ) -> None:
        self.damping = damping
        """Probability that the walk goes on."""
        self._directed, self._weights = directed, weights
        self._personalization, self._tolerance = personalization, tolerance
        rate = (1 - math.sqrt(1 - damping**2)) / damping
        self._most = math.ceil(-PRECISION / math.log(rate))

    @property
    def is_certifiable(self) -> bool:
        """Return whether the bounds hold: for an exact and undirected walk from its seeds."""
        return not (self._directed or self._tolerance) and self._personalization == "seeds"

    def rank(self, graph: Graph, recall: Recall) -> Ranking:
        """Return the best items, certified where the bound allows it."""
        graph = graph if self._weights else graph.unweighted
        start = self._start(graph, recall)
        if self._directed or self._tolerance:
            return self._walked(graph, recall, start)
        found = _Order(graph, recall, (1 - self.damping) * start, self.damping)
        state = None
        for looks, state in enumerate(self._solved(graph, start)):
            if looks >= UNSEEN and (ranking := found.certified(state)) is not None:
                return ranking
        if state is None:
            raise ValueError("the graph has no edges")
        return found.exact(state)

    def scores(self, graph: Graph, recall: Recall) -> np.ndarray:
        """Return the score of every node to full precision, shape (nodes,), summing to one."""
        graph = graph if self._weights else graph.unweighted
        start = self._start(graph, recall)
        *_, last = self._steps(graph, start)
        strength = graph.strength
        found = np.where(strength > 0, last.scores * strength, (1 - self.damping) * start)
        answer: np.ndarray = found / found.sum()
        return answer

    def _start(self, graph: Graph, recall: Recall) -> np.ndarray:
        if self._personalization == "uniform":
            return np.full(graph.size, 1 / graph.size)
        if self._personalization == "seeds":
            return reset(graph, recall)
        degrees = np.diff(graph.matrix.indptr)
        seeds = {node: w / max(1, int(degrees[node])) for node, w in recall.seeds.items()}
        return reset(graph, replace(recall, seeds=seeds))

    def _walked(self, graph: Graph, recall: Recall, start: np.ndarray) -> Ranking:
        """Return the best items by power iteration, as far as the store takes it."""
        matrix = graph.directed if self._directed else graph.matrix
        strength = np.asarray(matrix.sum(axis=1)).reshape(-1)
        inverse = np.divide(1.0, strength, out=np.zeros(graph.size), where=strength > 0)
        onward, ends = matrix.T.tocsr(), strength == 0
        exact = math.ceil(-PRECISION / math.log(self.damping))
        scores = np.full(graph.size, 1 / graph.size) if self._tolerance else start
        for _ in range(MOST_STEPS if self._tolerance else exact):
            before = scores
            # A walk that cannot go on restarts.
            restarts = self.damping * float(before[ends].sum()) + 1 - self.damping
            scores = self.damping * (onward @ (before * inverse)) + restarts * start
            if np.abs(scores - before).sum() < graph.size * self._tolerance:
                break
        items = graph.items
        if recall.without:
            items = items[~np.isin(items, np.fromiter(recall.without, np.int64))]
        return ranking_of(items, scores[items], recall.top)

    def _solved(self, graph: Graph, start: np.ndarray) -> Iterator[_State]:
        """Yield better and better scores: pushed, and stepped on from where pushing has ended."""
        state = None
        for state in self._pushed(graph, start):
            yield state
        yield from self._steps(graph, start, state)

    def _pushed(self, graph: Graph, start: np.ndarray) -> Iterator[_State]:
        """Yield better and better scores by forward push: what is left at single nodes is spread.

        It ends when it has cost as much as some steps over the whole graph.
        """
        damping, matrix, inverse = self.damping, graph.matrix, graph.inverse
        indices, data = matrix.indices, matrix.data
        state = _State(np.zeros(graph.size), start * inverse)
        scores, left = state
        bound = float(left.max())
        least = bound * NARROWEST
        # On a small graph a step over all of it costs less than to choose where to push.
        room = PUSHED * len(data) if graph.size > SMALL else 0
        while room > 0 and bound > least:
            bound /= NARROWER
            while room > 0 and len(active := np.flatnonzero(left > bound)):
                spread = left[active]
                scores[active] += (1 - damping) * spread
                left[active] = 0.0
                edges, counts = _entries(matrix.indptr, active)
                room -= len(edges)
                found = indices[edges]
                given = np.repeat(damping * spread, counts)
                given *= data[edges]
                if len(edges) < graph.size // 2:
                    np.add.at(left, found, given * inverse[found])
                else:
                    left += inverse * np.bincount(found, given, graph.size)
            yield state

    def _steps(
        self, graph: Graph, start: np.ndarray, begun: _State | None = None
    ) -> Iterator[_State]:
        """Yield better and better solutions of ``y = (1 - d) s / D + d P y`` (Chebyshev).

        ``P`` is self-adjoint in the inner product by degree, with eigenvalues in [-1, 1]: a step
        divides the error by 3.7 at damping 0.5, where one of power iteration divides it by 2.

        Args:
            graph: stepped over.
            start: where the walk restarts.
            begun: what has been worked out already, if anything.
        """
        damping, matrix, inverse = self.damping, graph.matrix, graph.inverse
        constant = (1 - damping) * start * inverse
        if begun is None:
            begun = _State(constant, damping * inverse * (matrix @ (start * inverse)))
        scores, rho = begun.scores.copy(), damping
        change = (1 - damping) * begun.left
        for _ in range(self._most):
            scores += change
            residual = matrix @ scores
            residual *= damping * inverse
            residual += constant
            residual -= scores
            yield _State(scores, residual / (1 - damping))
            before, rho = rho, 1 / (2 / damping - rho)
            change *= rho * before
            change += (2 * rho / damping) * residual


class _Order:
    """The order of the items of a recall at each step.

    Args:
        graph: the items' own.
        recall: which of them are ranked, and how many are wanted.
        isolated: score of each node if it has no edge, shape (nodes,).
        damping: of the walk.
    """

    def __init__(self, graph: Graph, recall: Recall, isolated: np.ndarray, damping: float) -> None:
        items = graph.items
        if recall.without:
            items = items[~np.isin(items, np.fromiter(recall.without, np.int64))]
        self._graph, self._damping = graph, damping
        self._items, self._strength = items, graph.strength[items]
        self._isolated = np.where(self._strength > 0, 0.0, isolated[items])
        self._top = min(recall.top, len(items))

    def certified(self, state: _State) -> Ranking | None:
        """Return the first items if no error within the bounds can change their order.

        The mass that is left at an item itself is added to all items.  On large graphs, one more
        step is added to the items that can still be among the first.  The rest of the series lies
        between the least and the greatest of the mass that is left.
        """
        if not self._top:
            return Ranking(())
        damping, left = self._damping, state.left
        least, most = min(0.0, float(left.min())), max(0.0, float(left.max()))
        scores = state.scores[self._items] + (1 - damping) * left[self._items]
        low = (scores + damping * least) * self._strength + self._isolated
        high = (scores + damping * most) * self._strength + self._isolated
        line = np.partition(low, -self._top)[-self._top]
        near = np.flatnonzero(high >= line)
        if len(near) > NEAR:
            return None
        nodes, strength = self._items[near], self._strength[near]
        more, width = np.zeros(len(nodes)), damping
        if len(left) > SMALL:
            more, width = damping * (1 - damping) * self._around(nodes, left), damping**2
        middle = (scores[near] + more) * strength + self._isolated[near]
        low = middle + width * least * strength - ROUNDING * middle
        high = middle + width * most * strength + ROUNDING * middle
        order = np.lexsort((nodes, -low))
        low, high = low[order], high[order]
        # Nothing behind may reach what stands before it.
        beyond = np.maximum.accumulate(high[::-1])[::-1]
        if (low[: self._top][: len(low) - 1] <= beyond[1:][: self._top]).any():
            return None
        if low[self._top - 1] <= 0:
            # Whether the walk comes to the last one at all is not proved.
            return None
        return Ranking(tuple(nodes[order][: self._top].tolist()))

    def _around(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the mean of some values over the neighbours of some nodes, by weight."""
        matrix, inverse = self._graph.matrix, self._graph.inverse
        edges, counts = _entries(matrix.indptr, nodes)
        given = matrix.data[edges] * values[matrix.indices[edges]]
        places = np.repeat(np.arange(len(nodes)), counts)
        found: np.ndarray = np.bincount(places, given, len(nodes))
        found *= inverse[nodes]
        return found

    def exact(self, state: _State) -> Ranking:
        """Return the first items by scores that are as exact as they can be."""
        scores = state.scores[self._items] * self._strength + self._isolated
        return ranking_of(self._items, scores, self._top)


def ranking_of(items: np.ndarray, scores: np.ndarray, top: int) -> Ranking:
    """Return the first items by their scores; those that are nearly equal are level."""
    best = np.argsort(-scores, kind="stable")[:top]
    found = scores[best]
    near = EQUAL * float(found[0]) if len(found) else 0.0
    ties: list[int] = []
    for place, score in enumerate(found.tolist()):
        tied = place > 0 and found[place - 1] - score <= near
        ties.append(ties[-1] if tied else place)
    level: frozenset[int] = frozenset()
    if ties:
        same = items[np.abs(scores - found[-1]) <= near].tolist()
        level = frozenset(same).difference(items[best].tolist())
    reached = int((found > 0).sum())
    return Ranking(tuple(items[best].tolist()), tuple(ties), level, reached, certified=False)


def _entries(indptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the entries of some rows of a sparse matrix, and their counts."""
    begin = indptr[rows]
    counts = indptr[rows + 1] - begin
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(begin - ends + counts, counts), counts


def reset(graph: Graph, recall: Recall) -> np.ndarray:
    """Return where the walk restarts, shape (nodes,), summing to one.

    Raises:
        ValueError: no seed has a weight, or one is not a number that is at least zero.
    """
    found = np.zeros(graph.size)
    for node, weight in recall.seeds.items():
        found[node] += weight
    total = float(found.sum())
    if not np.isfinite(total) or total <= 0 or (found < 0).any():
        raise ValueError("a recall has nothing to start from")
    return found / total
