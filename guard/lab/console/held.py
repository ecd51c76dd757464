"""``guard lab bench console --part held``: a thousand held calls, and the others' latency.

One guard holds them, its twin none; both answer the same slow load in the same seconds, so that
whatever else the machine does hits both.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.credentials.label_key import load_label_key
from guard.adapters.loopback import Rig, free_port
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.adapters.redis.operators import LabelOperator
from guard.adapters.redis.store import RedisSessionStore
from guard.core.errors import GuardError
from guard.core.policy import StateLimits
from guard.lab.interleaved import ratio_of
from guard.lab.load import CALL, UPSTREAM
from guard.provenance.seal import Seal
from guard.replay.reports import Check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guard.lab.load import Progress

HELD: Final = 1000
STEPS: Final = 4
"""Quarters after which memory is looked at."""
SECONDS: Final = 6.0
RATE: Final = 100
"""Calls of others per second, one at a time: far from what a guard can do."""
ROUNDS: Final = {"lean": 30, "mitmproxy": 12}
"""By enforcement point, the default first: the checks are its."""
HOLD: Final = "version: 1\nname: hold\nask: {hold: 30m}\n"
PATIENCE: Final = 300.0
TARGET: Final = 1.1


@dataclass(slots=True)
class Figures:
    """What was measured with one enforcement point."""

    held: int = 0
    bytes_each: list[float] = field(default_factory=list)
    """Memory of the worker per held call, quarter by quarter."""
    ratios: list[float] = field(default_factory=list)
    """99th percentile of others beside the held calls, over that of the twin, round by round."""
    released: int = 0
    release_ms: list[float] = field(default_factory=list)
    redis_each: float = 0.0
    cpu_share: float = 0.0
    """Of one core, while they wait and nobody else calls."""
    cpu_of_twin: float = 0.0
    """The same of the twin, which holds nothing."""


@dataclass(frozen=True, slots=True)
class HoldingGuard:
    """A guard and the state that it shares with whoever approves."""

    port: int
    admin: int
    redis: str
    directory: Path

    def metric(self, name: str) -> float:
        """Return a metric without labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=30) as page:
            found = re.search(rf"(?m)^{name} (\S+)$", page.read().decode())
        return float(found[1]) if found else 0.0


@contextmanager
def holding_guard(policy: Path, upstream: int, pep: str) -> Iterator[HoldingGuard]:
    """Start a guard that holds what it asks about.

    Raises:
        GuardError: it did not start.
    """
    with EmbeddedRedis() as redis, Rig() as rig:
        more = rig.directory / "hold.yaml"
        more.write_text(HOLD, encoding="utf-8")
        port, admin = free_port(), free_port()
        listener = f"127.0.0.1:{port}=http://127.0.0.1:{upstream}"
        options = ["--policy", str(policy.resolve()), "--policy", str(more), "--pep", pep]
        options += ["--reverse", listener, "--redis", redis.url]
        rig.begin_guard(*options, admin=admin).wait_ready()
        yield HoldingGuard(port, admin, redis.url, rig.directory)


def held_calls(policy: Path, progress: Progress) -> tuple[list[Check], dict[str, Any]]:
    """Hold calls with each enforcement point; return the checks, of the first one, and details.

    Raises:
        GuardError: a guard did not start, or calls were lost.
    """
    found: dict[str, Figures] = {}
    for number, (pep, rounds) in enumerate(ROUNDS.items()):
        with ExitStack() as stack:
            upstream = stack.enter_context(Rig()).server(UPSTREAM)
            holding, twin = (
                stack.enter_context(holding_guard(policy, upstream, pep)) for _ in range(2)
            )
            begun = number / len(ROUNDS)
            progress(f"held calls, {pep}", begun)
            found[pep] = asyncio.run(_measured(holding, twin, rounds))
    first = next(iter(found.values()))
    ratio = ratio_of([math.log(one) for one in first.ratios])
    whole = min(one.released for one in found.values())
    checks = [
        Check(
            id="held_calls",
            value=whole,
            unit="calls",
            n=HELD,
            target=f"== {HELD}",
        ),
        Check(
            id="held_bytes_per_call",
            value=round(first.bytes_each[-1]),
            unit="bytes",
            n=HELD,
        ),
        Check(
            id="held_others_p99_ratio",
            value=round(ratio.value, 3),
            unit="ratio",
            n=len(first.ratios),
            interval=(round(ratio.low, 3), round(ratio.high, 3)),
            target=f"<= {TARGET}",
        ),
    ]
    return checks, {pep: _told(one) for pep, one in found.items()}


