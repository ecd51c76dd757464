"""``guard lab bench proxy``: the guard beside stock mitmdump, in one run, as ratios.

Rounds alternate between the two, so a noisy machine is noisy for both.  Decision times, growth,
memory and round trips are measured in this process on the same store and models as live traffic.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guard.policy import load_policies
from guard.processes.loopback import Rig
from guard.replay.reports import Check, Report, machine
from guard.store.embedded import EmbeddedRedis
from guard.store.store import RedisSessionStore
from lab.in_process import LONG, Driver
from lab.load import (
    NO_GENERATOR,
    Loads,
    Progress,
    errors,
    generator,
    load_in_turns,
    rates,
    ratio,
    started,
)

if TYPE_CHECKING:
    from pathlib import Path


SAMPLE: Final = 400
TARGETS: Final = ("<= 0.4", "<= 2")
"""Targets of the percentiles, in milliseconds."""


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
    inside = asyncio.run(_inside(policy, progress))
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
            "errors": errors(single),
            "durability": "embedded redis, nothing persisted",
        },
    )


async def _inside(policy_path: Path, progress: Progress) -> list[Check]:
    policy = load_policies([policy_path])
    with EmbeddedRedis() as redis:
        store = RedisSessionStore.at(redis.url, limits=policy.limits, timeout=5.0)
        await store.verify()
        driver = Driver(policy, store, recipient="team@example.com")
        try:
            *percentiles, request, result = await driver.decisions("quiet", TARGETS)
            memory = await _bytes_per_session(store, driver)
            growth = await driver.growth(
                SAMPLE, "<= 1.1", lambda done: progress(LONG, 0.65 + 0.35 * done)
            )
        finally:
            await store.aclose()
    return [
        *percentiles,
        growth,
        Check(id="redis_bytes_per_session", value=memory, unit="bytes", n=1, target="<= 4096"),
        request,
        result,
    ]


async def _bytes_per_session(store: RedisSessionStore, driver: Driver) -> int:
    """Return the memory of the keys of one session of ten calls, its principal's included."""
    before = await _keys(store)
    await driver.calls("memory", 10)
    new = await _keys(store) - before
    sizes = [await store.client.execute("MEMORY", "USAGE", key) for key in new]
    return sum(size for size in sizes if isinstance(size, int))


async def _keys(store: RedisSessionStore) -> set[bytes]:
    reply = await store.client.execute("KEYS", "*")
    return set(reply) if isinstance(reply, list) else set()
