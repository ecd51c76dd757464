"""Cost of the graph: reach from Redis and in memory, bytes per edge, time held by scripts."""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from dataclasses import replace
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from guard.core.labels import LabelWrite, LabelWriteMode
from guard.core.model import Identity, Integrity
from guard.core.policy import StateLimits
from guard.extensions.propagation.detection import PoisoningDetector
from guard.extensions.propagation.events import (
    ENTRY,
    Edge,
    Event,
    EventKind,
    log_of,
    pack_event,
    unpack_event,
)
from guard.extensions.propagation.evidence import Kind
from guard.extensions.propagation.graph import Adjacency
from guard.provenance.seal import KEY_BYTES, Seal
from guard.replay.reports import Check
from guard.store.incident_records import PAGE, read_graph, read_log
from guard.store.store import RedisSessionStore, parse_info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ITEMS: Final = 10_000
EDGES: Final = 5
"""Edges that lead to each item."""
LARGE: Final = 1_000_000
TRIES: Final = 15
FEW: Final = 5
BATCH: Final = 50
HELD_MICROSECONDS: Final = 5_000


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


class Spent(NamedTuple):
    """Milliseconds of repeated work."""

    walls: list[float]
    cpus: list[float]

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Time what is done within."""
        began = time.perf_counter(), time.process_time()
        yield
        self.walls.append((time.perf_counter() - began[0]) * 1000)
        self.cpus.append((time.process_time() - began[1]) * 1000)


async def cost(
    redis: str, progress: Callable[[str, float], object]
) -> tuple[list[Check], dict[str, Any]]:
    """Measure on a Redis of the benchmark's own; return figures."""
    seal, chance = Seal(secrets.token_bytes(KEY_BYTES)), np.random.default_rng(1)
    store = RedisSessionStore.at(redis, namespace="cost", limits=StateLimits(), timeout=30.0)
    try:
        checks = await _in_redis(store, seal, chance, progress)
        checks += await _detection(store, seal)
    finally:
        await store.aclose()
    progress("a million items", 0.9)
    return checks + _in_memory(chance), {}


async def _in_redis(
    store: RedisSessionStore,
    seal: Seal,
    chance: np.random.Generator,
    progress: Callable[[str, float], object],
) -> list[Check]:
    """Write the events of the items, and return what reading and reaching them takes."""
    area, edges = replace(log_of("default"), limit=ITEMS * 2), 0
    slower = "CONFIG", "SET", "slowlog-log-slower-than", HELD_MICROSECONDS
    for command in (("CONFIG", "RESETSTAT"), slower, ("SLOWLOG", "RESET")):
        await store.client.execute(*command)
    for start in range(0, ITEMS, BATCH):
        events = [_event(number, chance) for number in range(start, start + BATCH)]
        edges += sum(len(event.edges) for event in events)
        entries = tuple((ENTRY, seal.sealed(area, ENTRY, pack_event(e))) for e in events)
        await store.note(Identity("", ""), [LabelWrite(area, LabelWriteMode.LOG, entries)])
        progress("events of 10,000 items", start / ITEMS)
    reach, busy = Spent([], []), await _busy(store)
    for _ in range(TRIES):
        with reach.measured():
            graph = await read_graph(store, seal, "default")
            reached = len(graph.reach([0]))
    per_page = (await _busy(store) - busy) / (TRIES * ITEMS / PAGE)
    usage: Any = await store.client.execute(
        "MEMORY", "USAGE", store.key_of("default", area), "SAMPLES", 0
    )
    stats = parse_info(await store.client.execute("INFO", "commandstats"))
    script = float(stats["cmdstat_evalsha"].partition("usec_per_call=")[2].partition(",")[0])
    log: Any = await store.client.execute("SLOWLOG", "GET", 1000)
    names = [entry[3][0].upper() for entry in log]
    slow = [name for name in names if name not in {b"CONFIG", b"MEMORY", b"INFO"}]
    return [
        *_reach_checks("reach_redis_10000", reach, reached, "<= 50"),
        Check(
            id="reach_redis_10000_p95",
            value=round(quantiles(reach.walls, n=20)[-1], 2),
            unit="ms",
            n=TRIES,
        ),
        Check(
            id="bytes_per_edge",
            value=round(usage / edges, 1),
            unit="bytes",
            n=edges,
            target="<= 80",
        ),
        # What a page takes of Redis' processor, whatever else the machine does.
        Check(id="page_redis_cpu", value=round(per_page, 3), unit="ms", n=PAGE, target="<= 5"),
        # A script writes 50 events here; a call writes one or two.
        Check(
            id="script_ms_per_50_events",
            value=round(script / 1000, 3),
            unit="ms",
            target="<= 5",
        ),
        Check(
            id="commands_over_5_ms",
            value=len(slow),
            unit="commands",
            target="0 on a quiet machine",
        ),
    ]


def _reach_checks(name: str, reach: Spent, reached: int, target: str) -> list[Check]:
    """Return the medians of a reach: by the clock, and by processor time.

    On a busy machine the one is mostly waiting; the other is what it would be on a free one.
    """
    wall, cpu = round(median(reach.walls), 2), round(median(reach.cpus), 2)
    return [
        Check(id=f"{name}_p50", value=wall, unit="ms", n=reached, target=target),
        Check(id=f"{name}_cpu_p50", value=cpu, unit="ms", n=len(reach.cpus)),
    ]


async def _busy(store: RedisSessionStore) -> float:
    """Return the processor time that Redis has used, in milliseconds."""
    parts = parse_info(await store.client.execute("INFO", "cpu"))
    return 1000 * (float(parts["used_cpu_user"]) + float(parts["used_cpu_sys"]))


async def _detection(store: RedisSessionStore, seal: Seal) -> list[Check]:
    """Return the processor time that judging one committed save takes; no call waits for it."""
    log = await read_log(store, seal, "default")
    detector, judged = PoisoningDetector(1.0), Spent([], [])
    for body in log.bodies:
        with judged.measured():
            detector.judge(unpack_event(body))
    cuts = quantiles(judged.cpus, n=100)
    return [
        Check(id=f"detection_p{share}", value=round(cuts[share - 1], 4), unit="ms", n=ITEMS)
        for share in (50, 99)
    ]


def _in_memory(chance: np.random.Generator) -> list[Check]:
    """Return the time of a reach over everything, without reading it from anywhere."""
    targets = np.repeat(np.arange(1, LARGE, dtype=np.int32), EDGES)
    sources = (chance.random(len(targets)) * targets).astype(np.int32)
    adjacency, reach = Adjacency.of(LARGE, sources, targets), Spent([], [])
    for _ in range(FEW):
        with reach.measured():
            hops = adjacency.reach(np.array([0], dtype=np.int32))
    return _reach_checks("reach_memory_1000000", reach, int((hops >= 0).sum()), "<= 300")
