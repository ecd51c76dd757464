"""``guard lab bench capacity``: measures, checks the simulator on this machine, and plans fleets.

The plan is for agents that call at random; what is assumed of them, of prices and of networks is in
:data:`ASSUMED`, and is printed beside what follows from it.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guard.lab.capacity.measure import State, kept, loaded, running, shape_of
from guard.lab.capacity.model import (
    MESSAGES,
    REDIS,
    WORKER,
    Costs,
    Outcome,
    Scenario,
    Seen,
    calibrated,
    simulate,
)
from guard.replay.reports import Check, Report, machine

if TYPE_CHECKING:
    from pathlib import Path

    from guard.lab.load import Progress

FLEETS: Final = (10**3, 10**5, 10**7)
"""Agents."""
CALIBRATED: Final = (1, 16)
CHECKED: Final = ((1, 2), (1, 4), (1, 8), (1, 16), (1, 32), (2, 4), (2, 16))
"""Workers and agents of the loads that the simulator has to foretell."""
PRINCIPALS: Final = 100
AFTERWARDS: Final = 8.0
"""Seconds of calls after a failover."""
QUIET_CORES: Final = 0.2
"""More than this of other programs makes a measured rate say little."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """What cannot be measured here."""

    seconds_between_calls: float = 30.0
    """Of one agent, in the mean."""
    hop_seconds: float = 100e-6
    """One way between two machines of a data centre."""
    worker_load: float = 0.6
    redis_load: float = 0.5
    """How busy a worker, and a shard, should be at most."""
    values_per_principal: float = 500.0
    """Labelled values that are kept of one agent's reading at a time."""
    sessions_per_principal: float = 10.0
    shard_bytes: float = 32e9
    core_hour_dollars: float = 0.04
    redis_gigabyte_hour_dollars: float = 0.01
    failover_seconds: float = 5.0
    hot_share: float = 0.3
    """Of all calls, by the largest tenant."""


ASSUMED: Final = Assumed()


def bench_capacity(policy: Path, *, rounds: int, seconds: float, progress: Progress) -> Report:
    """Measure, check, simulate, and return the report.

    Args:
        policy: of the guard.
        rounds: of each load; the fastest counts, which others disturbed least.
        seconds: length of one load.
        progress: is told what is going on and which share is done.

    Raises:
        GuardError: a part could not be started.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    progress("what Redis keeps", 0.0)
    state = kept(policy, PRINCIPALS)
    seen, shape = _measured(policy, rounds, seconds, progress)
    progress("calibrating", 0.6)
    costs = calibrated(seen[1, CALIBRATED[0]], seen[1, CALIBRATED[1]], cores=cores, shape=shape)
    checked = [_checked(costs, workers, seen[workers, n], cores) for workers, n in CHECKED]
    progress("simulating fleets", 0.7)
    fleets = [plan(costs, state, agents) for agents in FLEETS]
    hot = hot_tenant(costs)
    progress("simulating a failover", 0.9)
    others = max(one.others for one in seen.values())
    checks = [
        simulator_check(checked, others, cores),
        Check(id="dollars_per_million_decisions", value=fleets[1]["dollars_per_million"], unit="$"),
        Check(
            id="redis_bytes_per_principal",
            value=round(_bytes(state)),
            unit="B",
            n=PRINCIPALS,
        ),
        Check(id="redis_commands_per_call", value=round(state.commands_per_call, 2), unit="count"),
        Check(
            id="tenant_calls_per_second",
            value=hot["calls_per_second_at_most"],
            unit="1/s",
        ),
    ]
    details = {
        "assumed": asdict(ASSUMED),
        "costs_us": {
            kind: {"look": round(c.look * 1e6, 1), "message": round(c.message * 1e6, 1)}
            for kind, c in costs.of.items()
        },
        "hop_us": round(costs.hop * 1e6, 1),
        "state": asdict(state),
        "checked": checked,
        "fleets": fleets,
        "hot_tenant": hot,
        "failover": failover(costs),
        "other_programs_cores": round(others, 2),
    }
    return Report(name="capacity", machine=machine(), checks=checks, details=details)


def simulator_check(checked: list[dict[str, Any]], others: float, cores: int) -> Check:
    """Return the simulator's largest relative error; null where other programs used the cores."""
    error = round(max(abs(row["error"]) for row in checked), 3)
    is_quiet = others <= QUIET_CORES
    return Check(
        id="simulator_error",
        value=error if is_quiet else None,
        unit="fraction",
        n=len(checked),
        target="<= 0.15",
        reason=None
        if is_quiet
        else f"other programs used {others:.1f} of {cores} cores; the worst was {error} then",
    )


