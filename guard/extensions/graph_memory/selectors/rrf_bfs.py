"""Graphiti's fusion with candidates from a breadth-first search: edges bring candidates in."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guard.extensions.graph_memory.selectors.base import Selector, first
from guard.extensions.graph_memory.selectors.rrf import fused

if TYPE_CHECKING:
    from guard.extensions.graph_memory.graph import Graph, Ranking, Recall

DEPTH: Final = 3
"""``MAX_SEARCH_DEPTH`` of Graphiti."""
CANDIDATES: Final = 20
"""Twice the limit of ten."""


class FusionWithSearch(Selector):
    """Fuses the content's lists with the items that a search from the seeds meets first."""

    name: ClassVar[str] = "rrf_bfs"

    def rank(self, graph: Graph, recall: Recall) -> Ranking:
        """Return the first of the fused lists."""
        return first(fused((*recall.lists, _met(graph, recall))), recall)


def _met(graph: Graph, recall: Recall) -> list[int]:
    """Return the items within ``DEPTH`` edges of the seeds, nearest first, then by number."""
    is_item = np.zeros(graph.size, dtype=bool)
    is_item[graph.items] = True
    seen = np.zeros(graph.size, dtype=bool)
    level = np.array(sorted(recall.seeds), dtype=np.int64)
    found: list[int] = []
    for _ in range(DEPTH):
        seen[level] = True
        if not len(level):
            break
        around = np.unique(graph.matrix[level].indices)
        level = around[~seen[around]]
        found += level[is_item[level]].tolist()
        if len(found) >= CANDIDATES:
            break
    return found[:CANDIDATES]
