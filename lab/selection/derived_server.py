"""Three memories that derive structure from text by themselves, as one MCP server, and a bank.

The first word of a group names the model of its store: ``temporal`` invalidates facts, ``merging``
unifies entities, ``summary`` ranks by the mentions in a report of the whole group.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from mcp.server.fastmcp import FastMCP

from guard.processes.loopback import serve_on_loopback

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


def build() -> FastMCP:
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

    @server.tool()
    def transfer(account: str, amount: int) -> str:
        """Pay an amount to an account."""
        return f"paid {amount} to {account}"

    return server


def main() -> None:
    """Serve until standard input ends."""
    serve_on_loopback(build().streamable_http_app)


if __name__ == "__main__":
    main()
