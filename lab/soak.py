"""``guard lab bench soak``: whether memory, descriptors and times grow under churn.

Sixteen connections make calls without a pause.  A session has forty, then another begins;
principals come and go, so do keys of the memory and addresses in what is read; each connection is
given up after some hundred calls; the policy is changed again and again.  The policy forgets within
a minute, so what is kept for good would show.  Slopes are Theil and Sen's (Sen 1968, with his
interval), over what was seen after the first quarter, once caches are full, and of Redis once it
has begun to forget.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from redis import Redis
from scipy.stats import theilslopes

from guard.core.errors import GuardError
from guard.processes.loopback import Rig
from guard.replay.reports import Check, Report, machine
from guard.store.embedded import EmbeddedRedis
from lab.guard_processes import begin_guard, resident, worker_of
from lab.load import UPSTREAM
from lab.wire import Connection, call_body, credentials, percentile, post, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Json

POLICY: Final = Path(__file__).with_name("soak.yaml")
CONNECTIONS: Final = 16
PRINCIPALS: Final = 200
ITEMS: Final = 2000
"""Keys of the memory, and addresses that are saved in it.  Labels of what a memory holds are kept
as long as it does: without a bound of its contents there is none of theirs."""
CALLS_OF_SESSION: Final = 40
CALLS_OF_CONNECTION: Final = 400
SAMPLES: Final = 200
"""Number of memory samples."""
RELOAD_SAMPLES: Final = 10
"""The policy is changed at every so many looks."""
WARM_UP: Final = 0.25
CACHES_FULL: Final = 3600 * CALLS_OF_SESSION
"""Share of the run, and calls of it, that caches fill in.  The largest have 1,024 sessions, and are
full after a third of that; the most that was ever in use at once, which an allocator keeps, is seen
later.  Of a short run no more than half is left out."""
FORGOTTEN: Final = 150.0
"""Seconds until Redis forgets as much as it learns: labels go within twice the policy's period."""
FEWEST: Final = 20
"""Looks that a slope is taken of."""
EDGE: Final = 0.1
"""Share of the run whose times are compared: once caches are full, as for slopes, and at its end.
Before, a session is found in a cache that has room, and Redis has nothing to forget."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Figures at one time."""

    calls: int
    seconds: float
    """Since the beginning."""
    worker_kb: int
    redis_kb: int
    """In use, as Redis counts it."""
    descriptors: int
    """Open descriptors of the worker."""


