"""Communities by label propagation, as Graphiti does it (``label_propagation``, 0.29).

Every node takes the community with the greatest count of edges among its neighbours, ties to the
greatest number, but only where that count is more than one; else the greater of its own and it.
All nodes change at once, so it need not end: the answer of a store that hit a limit of rounds is
not replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guard.extensions.graph_memory.selectors.base import CommunitySelector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.extensions.graph_memory.graph import Graph

ROUNDS: Final = 100


class LabelPropagation(CommunitySelector):
    """Returns the items of the community of the first seed.

    Args:
        weights: whether the weight of an edge counts.
        threshold: count that a community of neighbours must exceed to be taken whatever its number.
    """

    name: ClassVar[str] = "label_propagation"
    parameters: ClassVar[Mapping[str, tuple[float | str | bool, ...]]] = {
        "weights": (True, False),
        "threshold": (1.0, 0.0, 2.0),
    }

    def __init__(self, *, weights: bool = True, threshold: float = 1.0) -> None:
        self._weights, self._threshold = weights, threshold

    def membership(self, graph: Graph) -> np.ndarray:
        """Return the number of each node's community.

        Raises:
            ValueError: it does not end.
        """
        matrix = (graph if self._weights else graph.unweighted).matrix
        rows = np.repeat(np.arange(graph.size), np.diff(matrix.indptr))
        community = np.arange(graph.size)
        for _ in range(ROUNDS):
            counted = _counts(rows, community[matrix.indices], matrix.data, graph.size)
            best, count = counted
            after = np.where(count > self._threshold, best, np.maximum(best, community))
            after = np.where(best < 0, community, after)
            if (after == community).all():
                return community
            community = after
        raise ValueError("label propagation does not end on this graph")


def _counts(
    rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the label with the greatest (count, label) among the neighbours of each node."""
    best, most = np.full(size, -1), np.zeros(size)
    if not len(rows):
        return best, most
    order = np.lexsort((labels, rows))
    rows, labels = rows[order], labels[order]
    begins = np.flatnonzero(np.diff(rows, prepend=-1) | np.diff(labels, prepend=-1))
    counts = np.add.reduceat(weights[order], begins)
    rows, labels = rows[begins], labels[begins]
    order = np.lexsort((labels, counts, rows))
    last = np.flatnonzero(np.diff(rows[order], append=size))
    best[rows[order][last]] = labels[order][last]
    most[rows[order][last]] = counts[order][last]
    return best, most
