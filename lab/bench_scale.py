"""``guard lab bench scale``: the enforcement point beside stock mitmdump, in one run, as ratios.

Rounds alternate between the contestants, so a noisy machine is noisy for all of them.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.processes.loopback import Rig
from guard.replay.reports import Check, Report, machine
from guard.settings import child_environment
from lab.envoy_rig import FrontedRig, find_envoy
from lab.guard_processes import begin_guard, resident, worker_of
from lab.load import (
    UPSTREAM,
    Contestant,
    Progress,
    errors,
    load_in_turns,
    rates,
    ratio,
    stock_mitmdump,
)

if TYPE_CHECKING:
    from pathlib import Path

ONE: Final = "lean"
TWO: Final = "lean with two workers"
ENVOY: Final = "lean behind envoy"
STARTS: Final = 5
NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
"""Variable of a developer's shell: if set, each start compiles the files that changed since
installation."""


def bench_scale(policy: Path, *, rounds: int, seconds: float, progress: Progress) -> Report:
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
        ports = {"direct": upstream, "mitmdump": stock_mitmdump(rig, upstream)}
        workers = {}
        kinds: list[tuple[str, type[Rig], str]] = [(ONE, Rig, "1"), (TWO, Rig, "2")]
        kinds += [(ENVOY, FrontedRig, "1")] if find_envoy() is not None else []
        for name, made, number in kinds:
            own = stack.enter_context(made())
            ports[name], workers[name] = begin_guard(own, policy, upstream, "--workers", number)
        contestants = {
            f"{name}_c{number}": Contestant(port, number)
            for number in (16, 1)
            for name, port in ports.items()
        }
        loads = load_in_turns(contestants, rounds, seconds, progress)
        memory = {name: _worker_mb(child.process.pid) for name, child in workers.items()}
        progress("starting again and again", 1.0)
        starts = _starts(policy, upstream)
    checks = [
        ratio("ratio_vs_mitmdump_c16", loads, (f"{ONE}_c16", "mitmdump_c16"), ">= 2.5"),
        ratio("ratio_vs_mitmdump_c1", loads, (f"{ONE}_c1", "mitmdump_c1"), ">= 1.8"),
        ratio("ratio_two_workers", loads, (f"{TWO}_c16", f"{ONE}_c16"), ">= 1.4"),
        ratio(
            "envoy_ratio_vs_mitmdump_c16",
            loads,
            (f"{ENVOY}_c16", "mitmdump_c16"),
            ">= 2.0",
            "envoy is not installed",
        ),
        Check(
            id="start_to_ready_s",
            value=round(median(starts), 2),
            unit="s",
            n=STARTS,
            target="<= 1.0",
        ),
        Check(
            id="rss_mb_per_worker",
            value=memory[ONE],
            unit="MB",
            target="<= 120",
            reason=None if memory[ONE] is not None else "/proc does not tell",
        ),
    ]
    details = {
        "rounds": rates(loads),
        "errors": errors(loads),
        "start_to_ready_s": starts,
        "rss_mb_per_worker": memory,
        "durability": "embedded redis, nothing persisted",
    }
    return Report(name="scale", machine=machine(), checks=checks, details=details)


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
            begin_guard(rig, policy, upstream)
            taken.append(round(time.perf_counter() - started, 2))
    return taken[1:]


def _worker_mb(supervisor: int) -> float | None:
    """Return the resident megabytes of the worker of a supervisor; None where nobody tells."""
    try:
        return round(resident(worker_of(supervisor)) / 2**20, 1)
    except (OSError, GuardError):
        return None
