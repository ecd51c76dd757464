"""``guard lab bench provenance``: the cost of tracing every destination, and its growth.

Decisions are timed in this process, on the store and the models of live traffic, with many
labelled values in the store; the ratio is taken side by side with stock mitmdump.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import dataclass
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
from lab.in_process import LONG_SESSION, SESSION, Driver, info
from lab.load import NO_GENERATOR, Loads, Progress, generator, load_in_turns, ratio, started

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guard.core.policy import Policy

PARTNER: Final = "partner@desk.example.net"
"""The recipient of the timed send: outside, and named by the user."""
BATCH: Final = 5_000
TARGETS: Final = ("<= 0.6", "<= 3")
"""Targets of the percentiles, in milliseconds."""
_MEMORY: Final = re.compile(r"^used_memory:(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Size:
    """Scale of the measurement.

    Attributes:
        values: labelled values of the principal with many.
        calls: calls of the long session.
        decisions: timed decisions for the percentiles.
        sample: interleaved pairs for each growth.
        rounds: alternating rounds of the ratio; 0 leaves it out.
        seconds: length of a round.
    """

    values: int = 1_000_000
    calls: int = LONG_SESSION
    decisions: int = 4_000
    sample: int = 400
    rounds: int = 5
    seconds: float = 4.0


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


def bench_provenance(policy: Path, size: Size, progress: Progress) -> Report:
    """Run everything and return the report.

    Raises:
        GuardError: a part could not be started.
    """
    checks = asyncio.run(_inside(load_policies([policy]), size, progress))
    checks.append(_side_by_side(policy, size, progress))
    details = {"durability": "embedded redis, nothing persisted"}
    return Report(name="provenance", machine=machine(), checks=checks, details=details)


async def _inside(policy: Policy, size: Size, progress: Progress) -> list[Check]:
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
            checks = await driver.decisions("ten-thousand", size.decisions, TARGETS)
            checks += await _values_growth(driver, parts, size, progress)
            stage = f"a session of {size.calls:,} calls"
            checks.append(
                await driver.growth(
                    size.calls,
                    size.sample,
                    "<= 1.2",
                    lambda done: progress(stage, 0.45 + 0.3 * done),
                )
            )
        finally:
            await store.aclose()
    return checks


async def _values_growth(
    driver: Driver,
    parts: tuple[LabelSets, RedisSessionStore, Seal],
    size: Size,
    progress: Progress,
) -> list[Check]:
    store, stage = parts[1], f"{size.values:,} labelled values"
    await add_labels(parts, "few", 100)
    before = await info(store, "memory", _MEMORY)
    await add_labels(parts, "many", size.values, lambda done: progress(stage, 0.1 + 0.3 * done))
    used = await info(store, "memory", _MEMORY) - before
    for principal in ("few", "many"):
        await driver.begin(principal)
        await driver.calls(principal, 100)
    few: list[float] = []
    many: list[float] = []
    for _ in range(size.sample):
        few += await driver.calls("few", 2)
        many += await driver.calls("many", 2)
    ratio = round(median(many) / median(few), 3)
    whole = size.values == Size().values
    reason = None if whole else f"measured with {size.values} values only"
    return [
        Check(
            id="growth_values_1000000_vs_100",
            value=ratio if whole else None,
            unit="ratio",
            n=len(many),
            target="<= 1.2",
            reason=reason,
        ),
        Check(
            id="bytes_per_value", value=round(used / size.values, 1), unit="bytes", n=size.values
        ),
    ]


def _side_by_side(policy: Path, size: Size, progress: Progress) -> Check:
    loads: Loads = {}
    if size.rounds and generator():
        with Rig() as rig:
            loads = load_in_turns(started(rig, policy), size.rounds, size.seconds, progress)
    names, reason = ("guard", "mitmdump"), NO_GENERATOR if size.rounds else "left out, as asked"
    return ratio("ratio_vs_mitmdump_c16", loads, names, ">= 0.9, goal 1.1", reason)
