"""Reciprocal rank fusion, as Graphiti does it: the sum over the lists of ``1 / (place + 1)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from guard.extensions.graph_memory.selectors.base import Selector, first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.extensions.graph_memory.graph import Graph, Ranking, Recall


def fused(lists: Sequence[Sequence[int]]) -> list[int]:
    """Return every item of some rankings by its sum of reciprocal places (from 1), stable."""
    scores: dict[int, float] = {}
    for ranking in lists:
        for place, item in enumerate(ranking):
            scores[item] = scores.get(item, 0.0) + 1 / (place + 1)
    return sorted(scores, key=lambda item: -scores[item])


class ReciprocalRankFusion(Selector):
    """Ranks the candidates of the content retrievers; no edge counts."""

    name: ClassVar[str] = "rrf"
    reads_structure: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()

    def rank(self, graph: Graph, recall: Recall) -> Ranking:  # noqa: ARG002
        """Return the first of the fused lists."""
        return first(fused(recall.lists), recall)
