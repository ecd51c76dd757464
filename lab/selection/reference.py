"""igraph's PageRank, as HippoRAG 2 calls it: order and time of the replica are held against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import igraph
import numpy as np

from guard.extensions.graph_memory.replay import is_order
from guard.extensions.graph_memory.selectors.pagerank import DAMPING

if TYPE_CHECKING:
    from guard.extensions.graph_memory.graph import Graph, Ranking, Recall

PRECISION: Final = 11
"""Decimals of a score that prpack gets right; scores that differ by less are equal."""


class Reference:
    """``personalized_pagerank`` on one graph.

    Args:
        graph: undirected and weighted.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        ends = np.column_stack([graph.source, graph.target])
        self._other = igraph.Graph(n=graph.size, edges=ends)
        self._weights = graph.weight.tolist()

    def order(self, recall: Recall) -> list[int]:
        """Return the items that a store would serve, best first."""
        graph, reset = self._graph, np.zeros(self._graph.size)
        reset[list(recall.seeds)] = list(recall.seeds.values())
        scores = self._other.personalized_pagerank(
            damping=DAMPING,
            directed=False,
            weights=self._weights,
            reset=reset.tolist(),
            implementation="prpack",
        )
        of_items = np.round(np.asarray(scores)[graph.items], PRECISION)
        items = graph.items
        if recall.without:
            kept = ~np.isin(items, np.fromiter(recall.without, np.int64))
            items, of_items = items[kept], of_items[kept]
        found: list[int] = items[np.lexsort((items, -of_items))[: recall.top]].tolist()
        return found

    def agrees(self, recall: Recall, ranking: Ranking) -> bool:
        """Return whether a ranking is the reference's, equal scores apart."""
        return is_order(self.order(recall), ranking)
