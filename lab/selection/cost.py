"""The cost of replays by the size of the graph, and of ledgers by their length."""

from __future__ import annotations

import asyncio
import resource
import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.model import Identity, Integrity, Json, Role, ToolCall
from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.ledger import (
    Change,
    Ledger,
    LedgerReader,
    Write,
    Writer,
    ledger_set,
    seal_writes,
)
from guard.extensions.graph_memory.selectors.pagerank import PageRank
from guard.pipeline.selection import SelectionReplays
from guard.pipeline.stores import Stores
from guard.policy import load_policies
from guard.provenance.seal import KEY_BYTES, Seal
from guard.replay.run import ErrorCounter
from guard.store.embedded import EmbeddedRedis
from guard.store.ledger import RedisLedger
from guard.store.store import RedisSessionStore, parse_info
from guard.telemetry.audit_log import NoAuditLog
from lab.selection.corpora import generated
from lab.selection.live import POLICY

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from guard.core.labels import LabelSet

QUERIES: Final = 200
LEDGERS: Final = (100_000, 300_000)
"""Edges of the smaller ledgers that are loaded: of fewer, a process has the memory already."""
BATCH: Final = 4096
RESAMPLES: Final = 1000
LOADING: Final = 600.0
"""Seconds for which an answer may wait for its replay."""


def asked(nodes: int, queries: int) -> list[Recall]:
    """Return recalls of three random seeds each."""
    rng = np.random.default_rng(1)
    return [
        Recall({int(node): 1.0 for node in rng.choice(nodes, 3, replace=False)})
        for _ in range(queries)
    ]


def timing(nodes: int, edges: int, queries: int = QUERIES) -> tuple[list[float], list[bool]]:
    """Time the selection of five on a generated graph, three random seeds a query.

    Returns:
        processor seconds of the one thread that ranks, in which what the machine does besides does
        not count; and which queries were certified.
    """
    graph, selector = generated(nodes, edges, 0), PageRank()
    recalls = asked(nodes, queries)
    selector.rank(graph, recalls[0])
    spent, certified = [], []
    for recall in recalls:
        began = time.thread_time()
        certified.append(selector.rank(graph, recall).certified)
        spent.append(time.thread_time() - began)
    return spent, certified


class _InMemory:
    """A ledger without a store: one list of entries."""

    def __init__(self, entries: list[bytes]) -> None:
        self._entries = entries

    async def append(self, _tenant: str, _area: LabelSet, entries: Sequence[bytes]) -> int:
        """Append entries."""
        self._entries += entries
        return len(self._entries)

    async def read(
        self, _tenant: str, _area: LabelSet, start: int
    ) -> AsyncGenerator[list[object], None]:
        """Yield what there is from an index on."""
        yield list(self._entries[start:])


def noop(nodes: int, edges: int, queries: int = QUERIES) -> list[float]:
    """Return the processor seconds of recalls of a store where nothing is untrusted.

    All that the guard does for the selection of an answer: it reads what the ledger has gained,
    the items and the nodes of the question, and compares every eighth with the replica.  Of a read
    of Redis only the reading is in it.
    """
    return asyncio.run(_noop(generated(nodes, edges, 0), queries))


