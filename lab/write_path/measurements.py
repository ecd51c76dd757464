"""Measurements beside the attacks: normal writes, crashes, races and cost."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING, Final

import httpx

from guard.core.memory import Fate
from guard.processes.loopback import free_port
from guard.store.memory_stores.recovery import EVENT
from guard.store.staging import GateOperator
from guard.store.store import parse_info
from lab.wire import is_refused
from lab.write_path.rig import POLICY, Agent, Rig, events

if TYPE_CHECKING:
    from collections.abc import Sequence

WAYS: Final = ("inferred", "read", "said")
WRITES_EACH: Final = 20
"""Writes of one agent."""


def normal_writes(rig: Rig, texts: Sequence[str]) -> int:
    """Write texts in turn in each way, and return how many are refused."""
    refused = 0
    for start in range(0, len(texts), WRITES_EACH):
        way = WAYS[start // WRITES_EACH % len(WAYS)]
        agent = rig.agent("s4")
        for number, text in enumerate(texts[start : start + WRITES_EACH], start):
            key = f"normal-{number}"
            if way != "inferred":
                rig.store.add_document(key, f"Mail of the day: {text}")
                agent.call("fetch_document", {"document_id": key})
            if way == "said":
                rig.say("s4", agent, text)
            target = "L4" if way == "read" else "L3"
            write = {"key": key, "content": text, "memory_class": target, "nonce": key}
            refused += is_refused(agent.call("memory_write", write))
    return refused


POINTS: Final = ("asked", "staged", "recorded", "committed", "answered", "settled")
SETTLE_TRIES: Final = 300
"""Looks, a fifth of a second apart, until what a crash left must be settled."""
SENT_BEFORE: Final = frozenset({"answered", "settled"})
"""Points after which the store has the write."""


def crashes(rig: Rig, runs: int) -> dict[str, list[str]]:
    """Kill a guard at each step, bring it back, and return what must not be, by step.

    Violations:

    * a row without its vector
    * a write that was sent twice
    * a write that was acknowledged to the agent and is missing
    * a write that was sent although it had not been committed
    * a fate that reading back does not settle
    * a retry under the same nonce that forms the write again
    """
    return {point: [wrong for _ in range(runs) for wrong in crash(rig, point)] for point in POINTS}


def crash(rig: Rig, point: str) -> list[str]:
    """Kill a guard at a step of one write, bring it back, and return the violations."""
    store, port, upstream, agent = rig.store, free_port(), rig.memory_port, rig.fresh()
    name = f"crash-{point}-{agent}"
    content = f"crash at {point} of {agent}"
    write = {"key": name, "content": content, "memory_class": "L4", "nonce": name}
    text = POLICY.read_text("utf-8").replace(
        "memory:\n", "memory:\n  limits: {unknown_after: 1s}\n"
    )
    policy, dying = rig.variant("crashing", text), f"{name}:0"
    rig.worker("crashing", policy, upstream=upstream, point=point, port=port, owner=dying)
    acknowledged = False
    with suppress(httpx.TransportError, ValueError):
        acknowledged = not is_refused(rig.agent("crashing", agent).call("memory_write", write))
    rig.guards["crashing"].process.wait(20)
    formed = store.trace(content)
    # The next worker of the same guard listens where the last one did, and finds what it left.
    audit = rig.worker("crashing", policy, upstream=upstream, port=port, owner=f"{name}:1")
    unsettled = asyncio.run(_unsettled(rig, dying))
    fates = [line["fate"] for line in events(audit, EVENT)]
    again = rig.agent("crashing", agent).call("memory_write", write)
    after = store.trace(content)
    rig.guards["crashing"].stop()
    spent = point in {"committed", *SENT_BEFORE}
    wrong = {
        "half formed": formed.rows != formed.vectors,
        "sent before it was committed": not spent and formed.writes > 0,
        "sent twice": after.writes > 1,
        "acknowledged and lost": acknowledged and formed.rows == 0,
        "lost": point in SENT_BEFORE and formed.rows == 0,
        "formed again under a spent nonce": spent and not is_refused(again),
        "fate not settled": unsettled or (point in {"committed", "answered"} and not fates),
        "fate is wrong": fates != [] and (Fate.ACKNOWLEDGED in fates) is not (formed.rows == 1),
    }
    return [what for what, is_so in wrong.items() if is_so]


async def _unsettled(rig: Rig, owner: str) -> bool:
    """Wait until nothing of a dead worker is in flight; return whether something stays so."""
    async with rig.client() as client:
        for _ in range(SETTLE_TRIES):
            waiting = await GateOperator(client).in_flight(-1.0)
            if all(one.fields.get("owner") != owner for one in waiting):
                return False
            await asyncio.sleep(0.2)
    return True


def races(rig: Rig, rounds: int, writers: int = 8) -> int:
    """Let writers on two guards race for one nonce, then for one item; count what is not one."""
    violations = 0
    with ThreadPoolExecutor(writers) as pool:
        for number in range(rounds):
            name = rig.fresh()
            agents = [rig.agent(("s4", "s4b")[i % 2], name) for i in range(writers)]
            contents = [f"race {number} writer {i} of {name}" for i in range(writers)]
            same = {"key": f"race-{name}", "memory_class": "L4", "nonce": f"race-{name}"}
            jobs = [
                pool.submit(agent.call, "memory_write", {**same, "content": content})
                for agent, content in zip(agents, contents, strict=True)
            ]
            granted = sum(not is_refused(job.result()) for job in jobs)
            formed = sum(rig.store.trace(content).writes for content in contents)
            violations += formed != 1 or granted != 1
    return violations


WRITERS: Final = 16
ROUNDS: Final = 5
WRITES: Final = 500
SIDES: Final = ("fast-gated", "fast-open")


def cost(rig: Rig, seconds: float) -> dict[str, float]:
    """Measure gated and ungated writes side by side, in alternating rounds.

    Both guards forward to an upstream that only answers, so that what differs is the gate.
    """
    agents = {side: rig.agent(side) for side in SIDES}
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    scripts = dict.fromkeys(SIDES, 0.0)
    for agent in agents.values():
        _timed(agent, 20)
    for _ in range(ROUNDS):
        for side, agent in agents.items():
            before = asyncio.run(_scripts(rig))
            times[side] += _timed(agent, WRITES // ROUNDS)
            scripts[side] += asyncio.run(_scripts(rig)) - before
    gated, ungated = (median(times[side]) * 1000 for side in SIDES)
    return {
        "gated_p50_ms": gated,
        "ungated_p50_ms": ungated,
        "added_p50_ms": gated - ungated,
        "round_trips": (scripts["fast-gated"] - scripts["fast-open"]) / WRITES,
        "writes_per_second": _rate(rig, seconds),
    }


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
            content = f"{agent.name} item {count}"
            arguments = {"key": content, "content": content, "memory_class": "L4"}
            count += not is_refused(agent.call("memory_write", arguments))
        return count

    with ThreadPoolExecutor(WRITERS) as pool:
        return sum(pool.map(write, agents)) / seconds


async def _scripts(rig: Rig) -> float:
    """Return how many scripts Redis has run."""
    async with rig.client() as client:
        stats = parse_info(await client.execute("INFO", "commandstats"))
    counted = stats.get("cmdstat_evalsha", "calls=0").split(",", 1)[0]
    return float(counted.removeprefix("calls="))
