"""``guard bench proxy``: the guard beside stock mitmdump, in one run, as ratios.

Rounds alternate between the two, so a noisy machine is noisy for both.  Decision times, growth,
memory and round trips are measured in this process on the same store and models as live traffic.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.audit_log import NoAuditLog
from guard.adapters.metrics.prometheus import PrometheusMetrics
from guard.adapters.onnx import load_models
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.adapters.redis.store import RedisSessionStore
from guard.core.calls import ToolResult
from guard.core.errors import GuardError
from guard.core.model import Identity, ToolCall
from guard.decision.guard import Guard
from guard.detectors import DetectorResources, create_detectors
from guard.enforcement.exchange import new_decision_id
from guard.lab.load import contestants, generator, make_long, run_load, side_by_side
from guard.policy_files import load_policies
from guard.replay.reports import Check, Report, machine
from guard.settings import models_directory

if TYPE_CHECKING:
    from pathlib import Path

    from guard.lab.load import Progress

LONG_SESSION: Final = 100_000
SAMPLE: Final = 400


def bench_proxy(policy: Path, *, rounds: int, seconds: float, progress: Progress) -> Report:
    """Run everything and return the report.

    Raises:
        GuardError: a part could not be started.
    """
    with contestants(policy) as ports:
        progress("warming up", 0.02)
        sixteen = side_by_side(
            ports, rounds, seconds, lambda what, done: progress(what, 0.05 + 0.45 * done)
        )
        progress("1 connection", 0.5)
        before = _line_count(ports.audit)
        single = {
            name: run_load(port, 1, seconds)
            for name, port in (
                ("direct", ports.direct),
                ("mitmdump", ports.mitmdump),
                ("guard", ports.guard),
            )
        }
        in_proxy = _audited(ports.audit, before)
    progress("decisions in process", 0.6)
    inside = asyncio.run(_inside(policy, progress))
    return Report(
        name="proxy",
        machine=machine(),
        checks=[
            sixteen.check(">= 1.0, goal 1.3"),
            Check(
                id="added_latency_ms_c1",
                value=round(single["guard"].p50_ms - single["direct"].p50_ms, 3),
                unit="ms",
            ),
            *inside.checks,
        ],
        details={
            "generator": generator(),
            "rounds": asdict(sixteen),
            "one_connection_p50_ms": {name: load.p50_ms for name, load in single.items()},
            "errors": {name: load.errors for name, load in single.items()},
            "in_proxy_decision_ms": in_proxy,
            "durability": "embedded redis, nothing persisted",
            **inside.details,
        },
    )


def _line_count(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _audited(path: Path, skip: int) -> dict[str, float]:
    """Return what the guard itself wrote about its decisions at one connection."""
    lines = path.read_text(encoding="utf-8").splitlines()[skip:]
    times = sorted(json.loads(line).get("milliseconds", 0.0) for line in lines)
    if not times:
        return {}
    return {"p50": times[len(times) // 2], "p99": times[int(len(times) * 0.99)], "n": len(times)}


@dataclass(frozen=True, slots=True)
class _Inside:
    checks: list[Check]
    details: dict[str, Any]


async def _inside(policy_path: Path, progress: Progress) -> _Inside:
    with EmbeddedRedis() as redis:
        policy = load_policies([policy_path])
        models = load_models(models_directory())
        store = RedisSessionStore.at(redis.url, limits=policy.limits, timeout=5.0)
        await store.verify()
        guard = Guard(
            policy=policy,
            store=store,
            detectors=create_detectors(DetectorResources(models)),
            audit=NoAuditLog(),
            metrics=PrometheusMetrics(policy),
        )
        try:
            driver = _Driver(guard)
            await driver.calls("warm", 300)
            trips = await _round_trips(store, driver)
            times = sorted(await driver.calls("quiet", 4000))
            memory = await _bytes_per_session(store, driver)
            growth = await _growth(store, driver, progress)
        finally:
            await store.aclose()
    p50, p99 = times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000
    checks = [
        Check(id="decision_p50_ms", value=round(p50, 4), unit="ms", n=len(times), target="<= 0.4"),
        Check(id="decision_p99_ms", value=round(p99, 4), unit="ms", n=len(times), target="<= 2"),
        Check(
            id="growth_call_100000_vs_10",
            value=round(growth, 3),
            unit="ratio",
            n=SAMPLE,
            target="<= 1.1",
        ),
        Check(id="redis_bytes_per_session", value=memory, unit="bytes", n=1, target="<= 4096"),
        Check(id="round_trips_request", value=trips[0], unit="count", n=100, target="= 1"),
        Check(id="round_trips_result", value=trips[1], unit="count", n=100, target="= 1"),
    ]
    return _Inside(checks, {})


class _Driver:
    """Sends calls through the service, one after the other."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    @staticmethod
    def identity(session: str) -> Identity:
        """Return who calls in a session."""
        return Identity(f"agent-{session}", session)

    async def judge(self, session: str) -> Any:
        """Judge one send and return it classified."""
        call = ToolCall(
            id=new_decision_id(),
            identity=self.identity(session),
            tool="email_send_email",
            arguments={"to": "team@example.com", "subject": "status", "body": "all is well"},
            protocol="mcp",
            at=0.0,
        )
        ((classified, verdict),) = await self._guard.authorize([call])
        if not verdict.enforced.forwards:
            msg = f"the benchmark's own call was refused: {verdict.reasons[0].code}"
            raise GuardError(msg)
        return classified

    async def finish(self, classified: Any) -> None:
        """Observe the result of a call."""
        await self._guard.observe(ToolResult(classified, "sent", 0.0))

    async def calls(self, session: str, count: int) -> list[float]:
        """Make calls one after the other; return the seconds each decision took."""
        times = []
        for _ in range(count):
            started = time.perf_counter()
            classified = await self.judge(session)
            times.append(time.perf_counter() - started)
            await self.finish(classified)
        return times


