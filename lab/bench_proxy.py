"""``guard lab bench proxy`` and ``provenance``: the guard beside stock mitmdump, and by itself.

Rounds alternate between the two, so a noisy machine is noisy for both.  Decision times, growth,
memory and round trips are measured in this process on the same store and models as live traffic;
for ``provenance`` with many labelled values in the store.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel, LabelRecord, LabelSet, LabelWrite, LabelWriteMode
from guard.core.model import Identity, Integrity
from guard.processes.loopback import Rig
from guard.provenance.label_sets import LabelSets
from guard.replay.reports import Check, Report, machine
from lab.in_process import LONG, SAMPLE, SESSION, Driver, driven, info
from lab.load import (
    NO_GENERATOR,
    Loads,
    Progress,
    generator,
    load_in_turns,
    rates,
    ratio,
    started,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guard.store.store import RedisSessionStore


PARTNER: Final = "partner@desk.example.net"
"""The recipient of the timed send: outside, and named by the user."""
VALUES: Final = 1_000_000
"""Labelled values of the principal with many."""
BATCH: Final = 5_000
_MEMORY: Final = re.compile(r"^used_memory:(\d+)", re.MULTILINE)


def bench_proxy(policy: Path, *, rounds: int, seconds: float, progress: Progress) -> Report:
    """Run everything and return the report.

    Raises:
        GuardError: a part could not be started.
    """
    loads: Loads = {}
    single: Loads = {}
    if generator():
        with Rig() as rig:
            many = started(rig, policy)
            loads = load_in_turns(many, rounds, seconds, progress)
            one = {name: replace(each, connections=1) for name, each in many.items()}
            single = load_in_turns(one, 1, seconds, progress)
    progress("decisions in process", 0.6)
    inside = asyncio.run(_quiet(policy, progress))
    p50 = {name: load.p50_ms for name, [load] in single.items()}
    added = round(p50["guard"] - p50["direct"], 3) if p50 else None
    return Report(
        name="proxy",
        machine=machine(),
        checks=[
            ratio("ratio_vs_mitmdump_c16", loads, ("guard", "mitmdump"), ">= 1.0, goal 1.3"),
            Check(
                id="added_latency_ms_c1",
                value=added,
                unit="ms",
                reason=None if p50 else NO_GENERATOR,
            ),
            *inside,
        ],
        details={
            "rounds": rates(loads),
            "one_connection_p50_ms": p50,
            "durability": "embedded redis, nothing persisted",
        },
    )


async def _quiet(policy: Path, progress: Progress) -> list[Check]:
    async with driven(policy, "team@example.com") as driver:
        *percentiles, request, result = await driver.decisions("quiet", ("<= 0.4", "<= 2"))
        memory = await _bytes_per_session(driver)
        growth = await driver.growth("<= 1.1", lambda done: progress(LONG, 0.65 + 0.35 * done))
    return [
        *percentiles,
        growth,
        Check(id="redis_bytes_per_session", value=memory, unit="bytes", n=1, target="<= 4096"),
        request,
        result,
    ]


async def _bytes_per_session(driver: Driver) -> int:
    """Return the memory of the keys of one session of ten calls, its principal's included."""
    before = await _keys(driver.store)
    await driver.calls("memory", 10)
    new = await _keys(driver.store) - before
    sizes = [await driver.store.client.execute("MEMORY", "USAGE", key) for key in new]
    return sum(size for size in sizes if isinstance(size, int))


async def _keys(store: RedisSessionStore) -> set[bytes]:
    reply = await store.client.execute("KEYS", "*")
    return set(reply) if isinstance(reply, list) else set()


# --- bench provenance ----------------------------------------------------------------------------


async def add_labels(
    driver: Driver,
    principal: str,
    count: int,
    announce: Callable[[float], object] = lambda _: None,
) -> None:
    """Store as many records of untrusted values of a principal, as results with them would."""
    areas, seal = LabelSets(driver.policy.limits), driver.seal
    identity = Identity(principal, SESSION)
    record = LabelRecord(Integrity.UNTRUSTED, Channel.RESULT, 0, 0.0, bytes(8), "read")
    for start in range(0, count, BATCH):
        grouped: dict[LabelSet, list[tuple[bytes, bytes]]] = {}
        for number in range(start, min(start + BATCH, count)):
            mark = seal.fingerprint(f"mail:somebody{number}@elsewhere.example.org")
            area = areas.taint(identity, mark, areas.epoch(0.0))
            grouped.setdefault(area, []).append(seal.write(area, mark, record))
        writes = [LabelWrite(area, LabelWriteMode.KEEP, tuple(e)) for area, e in grouped.items()]
        await driver.store.note(identity, writes)
        announce(min(start + BATCH, count) / count)


def bench_provenance(policy: Path, *, rounds: int, seconds: float, progress: Progress) -> Report:
    """Run everything and return the report.

    Raises:
        GuardError: a part could not be started.
    """
    checks = asyncio.run(_labelled(policy, progress))
    loads: Loads = {}
    if generator():
        with Rig() as rig:
            loads = load_in_turns(started(rig, policy), rounds, seconds, progress)
    checks.append(ratio("ratio_vs_mitmdump_c16", loads, ("guard", "mitmdump"), ">= 0.9, goal 1.1"))
    details = {"durability": "embedded redis, nothing persisted"}
    return Report(name="provenance", machine=machine(), checks=checks, details=details)


async def _labelled(policy: Path, progress: Progress) -> list[Check]:
    async with driven(policy, [PARTNER], f"Mail {PARTNER} the status.") as driver:
        progress("decisions with 10,000 labelled values", 0.02)
        await add_labels(driver, "ten-thousand", 10_000)
        checks = await driver.decisions("ten-thousand", ("<= 0.6", "<= 3"))
        checks += await _values_growth(driver, progress)
        growth = await driver.growth("<= 1.2", lambda done: progress(LONG, 0.45 + 0.3 * done))
    return [*checks, growth]


async def _values_growth(driver: Driver, progress: Progress) -> list[Check]:
    store, stage = driver.store, f"{VALUES:,} labelled values"
    await add_labels(driver, "few", 100)
    before = await info(store, "memory", _MEMORY)
    await add_labels(driver, "many", VALUES, lambda done: progress(stage, 0.1 + 0.3 * done))
    used = await info(store, "memory", _MEMORY) - before
    for principal in ("few", "many"):
        await driver.begin(principal)
        await driver.calls(principal, 100)
    few: list[float] = []
    many: list[float] = []
    for _ in range(SAMPLE):
        few += await driver.calls("few", 2)
        many += await driver.calls("many", 2)
    return [
        Check(
            id="growth_values_1000000_vs_100",
            value=round(median(many) / median(few), 3),
            unit="ratio",
            n=len(many),
            target="<= 1.2",
        ),
        Check(id="bytes_per_value", value=round(used / VALUES, 1), unit="bytes", n=VALUES),
    ]
