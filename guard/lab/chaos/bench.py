"""``guard lab bench chaos``: 16 agents work while parts are killed, stopped, cut off and filled up.

The order of faults comes from a seed.  Agents read pages that name an outside address, save and
recall what names one, write to people inside and to addresses that they have read, and ask a person
for letters; the policy lets them write to strangers, so a label that is lost becomes a mail that
leaves.  Afterwards :func:`guard.lab.chaos.history.violations` reads what all sides saw.

``relaxed`` states that a failover may lose what the replica had not received.  So there, and only
there, what is lost is no violation where it was acknowledged just before a failover or within it.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.lab.chaos.agents import NOW, Agent, Person, told
from guard.lab.chaos.history import Event, Saw, violations
from guard.lab.chaos.isolation import Isolation
from guard.lab.chaos.stage import BEHIND, SETTLE, Stage
from guard.replay.reports import Check, Report, machine
from guard.settings import Durability

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.lab.chaos.history import Violation

AGENTS: Final = 16
PROBE: Final = "probe"
LOSSES: Final = frozenset({"audit_line_lost", "grant_lost", "tainted_became_clean"})
"""Rules that are broken where something acknowledged is gone."""
_SERVE_SECONDS: Final = 90.0
_POLL: Final = 0.05
_FAILOVERS: Final = ("redis primary kill -9, failover",)
_CUT_OFF: Final = "partition guard, primary | replica, sentinels"
_LOSING: Final = frozenset({*_FAILOVERS, BEHIND, _CUT_OFF})
"""Faults in which a replica takes over that may lack what the primary has acknowledged."""
LAG: Final = 1.0
"""Seconds before such a fault from which on a busy machine's replica may lack writes."""


def bench_chaos(
    *,
    faults: int,
    seed: int,
    minutes: float | None = None,
    kinds: Sequence[str] = (),
    durability: Durability = Durability.REPLICATED,
    progress: Callable[[str, float], object] = lambda _, __: None,
) -> Report:
    """Break things and check what happened.

    Args:
        faults: how many at most; every kind comes equally often.
        seed: of their order and of what agents do.
        minutes: no more faults after so long; None: however long it takes.
        kinds: only these; all that can be had here where there are none.
        durability: of the guard's writes.
        progress: told what is being broken, and which share is done.

    Raises:
        GuardError: the guard, or what is around it, does not come back.
    """
    drawn = random.Random(seed)  # noqa: S311  (a schedule, no secret)
    back: dict[str, list[float]] = defaultdict(list)
    unsure: list[tuple[float, float]] = []
    stop = threading.Event()
    names = [f"agent{n}" for n in range(AGENTS)]
    with Isolation() as isolation, Stage(isolation, [*names, PROBE], durability) as stage:
        stage.begin()
        person = Person(stage.redis, stage.label_key, durability)
        agents = [Agent(name, stage.port, seed + n, stop, person) for n, name in enumerate(names)]
        probe = Agent(PROBE, stage.port, seed, stop)
        for thread in (person, *agents):
            thread.start()
        began = time.monotonic()
        wanted = [kind for kind in stage.faults if not kinds or kind in kinds]
        schedule = _schedule(wanted, faults, drawn)
        for number, kind in enumerate(schedule):
            if minutes is not None and time.monotonic() - began > 60 * minutes:
                break
            progress(f"{number + 1} of {faults}: {kind}", number / faults)
            time.sleep(SETTLE)
            since, at = time.monotonic(), NOW()
            _break(stage, kind)
            _until_served(probe, kind, stage)
            back[kind].append(time.monotonic() - since)
            if durability is Durability.RELAXED and kind in _LOSING:
                unsure.append((at - LAG, NOW()))
        stop.set()
        person.asked.put(None)
        for thread in (person, *agents):
            thread.join()
        events = told((*agents, probe, person))
        asked = {event.call: event.to for event in events if event.saw is Saw.ASKED}
        refusals = {key: seen for agent in (*agents, probe) for key, seen in agent.refusals.items()}
        events += stage.seen(asked, refusals)
        further: dict[str, object] = {
            "durability": durability.value,
            "losses_noticed": dict(stage.noticed()),
            "audit_lines_cut_short": stage.cut_short(),
        }
        further["not_here"] = sorted(set(EVERY_KIND) - set(stage.faults))
    return _report(events, back, unsure, seed, further)


