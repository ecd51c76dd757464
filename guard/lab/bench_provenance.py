"""``guard bench provenance``: what tracing every destination costs, and that the cost stays flat.

Decisions are timed in this process, on the store and the models of live traffic, with many
labelled values in the store; the ratio is taken side by side with stock mitmdump.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from guard.adapters.audit_log import NoAuditLog
from guard.adapters.metrics.prometheus import PrometheusMetrics
from guard.adapters.onnx import load_models
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.adapters.redis.store import RedisSessionStore
from guard.core.calls import ToolResult
from guard.core.errors import GuardError
from guard.core.labels import Channel, LabelRecord, LabelWrite, LabelWriteMode
from guard.core.model import Identity, Integrity, ToolCall
from guard.decision.guard import Guard
from guard.detectors import DetectorResources, create_detectors
from guard.enforcement.exchange import new_decision_id
from guard.lab.load import contestants, generator, make_long, side_by_side
from guard.policy_files import load_policies
from guard.provenance.label_sets import LabelSets
from guard.provenance.seal import KEY_BYTES, Seal
from guard.replay.reports import Check, Report, machine
from guard.settings import models_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guard.core.calls import TracedCall
    from guard.core.labels import LabelSet
    from guard.core.policy import Policy
    from guard.lab.load import Progress

SESSION: Final = "now"
PARTNER: Final = "partner@desk.example.net"
"""The recipient of the timed send: outside, and named by the user."""
BATCH: Final = 5_000
_MEMORY: Final = re.compile(r"^used_memory:(\d+)", re.MULTILINE)
_CALLS: Final = re.compile(r"^cmdstat_(?:evalsha|eval|script\|load):calls=(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        values: labelled values of the principal with many.
        calls: calls of the long session.
        decisions: timed decisions for the percentiles.
        sample: interleaved pairs for each growth.
        rounds: alternating rounds of the ratio; 0 leaves it out.
        seconds: length of a round.
    """

    values: int = 1_000_000
    calls: int = 100_000
    decisions: int = 4_000
    sample: int = 400
    rounds: int = 5
    seconds: float = 4.0


class Driver:
    """Labels values and sends mail through a guard."""

    def __init__(self, policy: Policy, store: RedisSessionStore) -> None:
        self._areas = LabelSets(policy.limits)
        self._seal = Seal(secrets.token_bytes(KEY_BYTES))
        self._store = store
        self.guard = Guard(
            policy=policy,
            store=store,
            detectors=create_detectors(DetectorResources(load_models(models_directory()))),
            audit=NoAuditLog(),
            metrics=PrometheusMetrics(policy),
            seal=self._seal,
        )

    async def label(
        self, principal: str, count: int, told: Callable[[float], object] = lambda _: None
    ) -> None:
        """Store as many records of untrusted values as results with them would."""
        identity = Identity(principal, SESSION)
        record = LabelRecord(Integrity.UNTRUSTED, Channel.RESULT, 0, 0.0, bytes(8), "read")
        for start in range(0, count, BATCH):
            grouped: dict[LabelSet, list[tuple[bytes, bytes]]] = {}
            for number in range(start, min(start + BATCH, count)):
                mark = self._seal.fingerprint(f"mail:somebody{number}@elsewhere.example.org")
                area = self._areas.taint(identity, mark, self._areas.epoch(0.0))
                grouped.setdefault(area, []).append(self._seal.write(area, mark, record))
            writes = [
                LabelWrite(area, LabelWriteMode.KEEP, tuple(e)) for area, e in grouped.items()
            ]
            await self._store.note(identity, writes)
            told(min(start + BATCH, count) / count)

    async def judge(self, principal: str, session: str = SESSION) -> TracedCall:
        """Judge a send to the partner and return it.

        Raises:
            GuardError: it was refused, so something else would be measured.
        """
        call = ToolCall(
            id=new_decision_id(),
            identity=Identity(principal, session),
            tool="email_send_email",
            arguments={"to": [PARTNER], "subject": "status", "body": "all is well"},
            protocol="mcp",
            at=0.0,
        )
        ((classified, verdict),) = await self.guard.authorize([call])
        if not verdict.enforced.forwards:
            msg = f"the benchmark's own call was refused: {verdict.reasons[0].code}"
            raise GuardError(msg)
        return classified

    async def finish(self, classified: TracedCall) -> None:
        """Observe the result."""
        await self.guard.observe(ToolResult(classified, "sent", 0.0))

    async def named(self, principal: str, session: str = SESSION) -> None:
        """Let the user name the partner."""
        identity = Identity(principal, session)
        await self.guard.note_prompt(identity, f"Mail {PARTNER} the status.", 0.0)

    async def calls(self, principal: str, count: int, session: str = SESSION) -> list[float]:
        """Make calls one after the other; return the seconds each decision took."""
        times = []
        for _ in range(count):
            started = time.perf_counter()
            classified = await self.judge(principal, session)
            times.append(time.perf_counter() - started)
            await self.finish(classified)
        return times


