"""Recorded runs through the proxy's handlers and through the in-process API: the same verdicts?

Both run closed-loop: a call that is refused has no result.  The proxy's side is a
:class:`lab.trust.harness.World` on a real Redis, its calls MCP requests; the other side is an
agent's own process with the state in it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from guard.replay.reports import Check
from guard.settings import policies_directory
from lab.trust.harness import world_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from guard.adapters.redis.store import RedisSessionStore
    from guard.core.model import Json
    from guard.replay.traces import Call, Run
    from lab.trust.harness import Compose, World

PRINCIPAL: Final = "alice"
DIFFERENCES_SHOWN: Final = 20


@dataclass(slots=True)
class Parity:
    """Counts of a comparison: runs, calls, and the calls whose verdicts differ."""

    runs: int = 0
    calls: int = 0
    same: int = 0
    milliseconds: list[float] = field(default_factory=list)
    """Of each call in process, both directions."""
    differences: list[str] = field(default_factory=list)

    def checks(self) -> list[Check]:
        """Return the checks of the report."""
        nothing = None if self.calls else "no recorded calls were given"
        share = self.same / self.calls if self.calls else None
        p50 = median(self.milliseconds) if self.calls else None
        return [
            Check(
                id="inprocess_same_verdicts",
                value=share,
                unit="share",
                n=self.calls,
                target="= 1",
                reason=nothing,
            ),
            Check(id="inprocess_p50_ms", value=p50, unit="ms", n=self.calls, reason=nothing),
        ]


async def compare(
    compose: Compose,
    open_guard: Callable[..., AbstractAsyncContextManager[Any]],
    redis_url: str,
    policy: str,
    runs: Iterable[Run],
    advance: Callable[[], object] = lambda: None,
) -> Parity:
    """Play every run on both sides.

    Args:
        compose: the composition root.
        open_guard: ``Guard.open`` of the in-process API.
        redis_url: of a server that is emptied between runs.
        policy: name of a shipped policy.
        runs: recorded runs.
        advance: called after each run.
    """
    found = Parity()
    async with world_of(compose, redis_url, policy) as world:
        files = [policies_directory() / policy]
        async with open_guard(files) as guard:
            guard.now = world.clock.now
            for run in runs:
                await _forget(world.parts.store)
                await _forget(guard.parts.store)
                await _play(run, world, guard, found)
                found.runs += 1
                advance()
    return found


async def _forget(store: RedisSessionStore) -> None:
    """Remove all state of the last run but the store's identity record."""
    async for keys in store.client.scan(f"{store.namespace}:{{"):
        if keys:
            await store.client.execute("UNLINK", *keys)


async def _play(run: Run, world: World, guard: Any, found: Parity) -> None:
    heard: set[str] = set()
    for call in run.calls:
        session = f"s{call.session}"
        inside = guard.session(session, principal=PRINCIPAL)
        outside = world.agent(PRINCIPAL, session)
        if session not in heard:
            heard.add(session)
            for prompt in run.prompts:
                if prompt.session == call.session:
                    await inside.prompt(prompt.text)
                    await outside.prompt(prompt.text)
        outcome = await outside.call(call.tool, call.args, call.result)
        verdict = await _call(inside, call, found)
        there = (outcome.forwarded, sorted(set(outcome.codes)))
        here = (verdict.allowed, sorted(_codes(verdict.details)))
        found.calls += 1
        found.same += there == here
        if there != here and len(found.differences) < DIFFERENCES_SHOWN:
            found.differences.append(f"{run.run_id}:{call.i} {call.tool}: {there} / {here}")


async def _call(session: Any, call: Call, found: Parity) -> Any:
    started = time.perf_counter()
    verdict = await session.authorize(call.tool, call.args)
    if verdict.allowed:
        await session.observe(verdict, "done" if call.result is None else call.result)
    found.milliseconds.append((time.perf_counter() - started) * 1000)
    return verdict


def _codes(details: Mapping[str, Json]) -> set[str]:
    return {str(reason["code"]) for reason in details.get("reasons", ())}
