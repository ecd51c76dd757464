"""Calls through a guard in this process, on the store and the models of live traffic."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from contextlib import asynccontextmanager
from statistics import median
from typing import TYPE_CHECKING, Final

from guard.core.calls import ToolResult, TracedCall
from guard.core.errors import GuardError
from guard.core.model import Identity, Json, Role, ToolCall
from guard.core.ports import Attempt, Completion
from guard.detectors import DetectorResources, create_detectors
from guard.inference.onnx import load_models
from guard.pipeline.decision_log import Records
from guard.pipeline.exchange import new_decision_id
from guard.pipeline.guard import Guard
from guard.pipeline.outcome import JudgeRequest
from guard.pipeline.stores import Stores
from guard.policy import load_policies
from guard.provenance.seal import KEY_BYTES, Seal
from guard.replay.reports import Check
from guard.settings import models_directory
from guard.store.embedded import EmbeddedRedis
from guard.store.store import RedisSessionStore
from guard.telemetry.audit_log import NoAuditLog
from guard.telemetry.metrics import PrometheusMetrics
from lab.wire import percentile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from guard.core.policy import Policy

SESSION: Final = "now"
LONG_SESSION: Final = 100_000
LONG: Final = f"a session of {LONG_SESSION:,} calls"
DECISIONS: Final = 4_000
"""Timed decisions for the percentiles."""
SAMPLE: Final = 400
"""Interleaved pairs for each growth."""
AT_ONCE: Final = 250
"""Calls on their way at a time."""
TRIPS: Final = 100
"""Calls whose round trips are counted."""
_COMMANDS: Final = re.compile(r"^cmdstat_(?:evalsha|eval|script\|load):calls=(\d+)", re.MULTILINE)
"""Commands of a client.  Redis also counts the commands that a script calls; only those that
crossed the wire are round trips."""


class Driver:
    """Sends mail through a guard, one call after the other; a principal has one session.

    Args:
        policy: of the guard.
        store: verified.
        recipient: as the call has it.
        prompt: what the user of each principal says first, if anything.
    """

    def __init__(
        self, policy: Policy, store: RedisSessionStore, recipient: Json, prompt: str = ""
    ) -> None:
        self.policy, self.store, self.seal = policy, store, Seal(secrets.token_bytes(KEY_BYTES))
        self._recipient, self._prompt = recipient, prompt
        self._guard = Guard(
            policy,
            Stores(store),
            Records(NoAuditLog(), PrometheusMetrics(policy)),
            detectors=create_detectors(DetectorResources(load_models(models_directory()))),
            seal=self.seal,
        )

    async def begin(self, principal: str) -> None:
        """Let the user of a principal say what it says first."""
        if self._prompt:
            await self._guard.notes.prompt(Identity(principal, SESSION), self._prompt, 0.0)

    async def judge(self, principal: str) -> TracedCall:
        """Judge a send and return it.

        Raises:
            GuardError: it was refused, so something else would be measured.
        """
        call = ToolCall(
            id=new_decision_id(),
            identity=Identity(principal, SESSION),
            tool="email_send_email",
            arguments={"to": self._recipient, "subject": "status", "body": "all is well"},
            protocol="mcp",
            at=0.0,
        )
        ((traced, verdict),) = await self._guard.judge(JudgeRequest([call]))
        if not verdict.enforced.forwards:
            raise GuardError(f"the benchmark's own call was refused: {verdict.reasons[0].code}")
        return traced

    async def calls(self, principal: str, count: int) -> list[float]:
        """Make calls one after the other; return the seconds each decision took."""
        times = []
        for _ in range(count):
            started = time.perf_counter()
            traced = await self.judge(principal)
            times.append(time.perf_counter() - started)
            await self._finish(traced)
        return times

    async def _finish(self, traced: TracedCall) -> None:
        await self._guard.observe(ToolResult(traced, "sent", 0.0))

    async def decisions(self, principal: str, targets: tuple[str, str]) -> list[Check]:
        """Return the percentiles of decision times, and the round trips."""
        await self.begin(principal)
        await self.calls(principal, 300)
        before = await info(self.store, "commandstats", _COMMANDS)
        judged = [await self.judge(principal) for _ in range(TRIPS)]
        between = await info(self.store, "commandstats", _COMMANDS)
        for traced in judged:
            await self._finish(traced)
        after = await info(self.store, "commandstats", _COMMANDS)
        times = [seconds * 1000 for seconds in await self.calls(principal, DECISIONS)]
        checks = [
            Check(
                id=f"decision_p{at}_ms",
                value=round(percentile(times, at) or 0.0, 4),
                unit="ms",
                n=DECISIONS,
                target=target,
            )
            for at, target in zip((50, 99), targets, strict=True)
        ]
        for name, commands in (("request", between - before), ("result", after - between)):
            trips = commands / TRIPS
            checks.append(
                Check(id=f"round_trips_{name}", value=trips, unit="count", n=TRIPS, target="= 1")
            )
        return checks

    async def growth(self, target: str, announce: Callable[[float], object]) -> Check:
        """Return the median decision time late in a long session over that at call 10.

        Calls of the long and of short sessions are made in turns.
        """
        await self.begin("long")
        past = Identity("long", SESSION)
        await make_long(self.store, past, LONG_SESSION, lambda done: announce(0.7 * done))
        short: list[float] = []
        long: list[float] = []
        for number in range(SAMPLE):
            announce(0.7 + 0.3 * number / SAMPLE)
            name = f"short-{number}"
            await self.begin(name)
            await self.calls(name, 9)
            short += await self.calls(name, 1)
            # As much work before it as before the short one's, so that caches are as warm.
            await self.calls("long", 9)
            long += await self.calls("long", 1)
        return Check(
            id="growth_call_100000_vs_10",
            value=round(median(long) / median(short), 3),
            unit="ratio",
            n=SAMPLE,
            target=target,
        )


@asynccontextmanager
async def driven(policy: Path, recipient: Json, prompt: str = "") -> AsyncIterator[Driver]:
    """Run a guard in this process on a Redis of its own."""
    loaded = load_policies([policy])
    with EmbeddedRedis() as redis:
        store = RedisSessionStore.at(redis.url, limits=loaded.limits, timeout=10.0)
        try:
            await store.verify()
            yield Driver(loaded, store, recipient, prompt)
        finally:
            await store.aclose()


async def make_long(
    store: RedisSessionStore, identity: Identity, calls: int, announce: Callable[[float], object]
) -> None:
    """Make a session so many executed sends long, with the store's own scripts.

    What is in the store afterwards is what as many sends through the guard leave behind.

    Args:
        store: where.
        identity: whose session.
        calls: how many sends.
        announce: is told the share that is done, now and then.

    Raises:
        StateError: the store failed.
    """
    for done in range(0, calls, AT_ONCE):
        names = [f"past-{number}" for number in range(done, min(done + AT_ONCE, calls))]
        await asyncio.gather(
            *(store.attempt(Attempt(name, identity, Role.SEND, 0.0)) for name in names)
        )
        await asyncio.gather(
            *(
                store.complete(Completion(name, identity, Role.SEND, 0.0, executed=True))
                for name in names
            )
        )
        announce((done + len(names)) / calls)


async def info(store: RedisSessionStore, section: str, pattern: re.Pattern[str]) -> int:
    """Return the sum of what a pattern finds in a section of ``INFO``."""
    reply = await store.client.execute("INFO", section)
    text = reply.decode() if isinstance(reply, bytes) else str(reply)
    return sum(int(number) for number in pattern.findall(text.replace("\r\n", "\n")))
