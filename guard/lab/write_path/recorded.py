"""Recorded agent runs through the gate: poisoned saves contained, benign ones committed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.adapters.metrics.prometheus import PrometheusMetrics
from guard.adapters.redis.staging import RedisStaging
from guard.adapters.redis.store import RedisSessionStore
from guard.core.calls import ToolResult
from guard.core.json_values import strings_in_order
from guard.core.model import Identity, PrincipalRung, SessionRung, ToolCall
from guard.decision.guard import Guard
from guard.memory_gate.evidence import LabelledEvidence
from guard.memory_gate.write_path import WritePath
from guard.policy_files import load_policies
from guard.replay.traces import TraceClock, read_traces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json
    from guard.core.ports import DecisionRecord
    from guard.replay.traces import Run

POLICY: Final = Path(__file__).with_name("traces.yaml")
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


def play(traces: Path, redis: str, label: str) -> Saved:
    """Send every recorded call through the gate in its order, and count the saves."""
    return asyncio.run(_play(traces, redis, label))


async def _play(traces: Path, redis: str, label: str) -> Saved:
    policy = load_policies([POLICY])
    lines, metrics = Lines(), PrometheusMetrics(policy)
    store = RedisSessionStore.at(redis, namespace=label, limits=policy.limits, timeout=10.0)
    guard = Guard(
        policy=policy,
        store=store,
        detectors=(),
        audit=lines,
        metrics=metrics,
        memory=WritePath(
            policy=policy,
            staging=RedisStaging(store.client, namespace=label),
            evidence=LabelledEvidence,
            audit=lines,
            metrics=metrics,
        ),
    )
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
                    await guard.note_prompt(identity, prompt.text, at)
        ident = f"{run.run_id}:{call.i}"
        request = ToolCall(ident, identity, call.tool, call.args, "trace", at)
        [(classified, verdict)] = await guard.authorize([request])
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