EVERY_KIND: Final = (
    *("worker kill -9", "worker SIGSTOP", "supervisor kill -9", "supervisor SIGSTOP"),
    *("redis primary kill -9, failover", BEHIND, "redis primary SIGSTOP", "redis primary slow"),
    *("redis replica kill -9", "redis replica SIGSTOP", "redis connections cut"),
    "redis kill -9, restart",
    *("sentinel kill -9", "sentinel SIGSTOP", "upstream kill -9", "upstream SIGSTOP"),
    *("upstream slow", "upstream certificate expired", "poisoned reload", "clock jumps"),
    *("partition guard | primary", _CUT_OFF),
    *("partition primary | replica", "partition guard | sentinels"),
    *("partition guard | upstream", "partition agents | guard"),
    *("disk full under audit", "disk full under redis", "disk full under recordings"),
)
"""Kinds of faults; some need root on Linux, the clock's a C compiler."""


def _schedule(kinds: Sequence[str], faults: int, drawn: random.Random) -> list[str]:
    """Return an order in which every kind has come as often as any other, give or take one."""
    found: list[str] = []
    while len(found) < faults:
        block = list(kinds)
        drawn.shuffle(block)
        found += block
    return found[:faults]


def _break(stage: Stage, kind: str) -> None:
    """Cause a fault.

    Raises:
        GuardError: what was to be mended is not.
    """
    try:
        stage.faults[kind]()
    except GuardError as error:
        msg = f"after `{kind}`: {error}; {stage.state()}"
        raise GuardError(msg) from error


def _until_served(probe: Agent, kind: str, stage: Stage) -> None:
    deadline = time.monotonic() + _SERVE_SECONDS
    while not probe.send_inside():
        if time.monotonic() > deadline:
            msg = f"after `{kind}` the guard did not serve again: {stage.state()}"
            raise GuardError(msg)
        time.sleep(_POLL)


def _report(
    events: list[Event],
    back: dict[str, list[float]],
    unsure: list[tuple[float, float]],
    seed: int,
    further: dict[str, object],
) -> Report:
    """Return the figures.

    Args:
        events: what all sides saw.
        back: seconds until calls were served again, of each fault by its kind.
        unsure: from when to when what was acknowledged may be lost, as the setting states.
        seed: of the run.
        further: details.
    """
    everything = violations(events)
    seen = Counter(event.saw.value for event in events)
    count = sum(map(len, back.values()))
    lost = [one for one in everything if one.rule in LOSSES]
    stated = [one for one in lost if one.is_within(unsure)]
    found = [one for one in everything if one not in stated]
    failover = [one for kind in _FAILOVERS for one in back.get(kind, [])]
    calls = seen[Saw.ASKED.value]
    return Report(
        name="chaos",
        machine=machine(),
        checks=[
            Check(id="chaos_violations", value=len(found), unit="count", n=calls, target="= 0"),
            Check(id="chaos_faults", value=count, unit="count", n=len(back)),
            Check(id="lost_acknowledged", value=len(lost), unit="count", n=calls, target="= 0"),
            Check(id="lost_as_stated", value=len(stated), unit="count", n=calls),
            Check(
                id="failover_seconds",
                value=round(statistics.median(failover), 2) if failover else None,
                unit="seconds",
                n=len(failover),
                reason=None if failover else "no failover was drawn",
            ),
        ],
        details={
            "seed": seed,
            "violations": [_shown(one, events) for one in found[:20]],
            "rules_broken": dict(Counter(one.rule for one in found)),
            "lost_as_stated": dict(Counter(one.rule for one in stated)),
            "events": dict(seen),
            "seconds_to_serve_again": {
                kind: {
                    "n": len(times),
                    "median": round(statistics.median(times), 2),
                    "max": round(max(times), 2),
                }
                for kind, times in sorted(back.items())
            },
            **further,
        },
    )


def _shown(violation: Violation, events: list[Event]) -> dict[str, object]:
    """Return a violation with what was seen of it."""
    of = [event for event in events if violation.call in {event.call, event.to}]
    seen = [
        f"{event.at:.3f} {event.saw.value} {event.call} {event.to} {event.mark}"
        for event in sorted(of, key=lambda event: event.at)[:12]
    ]
    return {"rule": violation.rule, "call": violation.call, "seen": seen}
