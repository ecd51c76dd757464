"""Reciprocal rank fusion, as Graphiti does it: the sum over the lists of ``1 / (place + 1)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from guard.extensions.graph_memory.selectors.base import Selector, first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.extensions.graph_memory.graph import Graph, Ranking, Recall


CONSTANTS: Final[dict[str, tuple[float | str | bool, ...]]] = {"rank_constant": (1, 2, 10, 60)}
"""Parameters of a fusion."""


def fused(lists: Sequence[Sequence[int]], constant: int = 1) -> list[int]:
    """Return every item of some rankings by its sum of ``1 / (place + constant)``, stable."""
    scores: dict[int, float] = {}
    for ranking in lists:
        for place, item in enumerate(ranking):
            scores[item] = scores.get(item, 0.0) + 1 / (place + constant)
    return sorted(scores, key=lambda item: -scores[item])


class ReciprocalRankFusion(Selector):
    """Ranks the candidates of the content retrievers; no edge counts.

    Args:
        rank_constant: added to each place, counted from 0.
    """

    name: ClassVar[str] = "rrf"
    reads_structure: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()
    parameters: ClassVar[Mapping[str, tuple[float | str | bool, ...]]] = CONSTANTS

    def __init__(self, rank_constant: int = 1) -> None:
        self._constant = rank_constant

    def rank(self, graph: Graph, recall: Recall) -> Ranking:  # noqa: ARG002
        """Return the first of the fused lists."""
        return first(fused(recall.lists, self._constant), recall)
