"""Runs judged by a policy, in process, and the figures over their calls.

What `guard traces replay` does, with its lines kept by call.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from guard.core.model import Integrity, ToolCall
from guard.core.policy import Action, Policy
from guard.detectors import DetectorResources, create_detectors
from guard.provenance.approvals import Approvals, Grant, Scope
from guard.provenance.errands import KIND, LONGEST
from guard.provenance.imports import ImportedItem
from guard.replay.reports import Check
from guard.replay.run import Replay, fresh_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from guard.core.ports import Detector
    from guard.inference.onnx import OnnxModel
    from guard.replay.traces import Call, Run
    from guard.store.store import RedisSessionStore

FLAGGED = frozenset({"ask", "block"})
"""Actions that keep a call from being forwarded without a person's word."""


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """One recorded call and the line that the replay wrote for it."""

    run: Run
    call: Call
    line: dict[str, Any]

    @property
    def flagged(self) -> bool:
        """True where the call was asked about or blocked."""
        return self.line["action"] in FLAGGED

    @property
    def blocked(self) -> bool:
        """True where the call was refused outright."""
        return bool(self.line["action"] == "block")

    @property
    def tainted(self) -> bool:
        """True where a stopping reason says: derived from untrusted text."""
        return any(
            reason["code"] == "provenance_tainted" and reason["action"] in FLAGGED
            for reason in self.line["reasons"]
        )

    @property
    def names_call(self) -> bool:
        """True where a stopping reason gives the index of the call that a value came from."""
        return any(
            isinstance(place.get("call"), int | str)
            for reason in self.line["reasons"]
            if reason["action"] in FLAGGED
            for evidence in [reason.get("evidence", {})]
            for place in (evidence, *evidence.get("targets", ()))
        )


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """One run with its judged calls, in order."""

    run: Run
    calls: tuple[JudgedCall, ...]

    @property
    def labels(self) -> dict[str, Any]:
        """The ground truth of the run."""
        return self.run.labels


def _items(path: Path) -> list[ImportedItem]:
    labels = {label.name.lower(): label for label in Integrity}
    return [
        ImportedItem(item["store"], item["value"], labels[item["label"]])
        for item in json.loads(path.read_text(encoding="utf-8"))
    ]


class AnsweredReplay(Replay):
    """A replay in which a person answers every question with yes, for the errand.

    What no errand grant covers is approved once, as the recording did.
    """

    def __init__(
        self, policy: Policy, store: RedisSessionStore, detectors: Sequence[Detector], **more: Any
    ) -> None:
        super().__init__(policy, store, detectors, **more)
        self._policy, self._store = policy, store
        self._approvals = Approvals(self.seal)

    async def judged(self, call: ToolCall) -> Any:
        """Return one call with its verdict, after which its question is answered."""
        traced, verdict = found = await super().judged(call)
        if verdict.action is Action.ASK:
            [(asked, _)] = self._approvals.requests(self._policy, [(traced, verdict)])
            request = self._approvals.read(call.identity.tenant, call.id, asked.entries[0][1])
            if request.coverable and request.errand:
                grant = Grant(Scope.ERRAND, call.at + LONGEST, "person")
                writes = self._approvals.answer(request, call.at, grant)
                given = [one for one in writes if one.area.kind == KIND]
                await self._store.note(call.identity, given)
        return found


@dataclass(frozen=True, slots=True)
class Bench:
    """Inputs of a replay besides runs and a policy."""

    redis: str
    """URL of the Redis to use."""
    models: dict[str, OnnxModel]
    advance: Callable[[], object] = lambda: None
    """Called after each run."""

    async def judge(
        self,
        runs: Sequence[Run],
        policy: Policy,
        *,
        memory: Path | None = None,
        answered: bool = False,
    ) -> list[JudgedRun]:
        """Return the runs with a verdict for every call.

        Args:
            runs: judged from fresh state.
            policy: what to judge by.
            memory: values with labels that are in every run's store before it starts.
            answered: a person answers every question with yes, for the errand.

        Raises:
            StateError: the store cannot be used.
            ReplayError: the store failed on the way.
        """
        lines: list[str] = []
        asked = create_detectors(DetectorResources(models=self.models))
        async with fresh_store(self.redis, policy.limits) as store:
            engine = (AnsweredReplay if answered else Replay)(
                policy,
                store,
                asked,
                memory=_items(memory) if memory else (),
            )
            await engine.run(runs, lines.append, self.advance)
        answers = iter(lines)
        return [
            JudgedRun(
                run, tuple(JudgedCall(run, call, json.loads(next(answers))) for call in run.calls)
            )
            for run in runs
        ]


_Z = 1.96
"""Standard deviations of a two-sided 95 % interval."""
_EXAMPLES = 12
RESAMPLES = 2000


def wilson(hits: float, n: float) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a rate; ``n`` is at least 1.

    Runs of one model at temperature 0 repeat each other, so for them it is too narrow.
    """
    rate = hits / n
    centre = (rate + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def fraction(
    name: str, hits: int, n: int, target: str | None = None, reason: str = "nothing to count"
) -> Check:
    """Return a share with its interval, or the reason for which there is none."""
    if not n:
        return Check(id=name, value=None, unit="fraction", n=0, target=target, reason=reason)
    interval = wilson(hits, n)
    return Check(id=name, value=hits / n, unit="fraction", n=n, interval=interval, target=target)


def clustered(rows: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Return the mean of one figure per question and its 95 % percentile bootstrap interval."""
    values = np.asarray(rows, dtype=np.float64)
    rng = np.random.default_rng(0)
    means = [values[rng.integers(0, len(values), len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(values.mean()), (float(low), float(high))


def mean(
    name: str, rows: Sequence[float], target: str | None = None, unit: str = "fraction"
) -> Check:
    """Return the mean of one figure per question, with its interval."""
    if not len(rows):
        return Check(id=name, value=None, unit=unit, reason="no data", target=target)
    value, interval = clustered(rows)
    if set(rows) <= {0.0} or set(rows) <= {1.0}:
        # Rows that are all alike say nothing of their spread when they are drawn again.
        interval = wilson(round(value * len(rows)), len(rows))
    return Check(id=name, value=value, unit=unit, n=len(rows), interval=interval, target=target)


def share(name: str, rows: Sequence[bool], target: str) -> Check:
    """Return the share of trials for which something is so, with its interval."""
    return fraction(name, sum(rows), len(rows), target, "no data")


@dataclass(slots=True)
class Tally:
    """Hits among things of one sort, by group, with examples of the exceptions.

    Attributes:
        wanted: what a thing should be; the examples are of things that are not.
    """

    wanted: bool
    hits: int = 0
    n: int = 0
    groups: dict[str, Counter[str]] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def add(self, name: str, group: str, *, hit: bool) -> None:
        """Count one thing."""
        self.n += 1
        self.hits += hit
        self.groups.setdefault(group, Counter()).update({"n": 1, "hits": int(hit)})
        if hit is not self.wanted and len(self.examples) < _EXAMPLES:
            self.examples.append(name)

    def rate(self, check: str, target: str) -> Check:
        """Return the figure as a fraction."""
        return fraction(check, self.hits, self.n, target)

    def count(self, check: str, unit: str, target: str | None) -> Check:
        """Return the figure as a count."""
        return Check(id=check, value=self.hits, unit=unit, n=self.n, target=target)

    def detail(self) -> dict[str, Any]:
        """Return the groups and the exceptions."""
        groups = {name: dict(counts) for name, counts in sorted(self.groups.items())}
        return {"groups": groups, "examples": self.examples}
