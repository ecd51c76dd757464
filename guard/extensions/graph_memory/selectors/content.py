"""Orders of content alone: reciprocal rank fusion (Graphiti's default) and similarity of vectors.

Structure cannot change them, so nothing is replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from guard.extensions.graph_memory.selectors.base import Selector

if TYPE_CHECKING:
    from guard.extensions.graph_memory.graph import Graph, Ranking, Recall


class Vector(Selector):
    """The store's own order by similarity."""

    name: ClassVar[str] = "vector"
    reads_structure: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()

    def rank(self, graph: Graph, recall: Recall) -> Ranking:
        """Refuse: content is not in the graph."""
        del graph, recall
        raise ValueError("content alone ranks the items")


class ReciprocalRankFusion(Vector):
    """Fusion of the rankings of content."""

    name: ClassVar[str] = "rrf"
