"""``guard lab bench chaos``: 16 agents work while parts are killed, stopped, cut off and filled up.

The order of faults comes from a seed.  Agents read pages that name an outside address, and save and
recall texts that name one.  They write to people inside and to addresses that they have read, and
ask a person for letters.  The policy lets them write to strangers, so a label that is lost becomes
a mail that leaves.  The next part is broken as soon as calls are served again, on any way.

The run is made of segments of :data:`SEGMENT` faults, each with everything started anew; after each
:func:`lab.chaos.history.violations` reads what all sides saw.  A long run keeps its segments
in a file and goes on from there.

``relaxed`` states that a failover may lose what the replica had not received.  So there, and only
there, a loss is not a violation where it was acknowledged just before a failover or within it.
"""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from guard.core.errors import GuardError
from guard.replay.reports import Check, Report, machine
from guard.settings import Durability
from lab.chaos.agents import NOW, Agent, Deployment
from lab.chaos.history import Event, Saw, Violation, violations
from lab.chaos.isolation import Isolation
from lab.chaos.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


AGENTS: Final = 16
PROBES: Final = ("probe0", "probe1")
"""Principals that ask whether calls are served again, one for each way."""
SEGMENT: Final = 50
"""Faults between two looks at what all sides saw."""
EACH: Final = 40
"""Faults of each kind in a full run."""
SHOWN: Final = 24
"""Events that are shown of a violation."""
LOSSES: Final = frozenset({"audit_line_lost", "grant_lost", "tainted_became_clean", "commit_lost"})
"""Rules that are broken where something acknowledged is gone."""
EVERY_KIND: Final = (
    *("worker kill -9", "worker SIGSTOP", "supervisor kill -9", "supervisor SIGSTOP"),
    *("redis primary kill -9", "redis primary SIGSTOP", "redis replica kill -9"),
    *("redis replica SIGSTOP", "sentinel kill -9", "sentinel SIGSTOP", "failover"),
    *("envoy kill -9", "envoy SIGSTOP", "decision service kill -9", "decision service SIGSTOP"),
    *("upstream kill -9", "upstream SIGSTOP", "partition", "slow link"),
    *("disk full under audit", "disk full under redis", "disk full under recordings"),
    *("clock jumps", "certificate expired", "poisoned reload"),
)
"""Kinds of faults; some need root on Linux, an Envoy, a C compiler for the clock."""
_LOSING: Final = frozenset({"redis primary kill -9", "redis primary SIGSTOP", "failover"})
"""Faults in which a replica takes over that may lack what the primary has acknowledged."""
_SERVE_SECONDS: Final = 90.0
_TRIES: Final = 20
"""A machine that was stopped itself has let the time pass, and not the tries."""
_POLL: Final = 0.05
LAG: Final = 1.0
"""Seconds before such a fault from which on a busy machine's replica may lack writes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The faults of a run and their order.

    Args:
        faults: how many; None: :data:`EACH` of each kind that can be had.
        seed: of their order and of what agents do.
        kinds: only these; all that can be had where there are none.
        durability: of the guards' writes.
    """

    faults: int | None
    seed: int
    kinds: tuple[str, ...] = ()
    durability: Durability = Durability.REPLICATED

    def schedule(self, here: dict[str, Iterable[str]]) -> list[tuple[str, str]]:
        """Return kinds and variants, each kind as often as any other, give or take one.

        Args:
            here: kinds and variants that can be had.
        """
        drawn = random.Random(self.seed)  # noqa: S311  (a schedule, no secret)
        kinds = [kind for kind in here if not self.kinds or kind in self.kinds]
        variants = {}
        for kind in kinds:
            of = list(here[kind])
            drawn.shuffle(of)
            variants[kind] = itertools.cycle(of)
        faults = EACH * len(kinds) if self.faults is None else self.faults
        found: list[tuple[str, str]] = []
        while kinds and len(found) < faults:
            drawn.shuffle(kinds)
            found += [(kind, next(variants[kind])) for kind in kinds]
        return found[:faults]


class Broken(BaseModel):
    """A fault, and how long it was until calls were served again."""

    kind: str
    variant: str
    seconds: float
    """From its beginning, through its own length, until the first call of each way was served."""


