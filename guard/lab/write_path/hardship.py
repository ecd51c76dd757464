"""What the paper left open: crashes at every step, and writers that race on two guards."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.read_back import resolve
from guard.adapters.redis.connection import RedisClient
from guard.adapters.redis.endpoint import parse_endpoint
from guard.adapters.redis.staging.operator import GateOperator
from guard.core.errors import GuardError
from guard.core.memory import Fate
from guard.lab.bench_processes import free_port
from guard.lab.write_path.rig import POLICY, Agent
from guard.policies_io import load_policies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.memory_policy import MemoryPolicy
    from guard.lab.write_path.rig import Rig

POINTS: Final = ("asked", "staged", "recorded", "committed", "answered", "settled")
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
    rig.guard("crashing", POLICY, upstream=upstream, point=point, port=port)
    acknowledged = False
    with suppress(OSError, ValueError):
        acknowledged = not rig.agent("crashing", principal).call("memory_write", write).is_error
    rig.processes["crashing"].wait(20)
    formed = store.trace(content)
    # The next guard listens where the last one did.
    rig.guard("crashing", POLICY, upstream=upstream, port=port)
    fates = dict(asyncio.run(_resolve(rig)))
    again = rig.agent("crashing", principal).call("memory_write", write)
    after = store.trace(content)
    rig.processes["crashing"].terminate()
    rig.processes["crashing"].wait(20)
    spent = point in {"committed", *SENT_BEFORE}
    wrong = {
        "half formed": formed.rows != formed.vectors,
        "sent before it was committed": not spent and formed.writes > 0,
        "sent twice": after.writes > 1,
        "acknowledged and lost": acknowledged and formed.rows == 0,
        "lost": point in SENT_BEFORE and formed.rows == 0,
        "formed again under a spent nonce": spent and not again.is_error,
        "fate not settled": point in {"committed", "answered"} and not fates,
        "fate is wrong": any(
            (fate is Fate.ACKNOWLEDGED) is not (formed.rows == 1) for fate in fates.values()
        ),
    }
    return [name for name, is_so in wrong.items() if is_so]


async def _resolve(rig: Rig) -> list[tuple[str, Fate]]:
    server = Agent(rig.server_ports["protected"])

    async def ask(tool: str, arguments: Mapping[str, Any]) -> str:
        return server.call(tool, dict(arguments)).text

    client = RedisClient(parse_endpoint(rig.redis), timeout=5.0)
    try:
        return await resolve(GateOperator(client), memory_of(), ask, -1.0)
    finally:
        await client.aclose()


def memory_of() -> MemoryPolicy:
    """Return the gate's policy of the benchmark."""
    memory = load_policies([POLICY]).memory
    if memory is None:
        msg = "the benchmark's policy has no memory section"
        raise GuardError(msg)
    return memory


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
