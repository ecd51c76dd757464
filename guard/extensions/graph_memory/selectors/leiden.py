"""Communities by Leiden (Traag, Waltman, van Eck 2019), modularity, with a pinned seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from guard.extensions.graph_memory.selectors.base import CommunitySelector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.extensions.graph_memory.graph import Graph


class Leiden(CommunitySelector):
    """Returns the items of the community of the first seed.

    Args:
        seed: of the algorithm's random choices; the store's own, or its answers cannot be replayed.
        resolution: the greater it is, the smaller are the communities.
        objective: ``modularity``, or the constant Potts model ``cpm``.
        weights: whether the weight of an edge counts.
        iterations: of the algorithm; -1 until nothing changes.
    """

    name: ClassVar[str] = "leiden"
    needs: ClassVar[tuple[str, ...]] = ("igraph", "leidenalg", "scipy")

    parameters: ClassVar[Mapping[str, tuple[float | str | bool, ...]]] = {
        "seed": (0, 42, 1, 2, 3),
        "resolution": (1.0, *(part / 20 for part in range(1, 43))),
        "objective": ("modularity", "cpm"),
        "weights": (True, False),
        "iterations": (2, -1),
    }

    def __init__(
        self,
        seed: int = 0,
        *,
        resolution: float = 1.0,
        objective: str = "modularity",
        weights: bool = True,
        iterations: int = 2,
    ) -> None:
        self._seed, self._resolution, self._objective = seed, resolution, objective
        self._weights, self._iterations = weights, iterations

    def membership(self, graph: Graph) -> np.ndarray:
        """Return the number of each node's community."""
        import igraph
        import leidenalg

        edges = np.column_stack([graph.source, graph.target])
        quality: Any = leidenalg.ModularityVertexPartition
        more: dict[str, float] = {}
        if self._objective == "cpm":
            quality, more = leidenalg.CPMVertexPartition, {"resolution_parameter": self._resolution}
        elif self._resolution != 1:
            quality = leidenalg.RBConfigurationVertexPartition
            more = {"resolution_parameter": self._resolution}
        found = leidenalg.find_partition(
            igraph.Graph(n=graph.size, edges=edges),
            quality,
            weights=graph.weight.tolist() if self._weights else None,
            seed=self._seed,
            n_iterations=self._iterations,
            **more,
        )
        return np.asarray(found.membership)
