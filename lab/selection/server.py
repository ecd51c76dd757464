"""Graph memories as real MCP servers, with a bank beside them: ``... server [NAME]``.

Without a name it ranks by igraph's ``personalized_pagerank``, with the name of a published package
by that package's code, and as ``derived`` it derives structure from text.  None of them checks
writers: every agent that reaches one may write, as in real stores.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import igraph
from mcp.server.fastmcp import FastMCP

from guard.processes.loopback import serve_on_loopback

DAMPING: Final = 0.5
SEED: Final = 42
PACKAGES: Final = Path(__file__).parents[2] / "tests/live_stores/.packages"
"""Published stores that are installed apart from the guard."""
_PARTS: Final = re.compile(r"[a-z0-9]+")


class GraphMemory:
    """Records, entities and weighted edges between them."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.records: dict[str, str] = {}
        self.edges: list[tuple[int, int]] = []
        self.weights: list[float] = []

    def node(self, name: str) -> int:
        """Return the number of a node, made where there is none."""
        return self.nodes.setdefault(name, len(self.nodes))

    def join(self, one: str, two: str, weight: float = 1.0) -> None:
        """Add an edge."""
        self.edges.append((self.node(one), self.node(two)))
        self.weights.append(weight)

    def named(self, query: str) -> list[str]:
        """Return the nodes that a query names."""
        words = f" {' '.join(_PARTS.findall(query.lower()))} "
        return [n for n in self.nodes if f" {' '.join(_PARTS.findall(n.lower()))} " in words]

    def search(self, query: str, top_k: int) -> list[str]:
        """Return the records that are nearest to what a query names, nearest first."""
        named = {self.nodes[name] for name in self.named(query)}
        if not named:
            return []
        # Two names of one number are entities that were merged.
        reset = [float(number in named) for number in range(len(self.nodes))]
        graph = igraph.Graph(n=len(self.nodes), edges=self.edges)
        scores = graph.personalized_pagerank(
            damping=DAMPING, directed=False, weights=self.weights, reset=reset
        )
        return sorted(self.records, key=lambda name: (-scores[self.nodes[name]], name))[:top_k]


def build(memory: GraphMemory) -> FastMCP:
    """Return a server of a memory."""
    server = FastMCP("graph", stateless_http=True, json_response=True, log_level="ERROR")

    @server.tool()
    def add_records(records: list[dict[str, Any]]) -> str:
        """Remember records, each with a name, a text and the entities that it is about."""
        for record in records:
            memory.node(record["name"])
            memory.records[record["name"]] = record["text"]
            for entity in record.get("about", []):
                memory.join(record["name"], entity)
        return "saved"

    @server.tool()
    def relate(relations: list[dict[str, Any]]) -> str:
        """Relate entities to each other."""
        for relation in relations:
            memory.join(relation["source"], relation["target"], relation.get("weight", 1.0))
        return "saved"

    @server.tool()
    def search_records(query: str, top_k: int = 5) -> dict[str, Any]:
        """Return the records that are nearest to what a query names."""
        found = memory.search(query, top_k)
        return {"results": [{"record": name, "text": memory.records[name]} for name in found]}

    server.tool()(transfer)
    return server


def transfer(account: str, amount: int) -> str:
    """Pay an amount to an account."""
    return f"paid {amount} to {account}"


# --- the code of published packages --------------------------------------------------------------


class WalkedMemory(GraphMemory):
    """A memory that ranks by networkx, whose graph LightRAG's storage keeps where that is named."""

    def __init__(self, store: str) -> None:
        super().__init__()
        self._store = store

    def search(self, query: str, top_k: int) -> list[str]:
        """Return the records that are nearest to the entities of a query."""
        networkx: Any = importlib.import_module("networkx")
        names, weights = list(self.nodes), Counter[tuple[str, str]]()
        for ends, weight in zip(self.edges, self.weights, strict=True):
            one, two = sorted(names[end] for end in ends)
            # Both packages sum the weights between two nodes.
            weights[one, two] += weight  # type: ignore[assignment]
        graph = networkx.Graph()
        graph.add_nodes_from(names)
        graph.add_weighted_edges_from((*ends, weight) for ends, weight in weights.items())
        if self._store == "lightrag":
            # Its calls need an event loop of their own.
            with ThreadPoolExecutor() as pool:
                graph = pool.submit(asyncio.run, _stored(graph)).result()
        seeds = [name for name in self.named(query) if name not in self.records]
        scores = networkx.pagerank(graph, alpha=0.85, personalization=dict.fromkeys(seeds, 1.0))
        return sorted(self.records, key=lambda name: -scores[name])[:top_k]


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