def _told(one: Figures) -> dict[str, Any]:
    ratio = ratio_of([math.log(value) for value in one.ratios])
    return {
        "held_at_once": one.held,
        "released": one.released,
        "worker_bytes_per_call_by_quarter": [round(size) for size in one.bytes_each],
        "redis_bytes_per_call": round(one.redis_each),
        "others_p99_ratio": [round(value, 3) for value in ratio],
        "others_p99_ratio_rounds": [round(value, 3) for value in one.ratios],
        "cpu_of_one_core_while_waiting": round(one.cpu_share, 4),
        "cpu_of_one_core_of_the_twin": round(one.cpu_of_twin, 4),
        "approval_to_answer_p50_ms": round(median(one.release_ms), 1),
    }


async def _measured(holding: HoldingGuard, twin: HoldingGuard, rounds: int) -> Figures:
    figures = Figures()
    store = RedisSessionStore.at(holding.redis, timeout=30)
    seal = Seal(load_label_key(holding.directory / "label.key"))
    desk = LabelOperator(store, seal, StateLimits())
    try:
        for one in (holding, twin):
            await _others(one.port, 2.0)
        calls = await _fill(holding, figures, store)
        figures.held = round(await _scraped(holding, "guard_held_calls"))
        figures.cpu_share, figures.cpu_of_twin = await asyncio.gather(_cpu(holding), _cpu(twin))
        for _ in range(rounds):
            here, there = await asyncio.gather(
                _others(holding.port, SECONDS), _others(twin.port, SECONDS)
            )
            figures.ratios.append(here / there)
        await _release(desk, calls, figures)
    finally:
        await store.aclose()
    return figures


async def _cpu(one: HoldingGuard, seconds: float = 20.0) -> float:
    """Return the processor time of a guard's worker, per second."""
    before = await _scraped(one, "guard_process_cpu_seconds_total")
    await asyncio.sleep(seconds)
    return (await _scraped(one, "guard_process_cpu_seconds_total") - before) / seconds


async def _scraped(one: HoldingGuard, metric: str) -> float:
    return await asyncio.to_thread(one.metric, metric)


async def _fill(
    one: HoldingGuard, figures: Figures, store: RedisSessionStore
) -> dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Have calls held, a quarter at a time; return their connections by receiver."""
    calls: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
    empty = await _scraped(one, "guard_process_resident_memory_bytes")
    in_redis = await _used(store)
    for step in range(STEPS):
        for number in range(step * HELD // STEPS, (step + 1) * HELD // STEPS):
            to = f"held{number}@outside.test"
            reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
            writer.write(_posted(one.port, to))
            calls[to] = reader, writer
            # Its answer has begun: it is held.
            async with asyncio.timeout(PATIENCE):
                await reader.readuntil(b"\n\n")
        now = await _scraped(one, "guard_process_resident_memory_bytes")
        figures.bytes_each.append((now - empty) / len(calls))
    figures.redis_each = (await _used(store) - in_redis) / len(calls)
    return calls


async def _used(store: RedisSessionStore) -> int:
    reply = await store.client.execute("INFO", "memory")
    found = re.search(rb"used_memory:(\d+)", reply if isinstance(reply, bytes) else b"")
    return int(found[1]) if found else 0


def _posted(port: int, to: str) -> bytes:
    message = json.loads(CALL)
    message["params"]["arguments"]["to"] = to
    body = json.dumps(message).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        "accept: application/json, text/event-stream\r\nx-guard-session: held\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _others(port: int, seconds: float) -> float:
    """Return the 99th percentile of a slow load, in milliseconds.

    Raises:
        GuardError: a call was not answered as it should.
    """
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"x-guard-session: others\r\ncontent-length: {len(CALL)}\r\n\r\n"
    )
    request, times = head.encode() + CALL.encode(), []
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(round(seconds * RATE)):
        began = time.perf_counter()
        writer.write(request)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", answer)
        await reader.readexactly(int(length[1]) if length else 0)
        times.append(time.perf_counter() - began)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise GuardError("a call of others was refused")
        await asyncio.sleep(max(0.0, 1 / RATE - times[-1]))
    writer.close()
    return quantiles(times, n=100)[98] * 1000


async def _release(
    desk: LabelOperator,
    calls: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]],
    figures: Figures,
) -> None:
    """Approve one after the other; count those that are answered by the tool, each its own."""
    waiting = await desk.waiting()
    for asked in waiting:
        [call] = asked.calls
        reader, writer = calls[call.receivers[0].receiver]
        began = time.perf_counter()
        await desk.approve(asked.decision, asked.at)
        async with asyncio.timeout(PATIENCE):
            answer = b""
            while not answer.endswith(b"0\r\n\r\n") and (more := await reader.read(65536)):
                answer += more
        figures.release_ms.append((time.perf_counter() - began) * 1000)
        figures.released += b'"text": "sent"' in answer or b'"text":"sent"' in answer
        writer.close()