def _measured(
    policy: Path, rounds: int, seconds: float, progress: Progress
) -> tuple[dict[tuple[int, int], Seen], tuple[float, ...]]:
    """Return what each load did, by workers and agents, and the shape of service times."""
    wanted = {(1, n) for n in CALIBRATED} | set(CHECKED)
    seen: dict[tuple[int, int], Seen] = {}
    shape: tuple[float, ...] = (1.0,)
    for workers in sorted({w for w, _ in wanted}):
        with running(policy, workers=workers) as guard:
            loaded(guard, 16, 1.0)
            if workers == 1:
                shape = shape_of(guard, 2_000)
            for number in range(rounds):
                progress(f"{workers} workers, round {number + 1}", 0.1 + 0.25 * (workers - 1))
                for agents in sorted(n for w, n in wanted if w == workers):
                    one, best = loaded(guard, agents, seconds), seen.get((workers, agents))
                    if best is None or one.per_second > best.per_second:
                        seen[workers, agents] = one
    return seen, shape


def _checked(costs: Costs, workers: int, seen: Seen, cores: int) -> dict[str, Any]:
    """Return the simulated figures of a load beside the measured ones."""
    stretch = seen.stretch(cores)
    place = Scenario(workers, cores, seen.agents, calls=8_000, stretch=stretch)
    found = simulate(costs, place)
    return {
        "workers": workers,
        "agents": seen.agents,
        "measured_per_second": round(seen.per_second, 1),
        "simulated_per_second": round(found.per_second, 1),
        "error": round(found.per_second / seen.per_second - 1, 3),
        "other_programs_cores": round(seen.others, 2),
    }


def _far(costs: Costs) -> Costs:
    """Return the costs for processes that each run on a machine of their own."""
    return replace(costs, hop=ASSUMED.hop_seconds)


def _bytes(state: State) -> float:
    """Return the bytes of Redis that one agent needs."""
    return (
        state.bytes_per_principal
        + (ASSUMED.sessions_per_principal - 1) * state.bytes_per_session
        + ASSUMED.values_per_principal * state.bytes_per_value
    )


def plan(costs: Costs, state: State, agents: int, calls: int = 20_000) -> dict[str, Any]:
    """Return the workers, shards and memory that a number of agents needs, and a call's latency.

    Workers and shards are counted so that none is busier than assumed, with batches of one: more
    than they need.  One shard and its workers are simulated; the others are like them.
    """
    rate = agents / ASSUMED.seconds_between_calls
    far = _far(costs)
    worker, redis = far.per_call(WORKER), far.per_call(REDIS)
    workers = max(math.ceil(rate * worker / ASSUMED.worker_load), 2)
    by_time = rate * redis / ASSUMED.redis_load
    by_memory = agents * _bytes(state) / ASSUMED.shard_bytes
    shards = max(math.ceil(max(by_time, by_memory)), 1)
    share = max(round(workers / shards), 1)
    found = simulate(far, Scenario(share, rate=rate / shards, calls=calls))
    hourly = (workers + shards) * ASSUMED.core_hour_dollars
    hourly += agents * _bytes(state) / 1e9 * ASSUMED.redis_gigabyte_hour_dollars
    return {
        "agents": agents,
        "calls_per_second": round(rate, 1),
        "workers": workers,
        "shards": shards,
        "shards_by_time": round(by_time, 3),
        "shards_by_memory": round(by_memory, 3),
        "redis_gigabytes": round(agents * _bytes(state) / 1e9, 2),
        "redis_commands_per_second": round(rate * state.commands_per_call),
        "audit_megabytes_per_second": round(rate * state.audit_bytes_per_decision / 1e6, 3),
        "p50_ms": _ms(found, 0.5),
        "p99_ms": _ms(found, 0.99),
        "worker_busy": round(found.busy[WORKER], 2),
        "redis_busy": round(found.busy[REDIS], 2),
        "dollars_per_million": round(hourly / (rate * 3600) * 1e6, 3),
        "first_to_saturate": _first(rate, worker, by_time, by_memory),
    }


