"""Graphiti's fusion with candidates from a breadth-first search: edges bring candidates in."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guard.extensions.graph_memory.selectors.base import Selector, first
from guard.extensions.graph_memory.selectors.rrf import CONSTANTS, fused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.extensions.graph_memory.graph import Graph, Ranking, Recall

DEPTH: Final = 3
"""``MAX_SEARCH_DEPTH`` of Graphiti."""
CANDIDATES: Final = 20
"""Twice the limit of ten."""


class FusionWithSearch(Selector):
    """Fuses the content's lists with the items that a search from the seeds meets first.

    Args:
        rank_constant: added to each place, counted from 0.
        depth: edges that the search follows.
        candidates: items that it finds at most.
    """

    name: ClassVar[str] = "rrf_bfs"

    parameters: ClassVar[Mapping[str, tuple[float | str | bool, ...]]] = {
        **CONSTANTS,
        "depth": (DEPTH, 1, 2, 4),
        "candidates": (CANDIDATES, 5, 10, 40),
    }

    def __init__(
        self, rank_constant: int = 1, depth: int = DEPTH, candidates: int = CANDIDATES
    ) -> None:
        self._constant, self._depth, self._most = rank_constant, depth, candidates

    def rank(self, graph: Graph, recall: Recall) -> Ranking:
        """Return the first of the fused lists."""
        met = _met(graph, recall, self._depth, self._most)
        return first(fused((*recall.lists, met), self._constant), recall)


def _met(graph: Graph, recall: Recall, depth: int, most: int) -> list[int]:
    """Return the items within some edges of the seeds, nearest first, then by number."""
    is_item = np.zeros(graph.size, dtype=bool)
    is_item[graph.items] = True
    seen = np.zeros(graph.size, dtype=bool)
    level = np.array(sorted(recall.seeds), dtype=np.int64)
    found: list[int] = []
    for _ in range(depth):
        seen[level] = True
        if not len(level):
            break
        around = np.unique(graph.matrix[level].indices)
        level = around[~seen[around]]
        found += level[is_item[level]].tolist()
        if len(found) >= most:
            break
    return found[:most]
