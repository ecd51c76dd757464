"""Open-loop replay: recorded runs through the same service, store and models as live traffic.

Open-loop means that the recording is what happened: a call the policy would have refused still
counts as executed, the clock is the trace's own, and every replay starts from fresh state, in a
namespace of its own that is removed at the end.  Ground truth (``labels``) is never read here.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from guard.core import metrics
from guard.core.calls import ClassifiedCall, ToolResult
from guard.core.errors import GuardError
from guard.core.model import ROLES, Identity, Json, PrincipalRung, SessionRung, ToolCall, UserPrompt
from guard.core.policy import Action, Policy, Reason, Verdict
from guard.memory.write_path import Staging, WritePath
from guard.pipeline.decision_log import Records
from guard.pipeline.guard import Guard
from guard.pipeline.outcome import JudgedCall, JudgeRequest
from guard.pipeline.stores import Stores
from guard.provenance.seal import KEY_BYTES, Seal
from guard.store.ledger import RedisLedger
from guard.store.staging import RedisStaging
from guard.store.store import RedisSessionStore, fresh_store
from guard.telemetry.audit_log import NoAuditLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from guard.core.ports import Detector, LedgerStore, SessionStore
    from guard.provenance.imports import ImportedItem
    from guard.replay.traces import Call, Run


__all__ = ["CHUNK", "CONCURRENCY", "PROTOCOL", "Replay", "ReplayError", "Summary", "fresh_store"]

CONCURRENCY: Final = 32
"""Principals replayed at the same time; the calls of one principal are always sequential."""
CHUNK: Final = 256
"""Runs read ahead; verdicts leave in input order, so this many are held at most."""
PROTOCOL: Final = "trace"


class ReplayError(GuardError):
    """A replay that ended early or whose verdicts do not stand for the policy."""


@dataclass
class ErrorCounter(metrics.Metrics):
    """Metrics of a replay: errors by stage, nothing else."""

    errors: Counter[str] = field(default_factory=Counter)

    def count(self, metric: metrics.Counter, *labels: str) -> None:
        """Count an error by its stage."""
        if metric is metrics.ERRORS:
            self.errors[labels[0]] += 1


@dataclass(slots=True)
class Summary:
    """Counts of a replay."""

    runs: int = 0
    actions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Calls by role and action."""

    @property
    def calls(self) -> int:
        """Calls judged."""
        return self.actions.total()

    def rows(self) -> list[tuple[str, list[int]]]:
        """Return a row per role that occurred: its calls by action, weakest action first."""
        rows = [
            (role.value, [self.actions[role.value, action.label] for action in Action])
            for role in ROLES
        ]
        return [(role, counts) for role, counts in rows if any(counts)]


