"""A graph memory that ranks by the code of a published package: ``... live_store_server STORE``."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import igraph

from guard.processes.loopback import serve_on_loopback
from lab.selection.live_stores import PACKAGES
from lab.selection.server import GraphMemory, build

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 42


class PublishedMemory(GraphMemory):
    """The memory of the benchmark with another package's selection.

    Args:
        store: name of the selection.
    """

    def __init__(self, store: str) -> None:
        super().__init__()
        self._store = store

    def search(self, query: str, top_k: int, groups: Sequence[str] = ()) -> list[str]:
        """Return the records that the package selects for the first entity of a query."""
        if self._store == "igraph":
            return super().search(query, top_k, groups)
        words = f" {' '.join(re.findall(r'[a-z0-9]+', query.lower()))} "
        seeds = [n for n in self.nodes if n not in self.records and f" {n} " in words]
        if self._store in {"networkx", "lightrag"}:
            scores = self._walked(seeds)
            order = sorted(self.records, key=lambda name: -scores[name])
            return order[:top_k]
        community = self._parted()[self.nodes[seeds[0]]]
        return [r for r in self.records if community[self.nodes[r]]][:top_k]

    def _walked(self, seeds: list[str]) -> dict[str, float]:
        networkx: Any = importlib.import_module("networkx")
        graph = networkx.Graph()
        graph.add_nodes_from(self.nodes)
        for ends, weight in self._joined().items():
            graph.add_edge(*ends, weight=weight)
        if self._store == "lightrag":
            # Its calls need an event loop of their own.
            with ThreadPoolExecutor() as pool:
                graph = pool.submit(asyncio.run, _stored(graph)).result()
        found: dict[str, float] = networkx.pagerank(
            graph, alpha=0.85, personalization=dict.fromkeys(seeds, 1.0)
        )
        return found

    def _joined(self) -> Counter[tuple[str, str]]:
        """Return the summed weight between two nodes, as both packages take it."""
        names, found = list(self.nodes), Counter[tuple[str, str]]()
        for ends, weight in zip(self.edges, self.weights, strict=True):
            one, two = sorted(names[end] for end in ends)
            found[one, two] += weight  # type: ignore[assignment]
        return found

    def _parted(self) -> list[list[bool]]:
        """Return for each node which nodes are in its community."""
        if self._store == "leidenalg":
            leidenalg: Any = importlib.import_module("leidenalg")
            graph = igraph.Graph(n=len(self.nodes), edges=self.edges)
            membership = leidenalg.find_partition(
                graph, leidenalg.ModularityVertexPartition, weights=self.weights, seed=SEED
            ).membership
            return [[one == other for other in membership] for one in membership]
        module = "graphiti_core.utils.maintenance.community_operations"
        operations: Any = importlib.import_module(module)
        counts: dict[int, dict[int, int]] = {node: {} for node in self.nodes.values()}
        for one, two in self.edges:
            for this, other in ((one, two), (two, one)):
                counts[this][other] = counts[this].get(other, 0) + 1
        projection = {
            str(node): [
                operations.Neighbor(node_uuid=str(other), edge_count=count)
                for other, count in near.items()
            ]
            for node, near in counts.items()
        }
        same = [[False] * len(self.nodes) for _ in self.nodes]
        for cluster in operations.label_propagation(projection):
            for one in cluster:
                for two in cluster:
                    same[int(one)][int(two)] = True
        return same


async def _stored(graph: Any) -> Any:
    """Return the graph that LightRAG's storage makes of the same nodes and edges."""
    shared: Any = importlib.import_module("lightrag.kg.shared_storage")
    storages: Any = importlib.import_module("lightrag.kg.networkx_impl")
    shared.initialize_share_data()
    with TemporaryDirectory() as directory:
        storage = storages.NetworkXStorage("graph", "", {"working_dir": directory}, None)
        await storage.initialize()
        for name in graph.nodes:
            await storage.upsert_node(name, {"entity_id": name})
        for one, two, fields in graph.edges(data=True):
            await storage.upsert_edge(one, two, fields)
        return await storage._get_graph()  # noqa: SLF001  (PageRank is over what it keeps)


def main() -> None:
    """Serve until standard input ends."""
    # What is installed for the guard comes first: these packages bring others of their own.
    sys.path.append(str(PACKAGES))
    serve_on_loopback(build(PublishedMemory(sys.argv.pop())).streamable_http_app)


if __name__ == "__main__":
    main()
