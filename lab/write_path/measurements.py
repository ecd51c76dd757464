"""Measurements beside the attacks: normal writes, crashes, races, cost, recorded saves."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from guard.core.calls import ToolResult
from guard.core.json_values import strings_in_order
from guard.core.memory import Fate
from guard.core.model import Identity, Json, PrincipalRung, SessionRung, ToolCall
from guard.memory.write_path import WritePath
from guard.pipeline.decision_log import Records
from guard.pipeline.guard import Guard
from guard.pipeline.outcome import JudgeRequest
from guard.pipeline.stores import Stores
from guard.policy import load_policies
from guard.processes.loopback import free_port
from guard.replay.traces import Run, TraceClock, read_traces
from guard.store.memory_stores.recovery import EVENT
from guard.store.staging import GateOperator, RedisStaging
from guard.store.store import RedisSessionStore, parse_info
from guard.telemetry.metrics import PrometheusMetrics
from lab.write_path.rig import Agent, Rig, variant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.policy import Policy
    from guard.core.ports import DecisionRecord

WAYS: Final = ("inferred", "read", "said")
WRITES_EACH: Final = 20
"""Writes of one agent."""


def normal_writes(rig: Rig, texts: Sequence[str]) -> dict[str, dict[str, int]]:
    """Write texts in turn in each way, and return writes and refusals by way."""
    counts = {way: {"writes": 0, "refused": 0} for way in WAYS}
    for start in range(0, len(texts), WRITES_EACH):
        way = WAYS[start // WRITES_EACH % len(WAYS)]
        number = rig.used
        agent = rig.agent("s4")
        for offset, text in enumerate(texts[start : start + WRITES_EACH]):
            key = f"normal-{start + offset}"
            if way != "inferred":
                rig.stores["protected"].add_document(key, f"Mail of the day: {text}")
                agent.call("fetch_document", {"document_id": key})
            if way == "said":
                rig.say("s4", f"agent{number}", agent.session, text)
            target = "L4" if way == "read" else "L3"
            write = {"key": key, "content": text, "memory_class": target, "nonce": key}
            counts[way]["writes"] += 1
            counts[way]["refused"] += agent.call("memory_write", write).is_error
    return counts


POINTS: Final = ("asked", "staged", "recorded", "committed", "answered", "settled")
SETTLE_TRIES: Final = 300
"""Looks, a fifth of a second apart, until what a crash left must be settled."""
SENT_BEFORE: Final = frozenset({"answered", "settled"})
"""Points after which the store has the write."""


def crashes(rig: Rig, runs: int) -> tuple[int, list[dict[str, Any]]]:
    """Kill a guard at each step, bring it back, and count what must not be.

    Violations:

    * a row without its vector
    * a write that was sent twice
    * a write that was acknowledged to the agent and is missing
    * a write that was sent although it had not been committed
    * a fate that reading back does not settle
    * a retry under the same nonce that forms the write again
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
    async with rig.client() as client:
        for _ in range(SETTLE_TRIES):
            waiting = await GateOperator(client).in_flight(-1.0)
            if all(one.fields.get("owner") != owner for one in waiting):
                return False
            await asyncio.sleep(0.2)
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
    async with rig.client() as client:
        stats = parse_info(await client.execute("INFO", "commandstats"))
    counted = stats.get("cmdstat_evalsha", "calls=0").split(",", 1)[0]
    return float(counted.removeprefix("calls="))


TRACES_POLICY: Final = Path(__file__).with_name("traces.yaml")
SAVE: Final = "memory_save_fact"
AT_ONCE: Final = 32


@dataclass(slots=True)
class Lines:
    """Keeps what the gate wrote about each candidate."""

    memory: dict[str, Mapping[str, Json]] = field(default_factory=dict)

    def decision(self, record: DecisionRecord) -> None:
        """Drop a decision."""

    def event(self, name: str, fields: Mapping[str, Json]) -> None:
        """Keep the line of a candidate."""
        if name == "guard.memory":
            self.memory[str(fields["decision_id"])] = fields


@dataclass(frozen=True, slots=True)
class Saved:
    """Counts over the saves of recorded runs."""

    poisoned: int
    refused: int
    tainted: int
    """Poisoned saves that were committed as tainted L4."""
    benign: int
    benign_committed: int


def play_recorded(traces: Path, redis: str, label: str) -> Saved:
    """Send every recorded call through the gate in its order, and count the saves."""
    return asyncio.run(_play(traces, redis, label))


def recorded_guard(policy: Policy, store: RedisSessionStore, lines: Lines, namespace: str) -> Guard:
    """Return a guard with a memory gate whose audit lines are kept."""
    metrics = PrometheusMetrics(policy)
    return Guard(
        policy,
        Stores(store),
        Records(lines, metrics),
        memory=WritePath(
            policy=policy,
            staging=RedisStaging(store.client, namespace=namespace),
            audit=lines,
            metrics=metrics,
        ),
    )


async def _play(traces: Path, redis: str, label: str) -> Saved:
    policy = load_policies([TRACES_POLICY])
    lines = Lines()
    store = RedisSessionStore.at(redis, namespace=label, limits=policy.limits, timeout=10.0)
    guard = recorded_guard(policy, store, lines, label)
    slots = asyncio.Semaphore(AT_ONCE)
    verdicts: dict[str, bool] = {}

    async def one(run: Run) -> None:
        async with slots:
            await _run(guard, run, verdicts)

    try:
        await asyncio.gather(*(one(run) for run in read_traces([traces])))
    finally:
        await store.aclose()
    return _count(verdicts, lines)


async def _run(guard: Guard, run: Run, verdicts: dict[str, bool]) -> None:
    clock, begun = TraceClock(), set[str]()
    recipients = [str(item).casefold() for item in run.labels.get("attacker_recipients", [])]
    for call in run.calls:
        at = clock.at(call)
        identity = Identity(
            principal=run.run_id,
            session=call.session,
            tenant=run.run_id,
            principal_rung=PrincipalRung.RECORDED,
            session_rung=SessionRung.RECORDED,
        )
        if call.session not in begun:
            begun.add(call.session)
            for prompt in run.prompts:
                if prompt.session == call.session:
                    await guard.notes.prompt(identity, prompt.text, at)
        ident = f"{run.run_id}:{call.i}"
        request = ToolCall(ident, identity, call.tool, call.args, "trace", at)
        [(classified, verdict)] = await guard.judge(JudgeRequest([request]))
        if verdict.enforced.forwards:
            await guard.observe(ToolResult(classified, call.result, at))
        if call.tool == SAVE and any(strings_in_order(call.args)):  # some records keep no text
            text = str(call.args).casefold()
            verdicts[ident] = any(name in text for name in recipients)


def _count(verdicts: Mapping[str, bool], lines: Lines) -> Saved:
    poisoned = refused = tainted = benign = committed = 0
    for ident, is_poisoned in verdicts.items():
        line = lines.memory.get(ident, {})
        commits = line.get("outcome") == "commit"
        if is_poisoned:
            poisoned += 1
            refused += not commits
            tainted += commits and bool(line["tainted"]) and line["memory_class"] == "L4"
        else:
            benign += 1
            committed += commits
    return Saved(poisoned, refused, tainted, benign, committed)