class Replay:
    """One replay: a guard around fresh state, fed with runs.

    Args:
        policy: what to judge by.
        store: fresh state, as :func:`fresh_store` gives it.
        detectors: as in live traffic.
        memory: what every run's memory held before it: store, text and label of each item.
    """

    def __init__(
        self,
        policy: Policy,
        store: RedisSessionStore,
        detectors: Sequence[Detector],
        memory: Sequence[ImportedItem] = (),
    ) -> None:
        self._memory = tuple(memory)
        self._metrics = ErrorCounter()
        self.seal = seal = Seal(secrets.token_bytes(KEY_BYTES))
        """Key of the records that the replay stores."""
        staging = None
        if policy.memory is not None:
            staging = RedisStaging(store.client, namespace=store.namespace, seal=seal)
        self._guard = offline_guard(
            policy,
            store,
            detectors,
            staging=staging,
            seal=seal,
            metrics=self._metrics,
            ledger=RedisLedger(store),
            open_loop=True,
        )
        self._clocks: dict[str, float] = {}
        """Time of the last call of each principal; a call without one is a second later."""
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def run(
        self,
        runs: Iterable[Run],
        emit: Callable[[str], object],
        advance: Callable[[], object] = lambda: None,
    ) -> Summary:
        """Judge every call of every run; return the counts.

        Args:
            runs: read as needed, :data:`CHUNK` at a time.
            emit: takes one JSON line per call (with its newline), in input order.
            advance: called after each run.

        Raises:
            TraceError: from ``runs``.
            ReplayError: the state store failed, so the verdicts say nothing about the policy.
        """
        summary = Summary()
        stream = iter(runs)
        while chunk := list(islice(stream, CHUNK)):
            chains: dict[str, list[int]] = {}
            for position, run in enumerate(chunk):
                chains.setdefault(run.owner, []).append(position)
            lines: list[list[dict[str, Json]]] = [[] for _ in chunk]
            await asyncio.gather(
                *(self._chain(chunk, chain, lines, advance) for chain in chains.values())
            )
            for judged in lines:
                summary.runs += 1
                for line in judged:
                    summary.actions[line["role"], line["action"]] += 1
                    emit(json.dumps(line, allow_nan=False) + "\n")
            if self._metrics.errors["state"]:
                raise ReplayError(
                    "the session store failed during the replay, check it and replay again"
                )
        return summary

    async def _chain(
        self,
        chunk: list[Run],
        positions: list[int],
        lines: list[list[dict[str, Json]]],
        advance: Callable[[], object],
    ) -> None:
        """Replay the runs of one principal, in file order."""
        async with self._slots:
            for position in positions:
                run = chunk[position]
                heard: set[str] = set()
                if self._memory:
                    start = run.calls[0].ts if run.calls and run.calls[0].ts is not None else 0.0
                    await self._guard.notes.memory(run.owner, self._memory, start)
                for call in run.calls:
                    if call.session not in heard:
                        heard.add(call.session)
                        await self._hear(run, call)
                    later = self._clocks.get(run.owner, 0.0) + 1.0
                    at = self._clocks[run.owner] = later if call.ts is None else call.ts
                    lines[position].append(await self._judge(run, call, at))
                advance()

    async def _hear(self, run: Run, call: Call) -> None:
        """Note the prompts of a session, before its first call."""
        for prompt in run.prompts:
            if prompt.session == call.session:
                said = UserPrompt(prompt.text, prompt.recipients, prompt.hosts, prompt.attachments)
                await self._guard.notes.prompt(_identity(run, call), said, call.ts or 0.0)

    async def judged(self, call: ToolCall) -> JudgedCall:
        """Return one call with its verdict."""
        return await judge_alone(self._guard, call)

    async def _judge(self, run: Run, call: Call, at: float) -> dict[str, Json]:
        traced, verdict = await self.judged(recorded_call(run, call, at))
        if verdict.action is Action.ASK and traced.context is not None:
            # It was carried out: somebody approved it.
            traced = replace(traced, context=replace(traced.context, granted=True))
        await self._guard.observe(ToolResult(traced, call.result, at))
        return _line(run, call, traced.classified, verdict)


def recorded_call(run: Run, call: Call, at: float) -> ToolCall:
    """Return a call of a run as the guard would have been asked about it."""
    return ToolCall(
        id=f"{run.run_id}:{call.i}",
        identity=_identity(run, call),
        tool=call.tool,
        arguments=call.args,
        protocol=call.protocol or PROTOCOL,
        at=at,
        server=call.server,
        upstream=call.upstream,
        index=call.i,
    )


def _identity(run: Run, call: Call) -> Identity:
    """Return who makes a recorded call: agents of a run are principals that share its memories."""
    agent = run.owner if call.agent is None else f"{run.owner}/{call.agent}"
    return Identity(
        principal=call.principal or agent,
        # Recordings number their sessions from 0, so a session is named by its run too.
        session=json.dumps([run.run_id, call.session]),
        tenant=run.owner,
        principal_rung=PrincipalRung.RECORDED,
        session_rung=SessionRung.RECORDED,
    )


def _line(run: Run, call: Call, classified: ClassifiedCall, verdict: Verdict) -> dict[str, Json]:
    """Return the output of one call; ``action`` is what the policy decides, in monitor mode too."""
    return {
        "run_id": run.run_id,
        "i": call.i,
        "session": call.session,
        "tool": call.tool,
        "role": classified.role.value,
        "action": verdict.action.label,
        "mode": verdict.mode.value,
        "rules": list(dict.fromkeys(reason.rule for reason in verdict.reasons if reason.rule)),
        "score": verdict.score,
        "reasons": [_reason(reason) for reason in verdict.reasons],
        **({"remedies": [one.document() for one in verdict.remedies]} if verdict.remedies else {}),
    }


