"""``guard lab bench scale``: the enforcement point beside stock mitmdump, in one run, as ratios.

Rounds alternate between the contestants, so a noisy machine is noisy for all of them.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.processes.loopback import Child, Rig, free_port
from guard.replay.reports import Check, Report, machine
from guard.settings import child_environment
from lab.envoy_rig import FrontedRig, find_envoy
from lab.guard_processes import resident, worker_of
from lab.load import UPSTREAM, Progress, generator, run_load, stock_mitmdump

if TYPE_CHECKING:
    from pathlib import Path

ONE: Final = "lean"
TWO: Final = "lean with two workers"
ENVOY: Final = "lean behind envoy"
CONNECTIONS: Final = (16, 1)
STARTS: Final = 5
NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
"""Variable of a developer's shell: if set, each start compiles the files that changed since
installation."""
Rates = dict[tuple[str, int], list[float]]
"""Requests per second of each contestant and number of connections, round by round."""


def bench_scale(
    policy: Path,
    *,
    rounds: int,
    seconds: float,
    progress: Progress,
) -> Report:
    """Run everything and return the report.

    Args:
        policy: of every guard.
        rounds: alternating ones.
        seconds: length of one load.
        progress: is told what is going on and which share is done.

    Raises:
        GuardError: a part could not be started.
    """
    with ExitStack() as stack:
        rig = stack.enter_context(Rig())
        upstream = rig.server(UPSTREAM)
        plain = stock_mitmdump(rig, upstream)
        ports = {"direct": upstream, "mitmdump": plain}
        guards: dict[str, Child] = {}
        kinds: list[tuple[str, type[Rig], int]] = [(ONE, Rig, 1), (TWO, Rig, 2)]
        kinds += [(ENVOY, FrontedRig, 1)] if find_envoy() is not None else []
        for name, made, workers in kinds:
            own = stack.enter_context(made())
            ports[name], guards[name] = _guard(own, policy, upstream, workers)
        rates, errors = _rates(ports, rounds, seconds, progress)
        memory = {name: _worker_mb(child.process.pid) for name, child in guards.items()}
        progress("starting again and again", 0.9)
        starts = _starts(policy, upstream)
    checks = [
        _ratio("ratio_vs_mitmdump_c16", rates, "lean", 16, ">= 2.5"),
        _ratio("ratio_vs_mitmdump_c1", rates, "lean", 1, ">= 1.8"),
        _ratio("ratio_two_workers", rates, TWO, 16, ">= 1.4", against="lean"),
        _ratio("envoy_ratio_vs_mitmdump_c16", rates, ENVOY, 16, ">= 2.0"),
        Check(
            id="start_to_ready_s",
            value=round(median(starts), 2),
            unit="s",
            n=STARTS,
            target="<= 1.0",
        ),
        Check(
            id="rss_mb_per_worker",
            value=memory["lean"],
            unit="MB",
            target="<= 120",
            reason=None if memory["lean"] is not None else "/proc does not tell",
        ),
    ]
    details = {
        "generator": generator(),
        "rounds": {f"{name}_c{number}": found for (name, number), found in rates.items()},
        "errors": errors,
        "start_to_ready_s": starts,
        "rss_mb_per_worker": memory,
        "durability": "embedded redis, nothing persisted",
    }
    return Report(name="scale", machine=machine(), checks=checks, details=details)


def _guard(rig: Rig, policy: Path, upstream: int, workers: int = 1) -> tuple[int, Child]:
    """Return the port of a guard that serves, and its supervisor."""
    port = free_port()
    listener = f"127.0.0.1:{port}=http://127.0.0.1:{upstream}"
    words = ("--policy", str(policy.resolve()), "--reverse", listener, "--workers", str(workers))
    child = rig.begin_guard(*words)
    child.wait_ready()
    return port, child


def _rates(
    ports: dict[str, int], rounds: int, seconds: float, progress: Progress
) -> tuple[Rates, dict[str, int]]:
    """Load the contestants in turns; return what each did, and how many answers were errors."""
    rates: Rates = {(name, number): [] for number in CONNECTIONS for name in ports}
    errors = dict.fromkeys(ports, 0)
    for port in ports.values():
        run_load(port, 16, 1.0)
    for done in range(rounds):
        progress(f"round {done + 1} of {rounds}", 0.05 + 0.8 * done / rounds)
        for name, number in rates:
            load = run_load(ports[name], number, seconds)
            rates[name, number].append(load.per_second)
            errors[name] += load.errors
    return rates, errors


def _ratio(
    name: str, rates: Rates, pep: str, number: int, target: str, *, against: str = "mitmdump"
) -> Check:
    """Return the median over rounds of one contestant's rate by another's."""
    if (pep, number) not in rates:
        return Check(
            id=name, value=None, unit="ratio", target=target, reason="envoy is not installed"
        )
    pairs = zip(rates[pep, number], rates[against, number], strict=True)
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    return Check(
        id=name, value=round(median(ratios), 3), unit="ratio", n=len(ratios), target=target
    )


def _starts(policy: Path, upstream: int) -> list[float]:
    """Return the seconds from the start of ``guard run`` to its ready line, several times.

    Of an installed guard, whose modules are compiled: the first start, which may have to compile
    what has changed, does not count.
    """
    environment = child_environment([])
    environment.pop(NO_BYTECODE, None)
    taken: list[float] = []
    for _ in range(1 + STARTS):
        with Rig(environment=environment) as rig:
            started = time.perf_counter()
            _guard(rig, policy, upstream)
            taken.append(round(time.perf_counter() - started, 2))
    return taken[1:]


def _worker_mb(supervisor: int) -> float | None:
    """Return the resident megabytes of the worker of a supervisor; None where nobody tells."""
    try:
        return round(resident(worker_of(supervisor)) / 2**20, 1)
    except (OSError, GuardError):
        return None
