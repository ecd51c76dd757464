"""What the paper left open: crashes at every step, and writers that race on two guards."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.loopback import free_port
from guard.adapters.memory_stores.recovery import EVENT
from guard.adapters.redis.connection import RedisClient
from guard.adapters.redis.endpoint import parse_endpoint
from guard.adapters.redis.gate_operator import GateOperator
from guard.core.memory import Fate
from guard.lab.write_path.rig import variant

if TYPE_CHECKING:
    from pathlib import Path

    from guard.lab.write_path.rig import Rig

POINTS: Final = ("asked", "staged", "recorded", "committed", "answered", "settled")
SETTLE_TRIES: Final = 300
"""Looks, a fifth of a second apart, until what a crash left must be settled."""
SENT_BEFORE: Final = frozenset({"answered", "settled"})
"""Points after which the store has the write."""


def crashes(rig: Rig, runs: int) -> tuple[int, list[dict[str, Any]]]:
    """Kill a guard at each step, bring it back, and count what must not be.

    Violations: a row without its vector; a write sent twice; a write that was acknowledged to the
    agent and is not there; one that was sent although it had not been committed; a fate that
    reading back does not settle; a retry under the same nonce that forms it once more.
    """
    violations, details = 0, []
    for point in POINTS:
        for number in range(runs):
            wrong = _crash(rig, point, number)
            violations += len(wrong)
            details.append({"point": point, "run": number, "violations": wrong})
    return violations, details


def _crash(rig: Rig, point: str, number: int) -> list[str]:
    store, port = rig.stores["protected"], free_port()
    upstream = rig.server_ports["protected"]
    principal = rig.used
    rig.used += 1
    content = f"crash at {point} number {number} of agent {principal}"
    nonce = f"crash-{point}-{number}-{principal}"
    write = {"key": nonce, "content": content, "memory_class": "L4", "nonce": nonce}
    policy = variant(rig, "crashing", {"memory:\n": "memory:\n  limits: {unknown_after: 1s}\n"})
    dying = f"{nonce}:0"
    rig.worker("crashing", policy, upstream=upstream, point=point, port=port, owner=dying)
    acknowledged = False
    with suppress(OSError, ValueError):
        acknowledged = not rig.agent("crashing", principal).call("memory_write", write).is_error
    rig.guards["crashing"].process.wait(20)
    formed = store.trace(content)
    # The next worker of the same guard listens where the last one did, and finds what it left.
    place = rig.worker("crashing", policy, upstream=upstream, port=port, owner=f"{nonce}:1")
    unsettled = asyncio.run(_unsettled(rig, dying))
    fates = _resolved(place / "audit.jsonl")
    again = rig.agent("crashing", principal).call("memory_write", write)
    after = store.trace(content)
    rig.guards["crashing"].stop()
    spent = point in {"committed", *SENT_BEFORE}
    wrong = {
        "half formed": formed.rows != formed.vectors,
        "sent before it was committed": not spent and formed.writes > 0,
        "sent twice": after.writes > 1,
        "acknowledged and lost": acknowledged and formed.rows == 0,
        "lost": point in SENT_BEFORE and formed.rows == 0,
        "formed again under a spent nonce": spent and not again.is_error,
        "fate not settled": unsettled or (point in {"committed", "answered"} and not fates),
        "fate is wrong": fates != [] and (Fate.ACKNOWLEDGED in fates) is not (formed.rows == 1),
    }
    return [name for name, is_so in wrong.items() if is_so]


async def _unsettled(rig: Rig, owner: str) -> bool:
    """Wait until nothing of a dead worker is in flight; return whether something stays so."""
    client = RedisClient(parse_endpoint(rig.redis), timeout=5.0)
    try:
        for _ in range(SETTLE_TRIES):
            waiting = await GateOperator(client).in_flight(-1.0)
            if all(one.fields.get("owner") != owner for one in waiting):
                return False
            await asyncio.sleep(0.2)
    finally:
        await client.aclose()
    return True


def _resolved(audit: Path) -> list[str]:
    """Return the fates that the guard found by itself, as it has put them on record."""
    lines = [json.loads(line) for line in audit.read_text(encoding="utf-8").splitlines()]
    return [line["fate"] for line in lines if line["event"] == EVENT]


def races(rig: Rig, rounds: int, writers: int = 8) -> tuple[int, int]:
    """Let writers on two guards race for one nonce, then for one item; count what is not one.

    Returns:
        Violations, and how many rounds were played.
    """
    store = rig.stores["protected"]
    violations = 0
    with ThreadPoolExecutor(writers) as pool:
        for number in range(rounds):
            principal = rig.used
            rig.used += 1
            agents = [rig.agent(("s4", "s4b")[i % 2], principal) for i in range(writers)]
            contents = [f"race {number} writer {i} of {principal}" for i in range(writers)]
            jobs = [
                pool.submit(
                    agent.call,
                    "memory_write",
                    {
                        "key": f"race-{principal}",
                        "content": content,
                        "memory_class": "L4",
                        "nonce": f"race-{principal}",
                    },
                )
                for agent, content in zip(agents, contents, strict=True)
            ]
            answers = [job.result() for job in jobs]
            formed = sum(store.trace(content).writes for content in contents)
            granted = sum(not answer.is_error for answer in answers)
            violations += formed != 1 or granted != 1
    return violations, rounds
