"""A memory graph as arrays, and what a selector is asked.  Pure: no I/O.

A graph is undirected and weighted; parallel edges add up.  Nodes are numbered in the order in which
they were first written, which is also how equal scores are ordered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(eq=False)
class Graph:
    """Nodes 0 to n - 1 and weighted edges between them.

    Args:
        size: number of nodes.
        items: numbers of the nodes that a recall can return (records, passages), ascending.
        source: int32, one end of each edge.
        target: int32, the other end.
        weight: float64, finite and positive.
    """

    size: int
    items: np.ndarray
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    kept_results: dict[object, np.ndarray] = field(default_factory=dict, repr=False)
    """Results that selectors have computed from the whole graph, such as communities."""

    @cached_property
    def matrix(self) -> Any:
        """The symmetric weight matrix, ``scipy.sparse.csr_array`` of shape (size, size).

        A loop counts once on the diagonal.
        """
        from scipy.sparse import coo_array

        one, two = self.source, self.target
        loops = one == two
        rows = np.concatenate([one, two[~loops]])
        columns = np.concatenate([two, one[~loops]])
        values = np.concatenate([self.weight, self.weight[~loops]])
        return coo_array((values, (rows, columns)), shape=(self.size, self.size)).tocsr()

    @property
    def directed(self) -> Any:
        """The weight matrix of the edges from their first node to their second one."""
        from scipy.sparse import coo_array

        shape = (self.size, self.size)
        return coo_array((self.weight, (self.source, self.target)), shape=shape).tocsr()

    @cached_property
    def unweighted(self) -> Graph:
        """The graph with weight one for each edge."""
        ones = np.ones(len(self.weight))
        return Graph(self.size, self.items, self.source, self.target, ones)

    @cached_property
    def strength(self) -> np.ndarray:
        """Sum of the weights at each node, float64 of shape (size,)."""
        found: np.ndarray = np.asarray(self.matrix.sum(axis=1)).reshape(-1)
        return found

    @cached_property
    def inverse(self) -> np.ndarray:
        """One by the strength of each node, zero where a node has no edge."""
        strength = self.strength
        inverse = np.zeros(self.size)
        np.divide(1.0, strength, out=inverse, where=strength > 0)
        return inverse

    def joined(
        self, source: Sequence[int], target: Sequence[int], weight: Sequence[float]
    ) -> Graph:
        """Return the graph with some more edges between its nodes."""
        return Graph(
            self.size,
            self.items,
            np.concatenate([self.source, np.asarray(source, dtype=np.int32)]),
            np.concatenate([self.target, np.asarray(target, dtype=np.int32)]),
            np.concatenate([self.weight, np.asarray(weight, dtype=np.float64)]),
        )

    def kept(self, edges: np.ndarray) -> Graph:
        """Return the graph with some of its edges alone, as a mask or numbers."""
        return Graph(
            self.size, self.items, self.source[edges], self.target[edges], self.weight[edges]
        )

    def neighbours(self, node: int) -> np.ndarray:
        """Return the nodes that a node is joined to, ascending."""
        matrix = self.matrix
        found: np.ndarray = matrix.indices[matrix.indptr[node] : matrix.indptr[node + 1]]
        return np.sort(found)


@dataclass(frozen=True, slots=True)
class Recall:
    """One question to a memory, as far as its selector sees it."""

    seeds: dict[int, float] = field(default_factory=dict)
    """Weight of the restart at each node; where a walk begins, or the centre of a search."""
    lists: tuple[tuple[int, ...], ...] = ()
    """Rankings by content (vectors, BM25), best first, as the store's retrievers gave them."""
    without: frozenset[int] = frozenset()
    """Items that are not ranked."""
    top: int = 5
    """Number of items that are returned."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The items that a selector returns, best first."""

    items: tuple[int, ...]
    ties: tuple[int, ...] = ()
    """For each item the first place that one of its score can take; empty: no two are equal."""
    level: frozenset[int] = frozenset()
    """Further items with the score of the last: another order of equal ones would return them."""
    reached: int | None = None
    """Number of them that anything in the graph selects; None for all.  The others have no score at
    all, and follow in any order."""
    certified: bool = True
    """True if a bound on the error proves the order; else it was computed to full precision."""

    def place(self, item: int) -> int | None:
        """Return the best zero-based place of an item, None where it is not returned."""
        if item in self.level:
            return self.ties[-1]
        if item not in self.items:
            return None
        at = self.items.index(item)
        return self.ties[at] if self.ties else at

    def selects(self, item: int) -> bool:
        """Return whether an item is returned because of something in the graph."""
        place = self.place(item)
        return place is not None and (self.reached is None or place < self.reached)
