"""What a replay costs over the size of the graph, and a ledger over that of its own."""

from __future__ import annotations

import asyncio
import resource
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import igraph
import numpy as np

from guard.adapters.redis.embedded import EmbeddedRedis
from guard.adapters.redis.ledger import RedisLedger
from guard.adapters.redis.store import RedisSessionStore, parse_info
from guard.core.model import Integrity
from guard.graph_memory.graph import Recall
from guard.graph_memory.ledger import (
    Change,
    Ledger,
    LedgerReader,
    Write,
    Writer,
    ledger_set,
    seal_writes,
)
from guard.graph_memory.replay import replay
from guard.graph_memory.selectors.pagerank import DAMPING, PageRank
from guard.lab.selection.corpora import generated
from guard.provenance.seal import KEY_BYTES, Seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Json
    from guard.graph_memory.graph import Graph

QUERIES: Final = 200
BATCH: Final = 4096
SLOW: Final = 5
"""Queries that the reference implementation answers."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of the order of five on one graph, and how many were certified."""

    nodes: int
    edges: int
    p50: float
    p95: float
    certified: float
    cpu_p50: float
    """Processor time: what the machine does besides does not count."""
    cpu_p95: float
    reference_p50: float
    """One run of igraph's ``personalized_pagerank``."""
    same: float
    """Share of the reference's orders that are ours."""
    noop_p50: float
    """A replay where nothing is untrusted."""
    n: int


def timing(nodes: int, edges: int, queries: int = QUERIES) -> Timing:
    """Time the selection on a generated graph, three random seeds a query."""
    graph = generated(nodes, edges, 0)
    rng, selector = np.random.default_rng(1), PageRank()
    recalls = [
        Recall({int(node): 1.0 for node in rng.choice(nodes, 3, replace=False)})
        for _ in range(queries)
    ]
    selector.rank(graph, recalls[0])
    times, spent, certified, orders = [], [], 0, []
    for recall in recalls:
        started, began = time.perf_counter(), time.thread_time()
        ranking = selector.rank(graph, recall)
        times.append(time.perf_counter() - started)
        spent.append(time.thread_time() - began)
        certified += ranking.certified
        orders.append(ranking.items)
    slow, same = _reference(graph, recalls[:SLOW], orders)
    noop = []
    for recall, order in zip(recalls, orders, strict=True):
        started = time.perf_counter()
        replay(None, graph, graph, recall, order)
        noop.append(time.perf_counter() - started)
    return Timing(
        nodes,
        len(graph.source),
        1e3 * float(np.percentile(times, 50)),
        1e3 * float(np.percentile(times, 95)),
        certified / queries,
        1e3 * float(np.percentile(spent, 50)),
        1e3 * float(np.percentile(spent, 95)),
        1e3 * float(np.median(slow)),
        same,
        1e3 * float(np.median(noop)),
        queries,
    )


def _reference(
    graph: Graph, recalls: list[Recall], orders: list[tuple[int, ...]]
) -> tuple[list[float], float]:
    other = igraph.Graph(n=graph.size, edges=np.column_stack([graph.source, graph.target]))
    times, same = [], 0
    for recall, order in zip(recalls, orders, strict=False):
        reset = np.zeros(graph.size)
        reset[list(recall.seeds)] = list(recall.seeds.values())
        started = time.perf_counter()
        scores = np.asarray(
            other.personalized_pagerank(
                damping=DAMPING,
                directed=False,
                weights=graph.weight.tolist(),
                reset=reset.tolist(),
                implementation="prpack",
            )
        )[graph.items]
        times.append(time.perf_counter() - started)
        best = np.lexsort((graph.items, -scores))[: recall.top]
        same += tuple(graph.items[best].tolist()) == order
    return times, same / max(1, len(recalls))


def ledger_cost(edges: int, told: Callable[[float], object] = lambda _: None) -> dict[str, Json]:
    """Return the bytes per edge of a ledger, in Redis and in this process, and its load's seconds.

    Args:
        edges: written, between a tenth as many nodes.
        told: the share of the load that is done.
    """
    return asyncio.run(_ledger_cost(edges, told))


async def _ledger_cost(edges: int, told: Callable[[float], object]) -> dict[str, Json]:
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
            told(len(ledger) / edges)
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
