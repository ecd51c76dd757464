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
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import igraph
from mcp.server.fastmcp import FastMCP

from guard.processes.loopback import serve_on_loopback

if TYPE_CHECKING:
    from collections.abc import Sequence

DAMPING: Final = 0.5
SEED: Final = 42
GROUP: Final = "main"
"""Group of all writes that do not name one."""
PACKAGES: Final = Path(__file__).parents[2] / "tests/live_stores/.packages"
"""Published stores that are installed apart from the guard."""
_PARTS: Final = re.compile(r"[a-z0-9]+")


class GraphMemory:
    """Records, entities and weighted edges between them."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.records: dict[str, str] = {}
        self.homes: dict[str, str] = {}
        """Group of each record that is not in the first one."""
        self.edges: list[tuple[int, int]] = []
        self.weights: list[float] = []
        self.groups: list[str] = []
        """Group of each edge."""

    def node(self, name: str) -> int:
        """Return the number of a node, made where there is none."""
        return self.nodes.setdefault(name, len(self.nodes))

    def join(self, one: str, two: str, weight: float = 1.0, group: str = GROUP) -> None:
        """Add an edge."""
        self.edges.append((self.node(one), self.node(two)))
        self.weights.append(weight)
        self.groups.append(group)

    def named(self, query: str) -> list[str]:
        """Return the nodes that a query names."""
        words = f" {' '.join(_PARTS.findall(query.lower()))} "
        return [n for n in self.nodes if f" {' '.join(_PARTS.findall(n.lower()))} " in words]

    def search(self, query: str, top_k: int, groups: Sequence[str] = ()) -> list[str]:
        """Return the records of some groups that are nearest to what a query names, nearest first.

        Args:
            query: names entities.
            top_k: how many.
            groups: whose records and edges; left out, everything.
        """
        named = {self.nodes[name] for name in self.named(query)}
        if not named:
            return []
        # Two names of one number are entities that were merged.
        reset = [float(number in named) for number in range(len(self.nodes))]
        inside = [not groups or group in groups for group in self.groups]
        graph = igraph.Graph(n=len(self.nodes), edges=list(compress(self.edges, inside)))
        weights = list(compress(self.weights, inside))
        scores = graph.personalized_pagerank(
            damping=DAMPING, directed=False, weights=weights, reset=reset
        )
        known = [r for r in self.records if not groups or self.homes.get(r, GROUP) in groups]
        return sorted(known, key=lambda name: (-scores[self.nodes[name]], name))[:top_k]


def build(memory: GraphMemory) -> FastMCP:
    """Return a server of a memory."""
    server = FastMCP("graph", stateless_http=True, json_response=True, log_level="ERROR")

    @server.tool()
    def add_records(records: list[dict[str, Any]], group: str = GROUP) -> str:
        """Remember records, each with a name, a text and the entities that it is about."""
        for record in records:
            memory.node(record["name"])
            memory.records[record["name"]] = record["text"]
            memory.homes[record["name"]] = group
            for entity in record.get("about", []):
                memory.join(record["name"], entity, group=group)
        return "saved"

    @server.tool()
    def relate(relations: list[dict[str, Any]], group: str = GROUP) -> str:
        """Relate entities to each other."""
        for relation in relations:
            weight = relation.get("weight", 1.0)
            memory.join(relation["source"], relation["target"], weight, group)
        return "saved"

    @server.tool()
    def search_records(
        query: str, top_k: int = 5, groups: list[str] | None = None
    ) -> dict[str, Any]:
        """Return the records of some groups that are nearest to what a query names."""
        found = memory.search(query, top_k, groups or ())
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

    def search(self, query: str, top_k: int, groups: Sequence[str] = ()) -> list[str]:
        """Return the records that are nearest to the entities of a query."""
        del groups
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

    def search(self, query: str, top_k: int, groups: Sequence[str] = ()) -> list[str]:
        """Return the records in the community of the first entity of a query."""
        del groups
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


# --- memories that derive structure from text by themselves -------------------------------------

_VOID = re.compile(r"(\w+ \w+ \d+) is no longer valid")
_SAME = re.compile(r"(\w+ \w+ \d+) is the same as (\w+ \w+ \d+)")


@dataclass(slots=True)
class DerivingMemory:
    """Records of one group, and the structure that the store derives from every text."""

    model: str
    records: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def search(self, query: str) -> list[dict[str, str]]:
        """Return the records that a query asks for, the best first."""
        text = "\n".join(self.texts)
        named = [name for name in self.records if name in query]
        if self.model == "summary":
            order = sorted(self.records, key=lambda name: -text.count(name))
        elif self.model == "merging":
            same = dict(_SAME.findall(text))
            named = [same.get(name, name) for name in named]
            order = sorted(self.records, key=lambda name: name not in named)
        else:
            valid = [name for name in self.records if name not in _VOID.findall(text)]
            order = sorted(valid, key=lambda name: name not in named)
        return [{"record": name, "text": self.records[name]} for name in order]


def build_deriving() -> FastMCP:
    """Return the server with empty memories; a group's name begins with its model."""
    groups: dict[str, DerivingMemory] = {}
    server = FastMCP("deriving", stateless_http=True, json_response=True, log_level="ERROR")

    def memory(group: str) -> DerivingMemory:
        return groups.setdefault(group, DerivingMemory(group.partition("-")[0]))

    @server.tool()
    def add_memory(text: str, group: str, record: str = "") -> str:
        """Remember a text; structure is derived from it."""
        memory(group).texts.append(text)
        if record:
            memory(group).records[record] = text
        return "queued"

    @server.tool()
    def search_memory(query: str, group: str) -> dict[str, Any]:
        """Return the records that a query asks for, the best first."""
        return {"results": memory(group).search(query)}

    @server.tool()
    def report(query: str, group: str) -> str:
        """Return the best record as text."""
        return memory(group).search(query)[0]["text"]

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
