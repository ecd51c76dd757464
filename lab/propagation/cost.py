"""Cost of the graph: reach from Redis and in memory, bytes per edge."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from guard.core.labels import LabelWrite, LabelWriteMode
from guard.core.model import Identity, Integrity
from guard.core.policy import StateLimits
from guard.extensions.propagation.events import (
    ENTRY,
    Edge,
    Event,
    EventKind,
    log_of,
    pack_event,
)
from guard.extensions.propagation.evidence import Kind
from guard.extensions.propagation.graph import Adjacency
from guard.provenance.seal import KEY_BYTES, Seal
from guard.replay.reports import Check
from guard.store.propagation import read_graph
from guard.store.store import RedisSessionStore

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS: Final = 10_000
EDGES: Final = 5
"""Edges that lead to each item."""
LARGE: Final = 1_000_000
TRIES: Final = 15
FEW: Final = 5
BATCH: Final = 50
GROWTH: Final = (1_000, 3_000, ITEMS)
"""Items at which the reach is timed."""


def _event(number: int, chance: np.random.Generator) -> Event:
    """Return an item that follows from five earlier ones, the first among them."""
    parents = {0, *chance.integers(0, max(number, 1), EDGES - 1).tolist()} if number else set()
    return Event(
        what=EventKind.SAVE,
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


async def cost(
    redis: str, progress: Callable[[str, float], object]
) -> tuple[list[Check], dict[str, Any]]:
    """Measure on a Redis of the benchmark's own; return figures, and rows for plots of growth."""
    seal, chance = Seal(secrets.token_bytes(KEY_BYTES)), np.random.default_rng(1)
    store = RedisSessionStore.at(
        redis, namespace=f"cost-{secrets.token_hex(4)}", limits=StateLimits(), timeout=30.0
    )
    area = replace(log_of("default"), limit=ITEMS * 2)
    grown: list[dict[str, float]] = []
    try:
        edges = 0
        reach = Timed()
        for start in range(0, ITEMS, BATCH):
            events = [_event(number, chance) for number in range(start, start + BATCH)]
            edges += sum(len(event.edges) for event in events)
            entries = tuple((ENTRY, seal.sealed(area, ENTRY, pack_event(e))) for e in events)
            await store.note(Identity("", ""), [LabelWrite(area, LabelWriteMode.LOG, entries)])
            progress("events of 10,000 items", start / ITEMS)
            count = start + BATCH
            if count in GROWTH:
                reach = Timed()
                for _ in range(TRIES if count == ITEMS else FEW):
                    with reach:
                        graph = await read_graph(store, seal, "default")
                        reached = len(graph.reach([0]))
                grown.append({"items": reached, "cpu_ms": reach.cpu, "wall_ms": reach.wall})
        used = await store.client.execute(
            "MEMORY", "USAGE", store.key_of("default", area), "SAMPLES", 0
        )
    finally:
        await store.client.execute("UNLINK", store.key_of("default", area))
        await store.aclose()
    bytes_used = used if isinstance(used, int) else 0
    checks = [
        Check(id="reach_redis_10000_p50", value=reach.wall, unit="ms", n=reached, target="<= 50"),
        # On a busy machine the one is mostly waiting; the other is what it would be on a free one,
        # without what Redis does meanwhile.
        Check(id="reach_redis_10000_cpu_p50", value=reach.cpu, unit="ms", n=TRIES),
        Check(id="reach_redis_10000_p95", value=reach.high, unit="ms", n=TRIES),
        Check(
            id="bytes_per_edge",
            value=round(bytes_used / edges, 1),
            unit="bytes",
            n=edges,
            target="<= 80",
        ),
    ]
    in_memory, rows = _in_memory(chance, progress)
    return checks + in_memory, {"redis": grown, "memory": rows}


class Timed:
    """Times what is done within it, again and again: by the clock, and by processor time."""

    def __init__(self) -> None:
        self._walls: list[float] = []
        self._cpus: list[float] = []

    def __enter__(self) -> Self:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._walls.append((time.perf_counter() - self._began[0]) * 1000)
        self._cpus.append((time.process_time() - self._began[1]) * 1000)

    @property
    def wall(self) -> float:
        """Return the median in milliseconds."""
        return round(median(self._walls), 2)

    @property
    def cpu(self) -> float:
        """Return the median of processor time in milliseconds."""
        return round(median(self._cpus), 2)

    @property
    def high(self) -> float:
        """Return the 95th percentile in milliseconds."""
        return round(quantiles(self._walls, n=20)[-1], 2)


def _in_memory(
    chance: np.random.Generator, progress: Callable[[str, float], object]
) -> tuple[list[Check], list[dict[str, float]]]:
    """Return the time of a reach over everything, without reading it from anywhere."""
    progress("a million items", 0.9)
    rows: list[dict[str, float]] = []
    for count in (LARGE // 100, LARGE // 10, LARGE):
        targets = np.repeat(np.arange(1, count, dtype=np.int32), EDGES)
        sources = (chance.random(len(targets)) * targets).astype(np.int32)
        adjacency, reach = Adjacency.of(count, sources, targets), Timed()
        for _ in range(FEW):
            with reach:
                hops = adjacency.reach(np.array([0], dtype=np.int32))
        rows.append({"items": count, "cpu_ms": reach.cpu, "wall_ms": reach.wall})
    reached = int((hops >= 0).sum())
    return [
        Check(
            id="reach_memory_1000000_p50",
            value=reach.wall,
            unit="ms",
            n=reached,
            target="<= 300",
        ),
        Check(id="reach_memory_1000000_cpu_p50", value=reach.cpu, unit="ms", n=FEW),
    ], rows
