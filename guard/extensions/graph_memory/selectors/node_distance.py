"""Graphiti's node distance: the fused candidates, those that are joined to the centre first.

It is not a distance: a candidate that an edge joins to the centre scores 1, every other infinity.
The sort is stable, so the content's order stays within both classes.  The centre comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from guard.extensions.graph_memory.selectors.base import Selector, centre_of, first
from guard.extensions.graph_memory.selectors.rrf import CONSTANTS, fused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.extensions.graph_memory.graph import Graph, Ranking, Recall


class NodeDistance(Selector):
    """Ranks the candidates of the content retrievers by whether they touch the first seed."""

    name: ClassVar[str] = "node_distance"

    parameters: ClassVar[Mapping[str, tuple[float | str | bool, ...]]] = CONSTANTS

    def __init__(self, rank_constant: int = 1) -> None:
        self._constant = rank_constant

    def rank(self, graph: Graph, recall: Recall) -> Ranking:
        """Return the centre, its neighbours and the others, each in the content's order."""
        centre = centre_of(recall)
        near = set(graph.neighbours(centre).tolist())
        candidates = fused(recall.lists, self._constant)
        return first(
            sorted(candidates, key=lambda item: (item != centre, item not in near)), recall
        )
