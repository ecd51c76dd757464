"""Graphiti's episode mentions: the fused candidates by how many episodes mention them.

Fewer mentions come first and an item without any comes last: what the source does, whatever was
meant.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar

from guard.extensions.graph_memory.selectors.base import Selector, first
from guard.extensions.graph_memory.selectors.rrf import CONSTANTS, fused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.extensions.graph_memory.graph import Graph, Ranking, Recall


class EpisodeMentions(Selector):
    """Ranks the candidates of the content retrievers by their count of mentions, ascending."""

    name: ClassVar[str] = "episode_mentions"

    parameters: ClassVar[Mapping[str, tuple[float | str | bool, ...]]] = {
        **CONSTANTS,
        "descending": (False, True),
    }

    def __init__(self, rank_constant: int = 1, *, descending: bool = False) -> None:
        self._constant, self._descending = rank_constant, descending

    def rank(self, graph: Graph, recall: Recall) -> Ranking:
        """Return the candidates by (mentions, content's order)."""
        counts = graph.strength
        candidates = fused(recall.lists, self._constant)
        if self._descending:
            return first(sorted(candidates, key=lambda item: -float(counts[item])), recall)
        return first(sorted(candidates, key=lambda item: float(counts[item]) or inf), recall)