def _first(rate: float, worker: float, by_time: float, by_memory: float) -> str:
    """Return which part saturates first if there is one of each."""
    needs = {"a worker's time": rate * worker, "a shard's time": by_time * ASSUMED.redis_load}
    needs["a shard's memory"] = by_memory
    name, need = max(needs.items(), key=lambda item: item[1])
    return f"{name} ({need:.3g} times one)"


def _ms(found: Outcome, share: float) -> float:
    return round(found.quantile(share) * 1000, 2)


def hot_tenant(costs: Costs) -> dict[str, Any]:
    """Return the highest rate of one tenant: its keys are in one slot, so one Redis serves it."""
    far = _far(costs)
    most = 1 / (MESSAGES[REDIS] * far.of[REDIS].message)
    rows = []
    for load in (0.3, 0.6, 0.9):
        rate = load / far.per_call(REDIS)
        workers = math.ceil(rate * far.per_call(WORKER) / ASSUMED.worker_load)
        found = simulate(far, Scenario(workers, rate=rate, calls=20_000))
        rows.append(
            {
                "calls_per_second": round(rate),
                "workers": workers,
                "redis_busy": round(found.busy[REDIS], 2),
                "p50_ms": _ms(found, 0.5),
                "p99_ms": _ms(found, 0.99),
            }
        )
    largest = most * ASSUMED.redis_load / ASSUMED.hot_share
    return {
        "calls_per_second_at_most": round(most),
        "agents_at_most": round(most * ASSUMED.redis_load * ASSUMED.seconds_between_calls),
        "fleet_calls_per_second_with_that_share": round(largest),
        "loads": rows,
    }


def failover(costs: Costs) -> dict[str, Any]:
    """Return what a failover does to the calls of one worker: refused, then asked again."""
    far = _far(costs)
    rate = ASSUMED.worker_load / far.per_call(WORKER)
    begin, away = 2.0, ASSUMED.failover_seconds
    calls = int(rate * (begin + away + AFTERWARDS))
    place = Scenario(1, rate=rate, calls=calls, away=(begin, begin + away))
    found = simulate(far, place)
    before = found.ended < begin
    usual = float(np.quantile(found.latencies[before], 0.99)) if before.any() else math.nan
    windows = np.floor((found.ended - begin - away) / 0.25)
    settled = math.nan
    for window in sorted(set(windows[windows >= 0].tolist())):
        here = found.latencies[windows == window]
        if float(np.quantile(here, 0.99)) <= 2 * usual:
            settled = window * 0.25
            break
    return {
        "calls_per_second": round(rate),
        "workers": 1,
        "seconds_away": away,
        "refused": found.refused,
        "refused_per_call_that_came_meanwhile": round(found.refused / max(rate * away, 1), 1),
        "p99_before_ms": round(usual * 1000, 2),
        "seconds_until_p99_is_within_twice": None if math.isnan(settled) else settled,
    }