async def _noop(graph: Graph, queries: int) -> list[float]:
    seal, policy = Seal(secrets.token_bytes(KEY_BYTES)), load_policies([POLICY])
    # The first answer waits until the replica has the whole ledger, however busy the machine is.
    [(store_name, selection)] = policy.selections.items()
    policy = replace(policy, selections={store_name: replace(selection, deadline=LOADING)})
    area = ledger_set("default", store_name)
    writer = Writer("curator", bytes(8), 0, 0.0, "model_inference", Integrity.ADVISORY)
    writes = [Write(Change.NODE, f"item {n}", item=True, writer=writer) for n in graph.items]
    items = set(graph.items.tolist())

    def name(node: int) -> str:
        return f"item {node}" if node in items else f"entity {node}"

    ends = zip(graph.source.tolist(), graph.target.tolist(), strict=True)
    writes += [Write(Change.EDGE, name(one), name(two), writer=writer) for one, two in ends]
    kept = _InMemory([])
    for start in range(0, len(writes), BATCH):
        await kept.append(
            "default", area, seal_writes(seal, area, str(start), writes[start : start + BATCH])
        )
    # Never connected to: nothing is stored of an answer that stands.
    store = RedisSessionStore.at("redis://127.0.0.1:1")
    replays = SelectionReplays(Stores(store, ledger=kept), seal, NoAuditLog(), ErrorCounter())
    selector, spent = PageRank(), []
    for number, recall in enumerate(asked(graph.size, queries)):
        served = selector.rank(graph, recall).items
        found = [{"record": name(item), "text": "a record"} for item in served]
        query = {"query": " and ".join(map(name, recall.seeds))}
        call = ToolCall(str(number), Identity("agent", "s"), "search_records", query, "mcp", 1.0)
        classified = ClassifiedCall(call, Role.RECALL, policy.mapping(call.tool))
        result = ToolResult(untraced(classified), {"results": found}, 2.0)
        began = time.process_time()
        selected = await replays.learn(policy, result)
        spent.append(time.process_time() - began)
        if selected.writes:
            raise RuntimeError("an answer of a graph without strangers did not stand")
    return spent[1:]


def percentile(seconds: Sequence[float], share: float) -> float:
    """Return a percentile in milliseconds."""
    return 1e3 * float(np.percentile(seconds, share))


def interval_of(seconds: Sequence[float], share: float) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a percentile, in milliseconds."""
    drawn = np.random.default_rng(0).choice(seconds, (RESAMPLES, len(seconds)))
    low, high = np.percentile(1e3 * np.percentile(drawn, share, axis=1), [2.5, 97.5])
    return float(low), float(high)


def ledger_cost(
    edges: int, announce: Callable[[float], object] = lambda _: None
) -> dict[str, Json]:
    """Return the bytes per edge of a ledger, in Redis and in this process, and its load's seconds.

    Args:
        edges: written, between a tenth as many nodes.
        announce: the share of the load that is done.
    """
    return asyncio.run(_ledger_cost(edges, announce))


async def _ledger_cost(edges: int, announce: Callable[[float], object]) -> dict[str, Json]:
    seal = Seal(secrets.token_bytes(KEY_BYTES))
    area = ledger_set("default", "graph")
    rng = np.random.default_rng(0)
    ends = rng.integers(0, max(2, edges // 10), (edges, 2)).tolist()
    writer = Writer("agent", bytes(8), 0, 0.0, "model_inference", Integrity.ADVISORY)
    with EmbeddedRedis() as redis:
        store = RedisSessionStore.at(redis.url, timeout=60.0)
        kept = RedisLedger(store)
        before = await _used(store)
        for start in range(0, edges, BATCH):
            writes = [
                Write(Change.EDGE, f"entity {one}", f"entity {two}", "related to", writer=writer)
                for one, two in ends[start : start + BATCH]
            ]
            await kept.append("default", area, seal_writes(seal, area, str(start), writes))
        in_redis = (await _used(store) - before) / edges
        started, memory = time.perf_counter(), _resident()
        reader, ledger = LedgerReader(seal, area), Ledger(lambda _: True)
        async for entries in kept.read("default", area, 0):
            ledger.extend(reader.read(entries))
            announce(len(ledger) / edges)
        loaded = time.perf_counter() - started
        size = ledger.full.size
        await store.aclose()
    return {
        "edges": edges,
        "nodes": size,
        "bytes_per_edge_redis": round(in_redis, 1),
        "bytes_per_edge_process": round((_resident() - memory) / edges, 1),
        "load_seconds": round(loaded, 2),
    }


async def _used(store: RedisSessionStore) -> int:
    return int(parse_info(await store.client.execute("INFO", "memory"))["used_memory"])


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