async def _round_trips(store: RedisSessionStore, driver: _Driver) -> tuple[float, float]:
    """Return commands sent to Redis per request and per result."""
    before = await _commands(store)
    judged = [await driver.judge("trips") for _ in range(100)]
    between = await _commands(store)
    for classified in judged:
        await driver.finish(classified)
    after = await _commands(store)
    return (between - before) / 100, (after - between) / 100


async def _commands(store: RedisSessionStore) -> int:
    """Count the commands clients sent, from INFO commandstats."""
    reply = await store.client.execute("INFO", "commandstats")
    text = reply.decode() if isinstance(reply, bytes) else ""
    total = 0
    for line in text.splitlines():
        name, _, values = line.partition(":")
        # What a script calls is counted as well; only what crossed the wire is a round trip.
        if name in {"cmdstat_evalsha", "cmdstat_eval", "cmdstat_script|load"}:
            total += int(values.split(",", 1)[0].removeprefix("calls="))
    return total


async def _bytes_per_session(store: RedisSessionStore, driver: _Driver) -> int:
    """Return the memory of the keys of one session of ten calls, its principal's included."""
    before = await _keys(store)
    await driver.calls("memory", 10)
    new = await _keys(store) - before
    sizes = [await store.client.execute("MEMORY", "USAGE", key) for key in new]
    return sum(size for size in sizes if isinstance(size, int))


async def _keys(store: RedisSessionStore) -> set[bytes]:
    reply = await store.client.execute("KEYS", "*")
    return set(reply) if isinstance(reply, list) else set()


async def _growth(store: RedisSessionStore, driver: _Driver, progress: Progress) -> float:
    """Return the median decision time at call 100,000 over that at call 10, interleaved."""
    stage = f"a session of {LONG_SESSION:,} calls"
    identity = driver.identity("long")
    await make_long(store, identity, LONG_SESSION, lambda done: progress(stage, 0.65 + 0.25 * done))
    short, long = [], []
    for number in range(SAMPLE):
        progress("decisions in the long session", 0.9 + 0.1 * number / SAMPLE)
        name = f"short-{number}"
        await driver.calls(name, 9)
        short += await driver.calls(name, 1)
        # As much work before it as before the short one's, so that caches are as warm.
        await driver.calls("long", 9)
        long += await driver.calls("long", 1)
    return median(long) / median(short)