class Segment(BaseModel):
    """The results of one segment of a run."""

    plan: Plan
    planned: int
    """Faults of the whole run."""
    not_here: list[str]
    """Kinds that cannot be had on this machine."""
    broken: list[Broken] = []
    seen: dict[str, int] = {}
    """Number of observations by each side."""
    violations: list[dict[str, Any]] = []
    """Events that are impossible if the guard holds, each with its observations."""
    stated: dict[str, int] = {}
    """Rules that were broken as the durability setting states."""
    noticed: dict[str, int] = {}
    """Losses that the guards found by themselves."""


def bench_chaos(
    plan: Plan,
    *,
    minutes: float | None = None,
    kept: Path | None = None,
    progress: Callable[[str, float], object] = lambda _, __: None,
) -> Report:
    """Break things and check what happened.

    Args:
        plan: what is broken.
        minutes: no more faults after so long; None: however long it takes.
        kept: file of segments, one JSON line each, to which this run's are appended; a run of the
            same plan goes on behind those that are there.
        progress: told what is being broken, and which share is done.

    Raises:
        GuardError: what is around the guards does not start.
    """
    until = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    segments = _kept(kept, plan) if kept is not None else []
    isolation = Isolation()
    while not segments or sum(len(one.broken) for one in segments) < segments[-1].planned:
        if segments and time.monotonic() > until:
            break
        done = sum(len(one.broken) for one in segments)
        segments.append(_segment(plan, done, until, progress, isolation))
        if kept is not None:
            with kept.open("a", encoding="utf-8") as file:
                file.write(segments[-1].model_dump_json() + "\n")
    return _report(plan, segments)


