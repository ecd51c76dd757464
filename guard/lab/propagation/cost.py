"""What the graph costs: reach from Redis and in memory, bytes per edge, time held by scripts."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.adapters.redis.propagation import read_graph
from guard.adapters.redis.store import RedisSessionStore
from guard.core.labels import LabelWrite, LabelWriteMode
from guard.core.model import Identity, Integrity
from guard.core.policy import StateLimits
from guard.propagation.events import ENTRY, Edge, Event, What, log_of, pack_event
from guard.propagation.evidence import Kind
from guard.propagation.graph import Adjacency
from guard.provenance.seal import KEY_BYTES, Seal
from guard.replay.reports import Check

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS: Final = 10_000
EDGES: Final = 5
"""Edges that lead to each item."""
LARGE: Final = 1_000_000
TRIES: Final = 15
BATCH: Final = 50


def _event(number: int, chance: np.random.Generator) -> Event:
    """Return an item that follows from five earlier ones, the first among them."""
    parents = {0, *chance.integers(0, max(number, 1), EDGES - 1).tolist()} if number else set()
    return Event(
        what=What.SAVE,
        node=number.to_bytes(8, "big"),
        label=Integrity.UNTRUSTED,
        call=number,
        at=float(number),
        session=bytes(8),
        principal=bytes(8),
        place=number.to_bytes(12, "big"),
        tool="save_fact",
        store="facts",
        edges=tuple(Edge(one.to_bytes(8, "big"), Kind.VALUE) for one in sorted(parents)),
    )


async def cost(redis: str, progress: Callable[[str, float], object]) -> list[Check]:
    """Measure on a Redis of the benchmark's own."""
    seal, chance = Seal(secrets.token_bytes(KEY_BYTES)), np.random.default_rng(1)
    store = RedisSessionStore.at(
        redis, namespace=f"cost-{secrets.token_hex(4)}", limits=StateLimits(), timeout=30.0
    )
    area = replace(log_of("default"), limit=ITEMS * 2)
    try:
        edges = 0
        await store.client.execute("CONFIG", "RESETSTAT")
        for start in range(0, ITEMS, BATCH):
            events = [_event(number, chance) for number in range(start, start + BATCH)]
            edges += sum(len(event.edges) for event in events)
            entries = tuple((ENTRY, seal.sealed(area, ENTRY, pack_event(e))) for e in events)
            await store.note(Identity("", ""), [LabelWrite(area, LabelWriteMode.LOG, entries)])
            progress("events of 10,000 items", start / ITEMS)
        key = store.key_of("default", area)
        used = await store.client.execute("MEMORY", "USAGE", key, "SAMPLES", 0)
        times: list[float] = []
        busy: list[float] = []
        reached = 0
        for _ in range(TRIES):
            started, used_before = time.perf_counter(), time.process_time()
            graph = await read_graph(store, seal, "default")
            reached = len(graph.reach([0]))
            times.append((time.perf_counter() - started) * 1000)
            busy.append((time.process_time() - used_before) * 1000)
        slowest = await _slowest_script(store)
    finally:
        await store.client.execute("UNLINK", store.key_of("default", area))
        await store.aclose()
    bytes_used = used if isinstance(used, int) else 0
    p95 = quantiles(times, n=20)[-1]
    return [
        Check(
            id="reach_redis_10000_p50",
            value=round(median(times), 2),
            unit="ms",
            n=reached,
            target="<= 50",
        ),
        # On a busy machine the one is mostly waiting; the other is what it would be on a free one,
        # without what Redis does meanwhile.
        Check(id="reach_redis_10000_cpu_p50", value=round(median(busy), 2), unit="ms", n=TRIES),
        Check(id="reach_redis_10000_p95", value=round(p95, 2), unit="ms", n=TRIES),
        Check(
            id="bytes_per_edge",
            value=round(bytes_used / edges, 1),
            unit="bytes",
            n=edges,
            target="<= 80",
        ),
        slowest,
        *_in_memory(chance, progress),
    ]


async def _slowest_script(store: RedisSessionStore) -> Check:
    """Return how long a script that writes 50 events holds Redis; a call writes one or two."""
    reply = await store.client.execute("INFO", "commandstats")
    lines = reply.decode().splitlines() if isinstance(reply, bytes) else []
    per_call = [
        float(line.partition("usec_per_call=")[2].partition(",")[0])
        for line in lines
        if line.startswith("cmdstat_evalsha")
    ]
    return Check(
        id="script_ms_per_50_events",
        value=round(per_call[0] / 1000, 3) if per_call else None,
        unit="ms",
        target="<= 5",
        reason=None if per_call else "redis gave no statistics of commands",
    )


def _in_memory(
    chance: np.random.Generator, progress: Callable[[str, float], object]
) -> list[Check]:
    """Return the time of a reach over everything, without reading it from anywhere."""
    progress("a million items", 0.9)
    targets = np.repeat(np.arange(1, LARGE, dtype=np.int32), EDGES)
    sources = (chance.random(len(targets)) * targets).astype(np.int32)
    adjacency = Adjacency.of(LARGE, sources, targets)
    times: list[float] = []
    busy: list[float] = []
    reached = 0
    for _ in range(5):
        started, used_before = time.perf_counter(), time.process_time()
        hops = adjacency.reach(np.array([0], dtype=np.int32))
        times.append((time.perf_counter() - started) * 1000)
        busy.append((time.process_time() - used_before) * 1000)
        reached = int((hops >= 0).sum())
    return [
        Check(
            id="reach_memory_1000000_p50",
            value=round(median(times), 1),
            unit="ms",
            n=reached,
            target="<= 300",
        ),
        Check(id="reach_memory_1000000_cpu_p50", value=round(median(busy), 1), unit="ms", n=5),
    ]
