"""A graph memory with PageRank, a guard in front of it, and the agents that use both."""

import json
from itertools import count

from guard.core.calls import ToolResult
from guard.core.model import Identity, Integrity, PrincipalRung, ToolCall
from guard.pipeline.outcome import JudgeRequest
from guard.policy import load_policies
from guard.provenance.imports import ImportedItem
from guard.replay.run import ErrorCounter
from lab.selection.live import POLICY, Scene
from lab.selection.server import GraphMemory
from tests.guards import guard_on

SCENE = Scene(0)


class Counted(ErrorCounter):
    """Counts what the replays found."""

    def __init__(self):
        super().__init__()
        self.found = []

    def count(self, metric, *labels):
        """Keep the outcomes of selections."""
        if metric.name == "guard_selections_total":
            self.found += labels
        else:
            super().count(metric, *labels)


class World:
    """A memory, a guard in front of it, and the agents that use both."""

    server = ""
    around = SCENE.around()

    def __init__(self, store, namespace, policy=None):
        self.store, self.tenant = store, "default"
        self.policy = policy or load_policies([POLICY])
        self.metrics = Counted()
        self.guard = guard_on(store, self.policy, metrics=self.metrics, gated=namespace)
        self.memory = GraphMemory()
        self.clock = count(1000.0)
        self.ids = count()

    def identity(self, who):
        """Return who calls: an agent with a credential, in its one session."""
        rung = PrincipalRung.CREDENTIAL
        return Identity(who, f"{who}s", tenant=self.tenant, principal_rung=rung)

    async def call(self, who, tool, arguments, answer=None):
        """Make a call and return its verdict; what the memory does with it happens in between."""
        at, forwarded, name = float(next(self.clock)), dict(arguments), f"call{next(self.ids)}"
        identity = self.identity(who)
        asked = ToolCall(name, identity, tool, arguments, "mcp", at, server=self.server)

        def rewrite(changed):
            forwarded.update(changed[0])

        [(traced, verdict)] = await self.guard.judge(JudgeRequest([asked], rewrite))
        if not verdict.enforced.forwards:
            return traced, verdict, None
        content = self._answer(tool, forwarded) if answer is None else answer
        at = float(next(self.clock))
        refused = await self.guard.observe(ToolResult(traced, content, at))
        return traced, verdict, refused

    def _answer(self, tool, arguments):
        if tool == "add_records":
            for record in arguments["records"]:
                self.memory.node(record["name"])
                self.memory.records[record["name"]] = record["text"]
                for entity in record["about"]:
                    self.memory.join(record["name"], entity)
        elif tool == "relate":
            for one in arguments["relations"]:
                self.memory.join(one["source"], one["target"], one.get("weight", 1.0))
        elif tool == "unify":
            self.merged(arguments["into"], arguments["node"])
        elif tool == "forget":
            self.forgotten({(one["source"], one["target"]) for one in arguments["relations"]})
        elif tool == "search_records":
            return {"content": [{"type": "text", "text": json.dumps(self.results(arguments))}]}
        return "saved"

    def merged(self, into, node):
        """Make two nodes of the memory one."""
        kept, gone = self.memory.node(into), self.memory.node(node)
        edges = [[kept if end == gone else end for end in edge] for edge in self.memory.edges]
        self.memory.edges = list(map(tuple, edges))
        names = self.memory.nodes.items()
        self.memory.nodes = {name: kept if at == gone else at for name, at in names}

    def forgotten(self, pairs):
        """Take relations of the memory away."""
        memory = self.memory
        gone = {(memory.node(one), memory.node(two)) for one, two in pairs}
        left = [at for at, edge in enumerate(memory.edges) if edge not in gone]
        for name in ("edges", "weights"):
            setattr(memory, name, [getattr(memory, name)[at] for at in left])

    def results(self, arguments):
        """Return the memory's answer to a query."""
        found = self.memory.search(arguments["query"], 5)
        return {"results": [{"record": n, "text": self.memory.records[n]} for n in found]}

    async def curated(self):
        """Let the curator write the scene, and the operator label its accounts."""
        items = [
            ImportedItem("graph", account, Integrity.AUTHENTICATED, ("bank",))
            for account in accounts()
        ]
        await self.guard.notes.memory(self.tenant, items, 0.0)
        await self.call("curator", "add_records", {"records": SCENE.records()})
        await self.call("curator", "relate", {"relations": self.around})
        return self

    async def attacked(self):
        """Let the peer write its six relations."""
        await self.call("peer", "relate", {"relations": SCENE.attack()})

    async def recall(self, answer=None):
        """Let the agent ask."""
        return await self.call("agent", "search_records", {"query": SCENE.query}, answer)

    async def pay(self, account):
        """Return the verdict on a transfer, and where its receiver stood."""
        traced, verdict, _ = await self.call("agent", "transfer", {"account": account, "amount": 1})
        return verdict, traced.targets[0].attestation


def accounts():
    """Return the right account and the rival's."""
    return SCENE.right, SCENE.rival


def with_namespaces(text):
    """Return the policy for a store whose ranking nobody can replay, and which has namespaces."""
    text = text.replace("      selector: pagerank\n", "")
    text = text.replace(
        "      deadline_ms: 10000\n",
        "      unreplayable: dual_query\n      namespaces: {default: main, deadline_ms: 60000}\n",
    )
    for tool in ("add_records", "relate"):
        text = text.replace(f"[{tool}]\n", f'[{tool}]\n        partition: "$.group"\n')
    return text.replace(
        "[search_records]\n", '[search_records]\n        partition: "$.groups[*]"\n'
    )


def with_every_change(text):
    """Return the policy with tools that make two nodes one, and that take relations away."""
    return text.replace(
        "      - match: [relate]",
        "      - match: [unify]\n        target: L3\n        structure:\n"
        '          - {change: merge, each: "$", one: into, two: node}\n'
        "      - match: [forget]\n        target: L3\n        structure:\n"
        '          - {change: delete_edge, each: "$.relations[*]", one: source, two: target}\n'
        "      - match: [relate]",
        1,
    )


def without_selection(text):
    """Return the policy without the mechanism: the labels of the records are all that is left."""
    start, end = text.index("    selection:\n"), text.index("memory:\n")
    return text[:start] + text[end:]