@dataclass(slots=True)
class Run:
    """A run, as far as it has come."""

    total: int
    failed: int = 0
    refused: int = 0
    seconds: list[float] = field(default_factory=list)
    """Durations of the calls, in order of their ends."""
    samples: list[Sample] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Number of answered calls."""
        return len(self.seconds)


def _call(drawn: random.Random, number: int) -> tuple[str, dict[str, Json]]:
    kind = drawn.random()
    if kind < 0.4:
        return "rag_query", {"query": f"q{number}"}
    if kind < 0.5:
        content = f"Somebody is at y{number % ITEMS}@other.test, as of {number % ITEMS}."
        return "save_fact", {"key": f"k{drawn.randrange(ITEMS)}", "content": content}
    if kind < 0.6:
        return "recall_fact", {"key": f"k{drawn.randrange(ITEMS)}"}
    return "send_email", {"to": "bob@example.com", "body": f"all is well, {number}"}


async def _client(port: int, run: Run, numbers: itertools.count[int], seed: int) -> None:
    """Make calls until the run has enough; hang up, and change the session, now and then."""
    drawn = random.Random(seed)  # noqa: S311  (a load, no secret)
    connection = Connection(port)
    headers: dict[str, str] = {}
    for made in itertools.count():
        if run.done >= run.total:
            break
        if made % CALLS_OF_SESSION == 0:
            principal = f"p{drawn.randrange(PRINCIPALS)}"
            headers = shown(principal, f"s{drawn.randrange(10**12)}")
        if drawn.randrange(CALLS_OF_CONNECTION // 2) == 0:
            connection.close()
        number = next(numbers)
        request = post("/mcp", call_body(*_call(drawn, number), number), headers)
        began = time.perf_counter()
        try:
            head, body = await connection.exchange(request)
        except (OSError, EOFError):
            run.failed += 1
            continue
        run.seconds.append(time.perf_counter() - began)
        run.refused += b'"isError": true' in body
        run.failed += not head.startswith(b"HTTP/1.1 200")
    connection.close()


async def _load(
    port: int, run: Run, look: Callable[[], Sample], between: Callable[[int], None]
) -> None:
    """Make all calls, and look at memory meanwhile."""
    numbers = itertools.count(1)
    async with asyncio.TaskGroup() as group:
        for seed in range(CONNECTIONS):
            group.create_task(_client(port, run, numbers, seed))
        while len(run.samples) < SAMPLES:
            await asyncio.sleep(0.02)
            number = len(run.samples) + 1
            if run.done < run.total * number // SAMPLES:
                continue
            run.samples.append(await asyncio.to_thread(look))
            between(number)


def bench_soak(*, calls: int, progress: Callable[[str, float], object]) -> Report:
    """Make so many calls and return the report.

    Args:
        calls: in all.
        progress: told what is going on, and which share is done.

    Raises:
        GuardError: the guard, or its worker, is gone.
    """
    run = Run(calls)
    with Rig() as rig, EmbeddedRedis() as redis:
        policy = rig.directory / "policy.yaml"
        text = POLICY.read_text(encoding="utf-8")
        policy.write_text(text, encoding="utf-8")
        words = credentials(rig.directory, *(f"p{n}" for n in range(PRINCIPALS)))
        upstream = rig.server(UPSTREAM)
        port, guard = begin_guard(
            rig, policy, upstream, *words, "--reload", "0.5", "--redis", redis.url
        )
        worker = worker_of(guard.process.pid)
        state = Redis.from_url(redis.url)
        began = time.monotonic()

        def look() -> Sample:
            return Sample(
                run.done,
                round(time.monotonic() - began, 2),
                resident(worker) // 1024,
                int(state.info("memory")["used_memory"]) // 1024,
                len(list(Path(f"/proc/{worker}/fd").iterdir())),
            )

        def between(number: int) -> None:
            progress(f"{run.done:,} of {calls:,} calls", run.done / calls)
            if number % RELOAD_SAMPLES == 0:
                fresh = policy.with_suffix(".new")
                fresh.write_text(f"{text}# {number}\n", encoding="utf-8")
                fresh.replace(policy)

        asyncio.run(_load(port, run, look, between))
        if worker_of(guard.process.pid) != worker:
            raise GuardError("the worker was replaced during the run")
    return _report(run)


def _slope(samples: list[Sample], name: str) -> tuple[float, tuple[float, float]]:
    """Return how much a figure grows in a million calls, with its 95 % interval."""
    at = [one.calls / 1e6 for one in samples]
    values = [getattr(one, name) for one in samples]
    found = theilslopes(values, at, 0.95)
    return float(found.slope), (float(found.low_slope), float(found.high_slope))


def _report(run: Run) -> Report:
    begin = max(int(WARM_UP * run.done), min(CACHES_FULL, run.done // 2))
    kept = [sample for sample in run.samples if sample.calls >= begin]
    checks: list[Check] = []
    for name, key, unit, scale in (
        ("soak_slope", "worker_kb", "MB per million calls", 1024),
        ("soak_slope_redis", "redis_kb", "MB per million calls", 1024),
        ("soak_slope_descriptors", "descriptors", "per million calls", 1),
    ):
        looks = [one for one in kept if key != "redis_kb" or one.seconds >= FORGOTTEN]
        if len(looks) < FEWEST:
            reason = f"until Redis forgets takes {FORGOTTEN:.0f} s: more calls are needed"
            checks.append(Check(id=name, value=None, unit=unit, reason=reason))
            continue
        slope, (low, high) = _slope(looks, key)
        interval = (round(low / scale, 2), round(high / scale, 2))
        checks.append(
            Check(
                id=name,
                value=round(slope / scale, 2),
                unit=unit,
                n=run.done,
                interval=interval,
                target="0 is in its interval",
            )
        )
    size = int(EDGE * len(run.seconds))
    parts = run.seconds[begin : begin + size], run.seconds[-size:]
    first, last = (percentile(part, 99) or 0.0 for part in parts)
    checks.append(
        Check(
            id="soak_p99_ratio",
            value=round(last / first, 3),
            unit="ratio",
            n=size,
            target="<= 1.1",
        )
    )
    details = {
        "calls": run.done,
        "refused": run.refused,
        "failed": run.failed,
        "p99_ms": {"start": round(first * 1e3, 2), "end": round(last * 1e3, 2)},
        "samples": [asdict(one) for one in run.samples[:: max(1, len(run.samples) // 20)]],
    }
    return Report(name="soak", machine=machine(), checks=checks, details=details)