def bench_provenance(policy: Path, size: Size, progress: Progress) -> Report:
    """Run everything and return the report.

    Raises:
        GuardError: a part could not be started.
    """
    checks = asyncio.run(_inside(load_policies([policy]), size, progress))
    checks.append(_side_by_side(policy, size, progress))
    details = {"generator": generator(), "durability": "embedded redis, nothing persisted"}
    return Report(name="provenance", machine=machine(), checks=checks, details=details)


async def _inside(policy: Policy, size: Size, progress: Progress) -> list[Check]:
    with EmbeddedRedis() as redis:
        store = RedisSessionStore.at(redis.url, limits=policy.limits, timeout=10.0)
        await store.verify()
        try:
            driver = Driver(policy, store)
            checks = await _decisions(driver, store, size, progress)
            checks += await _values_growth(driver, store, size, progress)
            checks.append(await _calls_growth(driver, store, size, progress))
        finally:
            await store.aclose()
    return checks


async def _decisions(
    driver: Driver, store: RedisSessionStore, size: Size, progress: Progress
) -> list[Check]:
    """Return the percentiles with 10,000 labelled values, and the round trips."""
    progress("decisions with 10,000 labelled values", 0.02)
    await driver.label("ten-thousand", 10_000)
    await driver.named("ten-thousand")
    await driver.calls("ten-thousand", 300)
    before = await _info(store, "commandstats", _CALLS)
    judged = [await driver.judge("ten-thousand") for _ in range(100)]
    between = await _info(store, "commandstats", _CALLS)
    for classified in judged:
        await driver.finish(classified)
    after = await _info(store, "commandstats", _CALLS)
    times = sorted(await driver.calls("ten-thousand", size.decisions))
    p50, p99 = times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000
    n = len(times)
    return [
        Check(id="decision_p50_ms", value=round(p50, 4), unit="ms", n=n, target="<= 0.6"),
        Check(id="decision_p99_ms", value=round(p99, 4), unit="ms", n=n, target="<= 3"),
        _count("round_trips_request", (between - before) / 100),
        _count("round_trips_result", (after - between) / 100),
    ]


def _count(check: str, value: float) -> Check:
    return Check(id=check, value=value, unit="count", n=100, target="= 1")


async def _values_growth(
    driver: Driver, store: RedisSessionStore, size: Size, progress: Progress
) -> list[Check]:
    stage = f"{size.values:,} labelled values"
    await driver.label("few", 100)
    before = await _info(store, "memory", _MEMORY)
    await driver.label("many", size.values, lambda done: progress(stage, 0.1 + 0.3 * done))
    used = await _info(store, "memory", _MEMORY) - before
    for principal in ("few", "many"):
        await driver.named(principal)
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


async def _calls_growth(
    driver: Driver, store: RedisSessionStore, size: Size, progress: Progress
) -> Check:
    """Return the median decision time late in a long session over that at call 10."""
    stage = f"a session of {size.calls:,} calls"
    await driver.named("long")
    past = Identity("long", SESSION)
    await make_long(store, past, size.calls, lambda done: progress(stage, 0.45 + 0.2 * done))
    short: list[float] = []
    long: list[float] = []
    for number in range(size.sample):
        name = f"short-{number}"
        await driver.named(name)
        await driver.calls(name, 9)
        short += await driver.calls(name, 1)
        # As much work before it as before the short one's, so that caches are as warm.
        await driver.calls("long", 9)
        long += await driver.calls("long", 1)
    whole = size.calls == Size().calls
    return Check(
        id="growth_call_100000_vs_10",
        value=round(median(long) / median(short), 3) if whole else None,
        unit="ratio",
        n=size.sample,
        target="<= 1.2",
        reason=None if whole else f"measured with {size.calls} calls only",
    )


def _side_by_side(policy: Path, size: Size, progress: Progress) -> Check:
    target = ">= 0.9, goal 1.1"
    if not size.rounds:
        reason = "left out, as asked"
        return Check(
            id="ratio_vs_mitmdump_c16", value=None, unit="ratio", target=target, reason=reason
        )
    with contestants(policy) as ports:
        rounds = side_by_side(
            ports, size.rounds, size.seconds, lambda what, done: progress(what, 0.75 + 0.25 * done)
        )
    return rounds.check(target)


async def _info(store: RedisSessionStore, section: str, pattern: re.Pattern[str]) -> int:
    """Return the sum of what a pattern finds in a section of ``INFO``."""
    reply = await store.client.execute("INFO", section)
    text = reply.decode() if isinstance(reply, bytes) else str(reply)
    return sum(int(number) for number in pattern.findall(text.replace("\r\n", "\n")))