class PartedMemory(GraphMemory):
    """A memory that returns the community of a query's first entity, by leidenalg or Graphiti."""

    def __init__(self, store: str) -> None:
        super().__init__()
        self._parts = self._leiden if store == "leidenalg" else self._propagated

    def search(self, query: str, top_k: int) -> list[str]:
        """Return the records in the community of the first entity of a query."""
        seeds = [name for name in self.named(query) if name not in self.records]
        first = self.nodes[seeds[0]]
        [community] = [part for part in self._parts() if first in part]
        return [r for r in self.records if self.nodes[r] in community][:top_k]

    def _leiden(self) -> list[set[int]]:
        leidenalg: Any = importlib.import_module("leidenalg")
        graph = igraph.Graph(n=len(self.nodes), edges=self.edges)
        kind = leidenalg.ModularityVertexPartition
        return [*map(set, leidenalg.find_partition(graph, kind, weights=self.weights, seed=SEED))]

    def _propagated(self) -> list[set[int]]:
        module = "graphiti_core.utils.maintenance.community_operations"
        operations: Any = importlib.import_module(module)
        counts = {node: Counter[int]() for node in self.nodes.values()}
        for one, two in self.edges:
            counts[one][two] += 1
            counts[two][one] += 1
        projection = {
            str(node): [
                operations.Neighbor(node_uuid=str(other), edge_count=count)
                for other, count in near.items()
            ]
            for node, near in counts.items()
        }
        return [{int(one) for one in part} for part in operations.label_propagation(projection)]


# --- a memory that derives structure from text by itself ----------------------------------------

_SAME = re.compile(r"(\w+ \w+ \d+) is the same as (\w+ \w+ \d+)")


def build_deriving() -> FastMCP:
    """Return a server of records by group, which are replaced by others as a text says."""
    records: dict[tuple[str, str], str] = {}
    same: dict[tuple[str, str], str] = {}
    server = FastMCP("deriving", stateless_http=True, json_response=True, log_level="ERROR")

    def best(query: str, group: str) -> str:
        named = next(name for home, name in records if home == group and name in query)
        return same.get((group, named), named)

    @server.tool()
    def add_memory(text: str, group: str, record: str = "") -> str:
        """Remember a text; structure is derived from it."""
        if record:
            records[group, record] = text
        same.update({(group, one): other for one, other in _SAME.findall(text)})
        return "queued"

    @server.tool()
    def search_memory(query: str, group: str) -> dict[str, Any]:
        """Return the record that a query asks for."""
        found = best(query, group)
        return {"results": [{"record": found, "text": records[group, found]}]}

    @server.tool()
    def report(query: str, group: str) -> str:
        """Return the record as text."""
        return records[group, best(query, group)]

    @server.tool()
    def read_page(number: int) -> str:
        """Return a page of the web."""
        return f"Page {number}: harbours, mills and their surveyors."

    server.tool()(transfer)
    return server


def main() -> None:
    """Serve until standard input ends."""
    # What is installed for the guard comes first: these packages bring others of their own.
    sys.path.append(str(PACKAGES))
    name = "".join(sys.argv[1:])
    if name == "derived":
        server = build_deriving()
    elif name in {"networkx", "lightrag"}:
        server = build(WalkedMemory(name))
    else:
        server = build(PartedMemory(name) if name in {"leidenalg", "graphiti"} else GraphMemory())
    serve_on_loopback(server.streamable_http_app)


if __name__ == "__main__":
    main()
