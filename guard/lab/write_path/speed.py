"""What the gate costs: added latency, Redis round trips, writes per second."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from guard.adapters.redis.connection import RedisClient
from guard.adapters.redis.endpoint import parse_endpoint
from guard.adapters.redis.fitness import parse_info

if TYPE_CHECKING:
    from guard.lab.write_path.rig import Agent, Rig

WRITERS: Final = 16
ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Cost:
    """Figures of one measurement."""

    gated_p50_ms: float
    ungated_p50_ms: float
    added_p50_ms: float
    round_trips: float
    """Scripts per write that an ungated write does not have."""
    writes_per_second: float


def cost(rig: Rig, writes: int, seconds: float) -> Cost:
    """Measure gated and ungated writes side by side, in alternating rounds.

    Both guards forward to an upstream that only answers, so that what differs is the gate.
    """
    gated, ungated = rig.agent("fast-gated"), rig.agent("fast-open")
    for agent in (gated, ungated):
        _timed(agent, 20)
    times: dict[str, list[float]] = {"gated": [], "ungated": []}
    scripts = {"gated": 0.0, "ungated": 0.0}
    for _ in range(ROUNDS):
        for name, agent in (("gated", gated), ("ungated", ungated)):
            before = asyncio.run(_scripts(rig))
            times[name].extend(_timed(agent, writes // ROUNDS))
            scripts[name] += asyncio.run(_scripts(rig)) - before
    done = ROUNDS * (writes // ROUNDS)
    first, second = (median(times[name]) * 1000 for name in ("gated", "ungated"))
    return Cost(
        gated_p50_ms=first,
        ungated_p50_ms=second,
        added_p50_ms=first - second,
        round_trips=(scripts["gated"] - scripts["ungated"]) / done,
        writes_per_second=_rate(rig, seconds),
    )


def _timed(agent: Agent, writes: int) -> list[float]:
    found = []
    for number in range(writes):
        arguments = {"key": f"k{number}", "content": f"item {number}", "memory_class": "L4"}
        started = time.perf_counter()
        agent.call("memory_write", arguments)
        found.append(time.perf_counter() - started)
    return found


def _rate(rig: Rig, seconds: float) -> float:
    agents = [rig.agent("fast-gated") for _ in range(WRITERS)]
    until = time.perf_counter() + seconds

    def write(agent: Agent) -> int:
        count = 0
        while time.perf_counter() < until:
            content = f"{agent.secret} item {count}"
            answer = agent.call(
                "memory_write", {"key": content, "content": content, "memory_class": "L4"}
            )
            count += not answer.is_error
        return count

    with ThreadPoolExecutor(WRITERS) as pool:
        return sum(pool.map(write, agents)) / seconds


async def _scripts(rig: Rig) -> float:
    client = RedisClient(parse_endpoint(rig.redis), timeout=5.0)
    try:
        stats = parse_info(await client.execute("INFO", "commandstats"))
    finally:
        await client.aclose()
    counted = stats.get("cmdstat_evalsha", "calls=0").split(",", 1)[0]
    return float(counted.removeprefix("calls="))
