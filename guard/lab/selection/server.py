"""A graph memory as a real MCP server: PageRank over what agents write, and a bank beside it.

Its search is igraph's ``personalized_pagerank``, not the guard's.  Who writes is no business of the
server: every agent that reaches it may write records and relations, as in the stores it stands for.
"""

from __future__ import annotations

import re
from typing import Any

import igraph
from mcp.server.fastmcp import FastMCP

from guard.adapters.loopback import serve_on_loopback

DAMPING = 0.5


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

    def search(self, query: str, top_k: int) -> list[str]:
        """Return the records nearest to the entities that a query names, nearest first."""
        words = f" {' '.join(re.findall(r'[a-z0-9]+', query.lower()))} "
        reset = [0.0] * len(self.nodes)
        for name, number in self.nodes.items():
            if f" {' '.join(re.findall(r'[a-z0-9]+', name.lower()))} " in words:
                reset[number] = 1.0
        if not any(reset):
            return []
        graph = igraph.Graph(n=len(self.nodes), edges=self.edges)
        scores = graph.personalized_pagerank(
            damping=DAMPING, directed=False, weights=self.weights, reset=reset
        )
        ranked = sorted(self.records, key=lambda name: (-scores[self.nodes[name]], name))
        return ranked[:top_k]


def build() -> FastMCP:
    """Return the server with an empty memory."""
    memory = GraphMemory()
    paid: list[dict[str, Any]] = []
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

    @server.tool()
    def transfer(account: str, amount: int) -> str:
        """Pay an amount to an account."""
        paid.append({"account": account, "amount": amount})
        return "paid"

    @server.tool()
    def payments() -> list[dict[str, Any]]:
        """Return what was paid."""
        return paid

    return server


def main() -> None:
    """Serve until standard input ends."""
    serve_on_loopback(build().streamable_http_app)


if __name__ == "__main__":
    main()