def _kept(path: Path, plan: Plan) -> list[Segment]:
    """Return the segments of a plan that a file has; none where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [one for one in map(Segment.model_validate_json, lines) if one.plan == plan]


def _segment(
    plan: Plan,
    done: int,
    until: float,
    progress: Callable[[str, float], object],
    isolation: Isolation,
) -> Segment:
    """Start everything, cause the next faults of a plan, and check what was seen.

    What does not serve again, or cannot be mended, ends the segment as a violation.
    """
    unsure: list[tuple[float, float]] = []
    stop = threading.Event()
    names = [f"agent{n}" for n in range(AGENTS)]
    progress("starting", 0.0)
    with Stage(isolation, [*names, *PROBES], plan.durability) as stage:
        stage.begin()
        schedule = plan.schedule(dict(stage.faults))
        segment = Segment(
            plan=plan,
            planned=len(schedule),
            not_here=sorted(set(EVERY_KIND) - set(stage.faults)),
        )
        deployment = Deployment(stage.redis, stage.label_key, plan.durability)
        seed = plan.seed + 1000 * done
        agents = [
            Agent(name, stage.port_of(name), seed + n, stop, deployment)
            for n, name in enumerate(names)
        ]
        probes = [Agent(name, stage.port_of(name), seed, stop) for name in PROBES]
        probes = probes[: len(stage.ports)]
        for agent in agents:
            agent.start()
        for number, (kind, variant) in enumerate(schedule[done : done + SEGMENT], done):
            if time.monotonic() > until:
                segment.planned = done + len(segment.broken)
                break
            progress(f"{number + 1} of {len(schedule)}: {kind} {variant}", number / len(schedule))
            at = NOW()
            broken = _break(stage, kind, variant, probes)
            if plan.durability is Durability.RELAXED and kind in _LOSING:
                unsure.append((at - LAG, NOW()))
            segment.broken.append(broken)
            if broken.seconds < 0:
                call = f"{kind} {broken.variant}".strip()
                segment.violations.append({"rule": "did_not_serve_again", "call": call})
                break
        stop.set()
        for agent in agents:
            agent.join()
        _look(segment, stage, [*agents, *probes], unsure)
    return segment


def _break(stage: Stage, kind: str, variant: str, probes: Sequence[Agent]) -> Broken:
    """Cause a fault and wait until calls are served; its time is -1 where they never are."""
    began = time.monotonic()
    try:
        stage.faults[kind][variant]()
        for probe in probes:
            _until_served(probe)
    except GuardError as error:
        return Broken(kind=kind, variant=f"{variant}: {error}", seconds=-1.0)
    seconds = round(time.monotonic() - began, 3)
    return Broken(kind=kind, variant=variant, seconds=seconds)


def _until_served(probe: Agent) -> None:
    deadline, tries = time.monotonic() + _SERVE_SECONDS, 0
    while not probe.send_inside():
        tries += 1
        if time.monotonic() > deadline and tries > _TRIES:
            raise GuardError(f"calls of {probe.name} are not served again")
        time.sleep(_POLL)


def _look(
    segment: Segment,
    stage: Stage,
    agents: Sequence[Agent],
    unsure: list[tuple[float, float]],
) -> None:
    """Check the history of a segment for violations, and record the result.

    Args:
        segment: is completed.
        stage: everything that ran, still running.
        agents: with the probes.
        unsure: from when to when what was acknowledged may be lost, as the setting states.
    """
    events = [event for agent in agents for event in agent.events]
    asked = {event.call: event.to for event in events if event.saw is Saw.ASKED}
    refusals = {key: seen for agent in agents for key, seen in agent.refusals.items()}
    events += stage.seen(asked, refusals)
    for one in violations(events):
        if one.rule in LOSSES and one.is_within(unsure):
            segment.stated[one.rule] = segment.stated.get(one.rule, 0) + 1
        else:
            segment.violations.append(_shown(one, events))
    segment.seen = dict(Counter(event.saw.value for event in events))
    segment.noticed = dict(stage.noticed())


def _report(plan: Plan, segments: list[Segment]) -> Report:
    """Return the figures of all segments."""
    found = [one for segment in segments for one in segment.violations]
    times: dict[str, list[Broken]] = defaultdict(list)
    for one in (one for segment in segments for one in segment.broken if one.seconds >= 0):
        times[one.kind].append(one)
    seen, stated, noticed = (
        _total(getattr(segment, name) for segment in segments)
        for name in ("seen", "stated", "noticed")
    )
    lost = sum(stated.values()) + sum(one["rule"] in LOSSES for one in found)
    killed = [one.seconds for one in times.get("redis primary kill -9", []) if not one.variant]
    calls, counts = seen[Saw.ASKED.value], [len(some) for some in times.values()]
    return Report(
        name="chaos",
        machine=machine(),
        checks=[
            Check(id="chaos_violations", value=len(found), unit="count", n=calls, target="= 0"),
            Check(
                id="chaos_faults", value=sum(counts), unit="count", n=len(counts), target=">= 1000"
            ),
            Check(
                id="chaos_faults_of_each_kind",
                value=min(counts, default=0),
                unit="count",
                n=len(counts),
                target=f">= {EACH}",
            ),
            Check(id="lost_acknowledged", value=lost, unit="count", n=calls, target="= 0"),
            Check(id="lost_as_stated", value=sum(stated.values()), unit="count", n=calls),
            Check(
                id="failover_seconds",
                value=round(statistics.median(killed), 2) if killed else None,
                unit="seconds",
                n=len(killed),
                reason=None if killed else "no failover was drawn",
            ),
        ],
        details={
            **asdict(plan),
            "segments": len(segments),
            "violations": found[:20],
            "rules_broken": dict(Counter(one["rule"] for one in found)),
            "lost_as_stated": dict(stated),
            "events": dict(seen),
            "losses_noticed": dict(noticed),
            "not_here": segments[-1].not_here,
        },
    )


def _total(counts: Iterable[dict[str, int]]) -> Counter[str]:
    return sum(map(Counter[str], counts), Counter[str]())


def _shown(violation: Violation, events: list[Event]) -> dict[str, Any]:
    """Return a violation with the events of its call, or of the calls that a grant was for."""
    seen = [
        f"{event.at:.3f} {event.saw.value} {event.call} {event.to} {event.mark}"
        for event in sorted(events, key=lambda event: event.at)
        if violation.call in {event.call, event.to}
    ][:SHOWN]
    return {"rule": violation.rule, "call": violation.call, "seen": seen}