def _reason(reason: Reason) -> dict[str, Json]:
    document: dict[str, Json] = {
        "code": reason.code,
        "detail": reason.detail,
        "rule": reason.rule,
        "action": reason.action.label,
    }
    if evidence := reason.evidence:
        document["evidence"] = evidence
    if reason.remedy:
        document["remedy"] = reason.remedy
    return document


def offline_guard(  # noqa: PLR0913  (it joins the parts of one guard)
    policy: Policy,
    store: SessionStore,
    detectors: Sequence[Detector],
    *,
    staging: Staging | None,
    seal: Seal,
    metrics: metrics.Metrics,
    ledger: LedgerStore | None = None,
    open_loop: bool = False,
) -> Guard:
    """Return a guard that writes no audit log.

    Args:
        policy: in force.
        store: of trajectories and labels.
        detectors: as in live traffic.
        staging: of memory writes; None leaves the memory gate out.
        seal: key of the labels.
        metrics: counts errors.
        ledger: structure of graph memories.
        open_loop: a refused call is not marked, because the recording executed it.
    """
    audit, memory = NoAuditLog(), None
    if staging is not None:
        memory = WritePath(
            policy=policy,
            staging=staging,
            audit=audit,
            metrics=metrics,
        )
    return Guard(
        policy,
        Stores(store, ledger=ledger),
        Records(audit, metrics),
        detectors=detectors,
        memory=memory,
        seal=seal,
        open_loop=open_loop,
    )


async def judge_alone(guard: Guard, call: ToolCall) -> JudgedCall:
    """Judge a call whose message is not forwarded; its server offers the tool."""
    guard.calls.claim(call)
    [judged] = await guard.judge(JudgeRequest([call], lambda _: None))
    return judged


async def find_flips(
    policies: tuple[Policy, Policy],
    runs: Callable[[], Iterable[Run]],
    url: str,
    detectors: Sequence[Detector],
) -> tuple[list[dict[str, Any]], int]:
    """Return the calls that flip, in the order of the runs, and how many calls there were.

    Args:
        policies: the one before, the one after.
        runs: yields the recorded runs; asked once for each policy.
        url: a Redis for the state of the replays.
        detectors: as in live traffic.
    """
    old: list[tuple[str, tuple[str, ...]]] = []
    flips: list[dict[str, Any]] = []
    position = 0

    def remember(text: str) -> None:
        line = json.loads(text)
        old.append((line["action"], _deciding(line)))

    def compare(text: str) -> None:
        nonlocal position
        line = json.loads(text)
        action, rules = old[position]
        position += 1
        if line["action"] != action:
            flips.append(
                {
                    **{name: line[name] for name in ("run_id", "i", "session", "tool", "role")},
                    "before": action,
                    "before_by": list(rules),
                    "after": line["action"],
                    "after_by": list(_deciding(line)),
                }
            )

    for policy, emit in zip(policies, (remember, compare), strict=True):
        async with fresh_store(url, policy.limits) as store:
            await Replay(policy, store, detectors).run(runs(), emit)
    return flips, len(old)


def _deciding(line: dict[str, Any]) -> tuple[str, ...]:
    """Return the rules, or codes without one, whose effect is the action."""
    winning = (reason for reason in line["reasons"] if reason["action"] == line["action"])
    return tuple(dict.fromkeys(reason["rule"] or reason["code"] for reason in winning))


def sentence(flip: dict[str, Any]) -> str:
    """Return a flip as one line for a person."""
    return (
        f"{flip['run_id']} call {flip['i']} {flip['tool']} ({flip['role']}): "
        f"{flip['before']} ({', '.join(flip['before_by'])}) -> "
        f"{flip['after']} ({', '.join(flip['after_by'])})"
    )
