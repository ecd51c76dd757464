"""Communities by Leiden (Traag, Waltman, van Eck 2019), modularity, with a pinned seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from guard.extensions.graph_memory.selectors.base import CommunitySelector

if TYPE_CHECKING:
    from guard.extensions.graph_memory.graph import Graph


class Leiden(CommunitySelector):
    """Returns the items of the community of the first seed.

    Args:
        seed: of the algorithm's random choices; the store's own, or its answers cannot be replayed.
    """

    name: ClassVar[str] = "leiden"
    needs: ClassVar[tuple[str, ...]] = ("igraph", "leidenalg", "scipy")

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def membership(self, graph: Graph) -> np.ndarray:
        """Return the number of each node's community."""
        import igraph
        import leidenalg

        edges = np.column_stack([graph.source, graph.target])
        found = leidenalg.find_partition(
            igraph.Graph(n=graph.size, edges=edges),
            leidenalg.ModularityVertexPartition,
            weights=graph.weight.tolist(),
            seed=self._seed,
        )
        return np.asarray(found.membership)
