"""Similarity of vectors, as Mem0's search and Qdrant do it: the store's own order."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from guard.extensions.graph_memory.selectors.base import Selector, first

if TYPE_CHECKING:
    from guard.extensions.graph_memory.graph import Graph, Ranking, Recall


class Vector(Selector):
    """Returns the first list as it is; no edge counts."""

    name: ClassVar[str] = "vector"
    reads_structure: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()

    def rank(self, graph: Graph, recall: Recall) -> Ranking:  # noqa: ARG002
        """Return the first of the first list."""
        return first(recall.lists[0] if recall.lists else (), recall)
