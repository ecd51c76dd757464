"""``guard lab bench provenance``: the cost of tracing every destination, and its growth.

Decisions are timed in this process, on the store and the models of live traffic, with many
labelled values in the store; the ratio is taken side by side with stock mitmdump.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from statistics import median
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel, LabelRecord, LabelSet, LabelWrite, LabelWriteMode
from guard.core.model import Identity, Integrity
from guard.policy import load_policies
from guard.processes.loopback import Rig
from guard.provenance.label_sets import LabelSets
from guard.provenance.seal import KEY_BYTES, Seal
from guard.replay.reports import Check, Report, machine
from guard.store.embedded import EmbeddedRedis
from guard.store.store import RedisSessionStore
from lab.in_process import LONG, SESSION, Driver, info
from lab.load import Loads, Progress, generator, load_in_turns, ratio, started

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guard.core.policy import Policy

PARTNER: Final = "partner@desk.example.net"
"""The recipient of the timed send: outside, and named by the user."""
VALUES: Final = 1_000_000
"""Labelled values of the principal with many."""
BATCH: Final = 5_000
SAMPLE: Final = 400
"""Interleaved pairs for each growth."""
TARGETS: Final = ("<= 0.6", "<= 3")
"""Targets of the percentiles, in milliseconds."""
_MEMORY: Final = re.compile(r"^used_memory:(\d+)", re.MULTILINE)


async def add_labels(
    parts: tuple[LabelSets, RedisSessionStore, Seal],
    principal: str,
    count: int,
    announce: Callable[[float], object] = lambda _: None,
) -> None:
    """Store as many records of untrusted values of a principal, as results with them would."""
    areas, store, seal = parts
    identity = Identity(principal, SESSION)
    record = LabelRecord(Integrity.UNTRUSTED, Channel.RESULT, 0, 0.0, bytes(8), "read")
    for start in range(0, count, BATCH):
        grouped: dict[LabelSet, list[tuple[bytes, bytes]]] = {}
        for number in range(start, min(start + BATCH, count)):
            mark = seal.fingerprint(f"mail:somebody{number}@elsewhere.example.org")
            area = areas.taint(identity, mark, areas.epoch(0.0))
            grouped.setdefault(area, []).append(seal.write(area, mark, record))
        writes = [LabelWrite(area, LabelWriteMode.KEEP, tuple(e)) for area, e in grouped.items()]
        await store.note(identity, writes)
        announce(min(start + BATCH, count) / count)


def bench_provenance(policy: Path, *, rounds: int, seconds: float, progress: Progress) -> Report:
    """Run everything and return the report.

    Raises:
        GuardError: a part could not be started.
    """
    checks = asyncio.run(_inside(load_policies([policy]), progress))
    loads: Loads = {}
    if generator():
        with Rig() as rig:
            loads = load_in_turns(started(rig, policy), rounds, seconds, progress)
    checks.append(ratio("ratio_vs_mitmdump_c16", loads, ("guard", "mitmdump"), ">= 0.9, goal 1.1"))
    details = {"durability": "embedded redis, nothing persisted"}
    return Report(name="provenance", machine=machine(), checks=checks, details=details)


async def _inside(policy: Policy, progress: Progress) -> list[Check]:
    with EmbeddedRedis() as redis:
        store = RedisSessionStore.at(redis.url, limits=policy.limits, timeout=10.0)
        await store.verify()
        seal = Seal(secrets.token_bytes(KEY_BYTES))
        parts = LabelSets(policy.limits), store, seal
        driver = Driver(
            policy,
            store,
            recipient=[PARTNER],
            prompt=f"Mail {PARTNER} the status.",
            seal=seal,
        )
        try:
            progress("decisions with 10,000 labelled values", 0.02)
            await add_labels(parts, "ten-thousand", 10_000)
            checks = await driver.decisions("ten-thousand", TARGETS)
            checks += await _values_growth(driver, parts, progress)
            checks.append(
                await driver.growth(
                    SAMPLE, "<= 1.2", lambda done: progress(LONG, 0.45 + 0.3 * done)
                )
            )
        finally:
            await store.aclose()
    return checks


async def _values_growth(
    driver: Driver, parts: tuple[LabelSets, RedisSessionStore, Seal], progress: Progress
) -> list[Check]:
    store, stage = parts[1], f"{VALUES:,} labelled values"
    await add_labels(parts, "few", 100)
    before = await info(store, "memory", _MEMORY)
    await add_labels(parts, "many", VALUES, lambda done: progress(stage, 0.1 + 0.3 * done))
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
