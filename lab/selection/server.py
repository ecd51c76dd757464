"""A graph memory as a real MCP server: PageRank over what agents write, and a bank beside it.

Its search is igraph's ``personalized_pagerank``, not the guard's.  The server does not check
writers: every agent that reaches it may write records and relations, as in real stores.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from itertools import compress
from typing import TYPE_CHECKING, Any

import igraph
from mcp.server.fastmcp import FastMCP

from guard.processes.loopback import serve_on_loopback

if TYPE_CHECKING:
    from collections.abc import Sequence

DAMPING = 0.5
GROUP = "main"
"""Group of all writes that do not name one."""


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

    def search(self, query: str, top_k: int, groups: Sequence[str] = ()) -> list[str]:
        """Return the records of some groups that are nearest to what a query names, nearest first.

        Args:
            query: names entities.
            top_k: how many.
            groups: whose records and edges; left out, everything.
        """
        words = f" {' '.join(re.findall(r'[a-z0-9]+', query.lower()))} "
        reset = [0.0] * len(self.nodes)
        for name, number in self.nodes.items():
            if f" {' '.join(re.findall(r'[a-z0-9]+', name.lower()))} " in words:
                reset[number] = 1.0
        if not any(reset):
            return []
        inside = [not groups or group in groups for group in self.groups]
        graph = igraph.Graph(n=len(self.nodes), edges=list(compress(self.edges, inside)))
        weights = list(compress(self.weights, inside))
        scores = graph.personalized_pagerank(
            damping=DAMPING, directed=False, weights=weights, reset=reset
        )
        known = [r for r in self.records if not groups or self.homes.get(r, GROUP) in groups]
        return sorted(known, key=lambda name: (-scores[self.nodes[name]], name))[:top_k]


def build(memory: GraphMemory | None = None) -> FastMCP:
    """Return the server with an empty memory."""
    memory = memory or GraphMemory()
    paid: list[dict[str, Any]] = []
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


# --- memories that derive structure from text by themselves -------------------------------------

_VOID = re.compile(r"(\w+ \w+ \d+) is no longer valid")
_SAME = re.compile(r"(\w+ \w+ \d+) is the same as (\w+ \w+ \d+)")


class DerivingMemory:
    """Records of one group, and the structure that the store derives from every text."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.records: dict[str, str] = {}
        self.invalid: set[str] = set()
        self.same: dict[str, str] = {}
        self.mentions: Counter[str] = Counter()

    def add(self, text: str, record: str) -> None:
        """Keep a text as a record, or as one without a name, and derive structure from it."""
        if record:
            self.records[record] = text
        self.invalid.update(_VOID.findall(text))
        self.same.update(_SAME.findall(text))
        for name in self.records:
            self.mentions[name] += text.count(name)

    def search(self, query: str) -> list[str]:
        """Return the records that a query asks for, the best first."""
        named = [name for name in self.records if name in query] or list(self.records)
        if self.model == "temporal":
            valid = [name for name in self.records if name not in self.invalid]
            return sorted(valid, key=lambda name: name not in named)
        if self.model == "merging":
            named = [self.same.get(name, name) for name in named]
            return sorted(self.records, key=lambda name: name not in named)
        return sorted(self.records, key=lambda name: -self.mentions[name])


def build_deriving() -> FastMCP:
    """Return the server with empty memories."""
    groups: dict[str, DerivingMemory] = {}
    server = FastMCP("deriving", stateless_http=True, json_response=True, log_level="ERROR")

    def memory(group: str) -> DerivingMemory:
        return groups.setdefault(group, DerivingMemory(group.partition("-")[0]))

    def found(group: str, query: str) -> list[dict[str, Any]]:
        records = memory(group).records
        return [{"record": n, "text": records[n]} for n in memory(group).search(query)]

    @server.tool()
    def add_memory(text: str, group: str, record: str = "") -> str:
        """Remember a text; structure is derived from it."""
        memory(group).add(text, record)
        return "queued"

    @server.tool()
    def search_memory(query: str, group: str) -> dict[str, Any]:
        """Return the records that a query asks for, the best first."""
        return {"results": found(group, query)}

    @server.tool()
    def report(query: str, group: str) -> str:
        """Return the best record as text."""
        return "\n".join(one["text"] for one in found(group, query)[:1])

    @server.tool()
    def read_page(number: int) -> str:
        """Return a page of the web."""
        return f"Page {number}: harbours, mills and their surveyors."

    server.tool()(transfer)
    return server


def transfer(account: str, amount: int) -> str:
    """Pay an amount to an account."""
    return f"paid {amount} to {account}"


def main() -> None:
    """Serve until standard input ends; ``derived`` names the memories that derive structure."""
    made = build_deriving if sys.argv[1:] == ["derived"] else build
    serve_on_loopback(made().streamable_http_app)


if __name__ == "__main__":
    main()
