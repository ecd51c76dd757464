"""``guard lab bench propagation``: recorded runs, live agents, committed writes and cost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.extensions.propagation.detection import CLEAN
from guard.policy import load_policies
from guard.replay.reports import Check, Report, machine
from guard.replay.traces import read_traces
from guard.settings import policies_directory
from guard.store.embedded import EmbeddedRedis
from lab.propagation.agents import build, live
from lab.propagation.committed import committed
from lab.propagation.cost import cost
from lab.propagation.recorded import recorded
from lab.write_path.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str, float], object]

GRAPH_POLICY: Final = Path(__file__).with_name("policy.yaml")
LEONG: Final = "leong_dev.jsonl.gz"
RECORDED_IDS: Final = ("sends_confirmed", "others_confirmed")


@dataclass(frozen=True, slots=True)
class Size:
    """Scale of the measurement."""

    incidents: int = 100
    seed: int = 7
    parts: frozenset[str] = frozenset({"recorded", "live", "committed", "cost"})
    clean: int = CLEAN
    """Own writes that the detector is tried on."""


def bench_propagation(data: Path, size: Size, progress: Progress) -> Report:
    """Run everything that was asked for and return the report.

    Raises:
        GuardError: a part could not be started.
    """
    checks: list[Check] = []
    details: dict[str, Any] = {}
    if "recorded" in size.parts:
        checks += _recorded(data, details, lambda what, done: progress(what, 0.2 * done))
    if "live" in size.parts:
        with Rig() as rig:
            progress("two guards in front of one memory", 0.2)
            build(rig)
            found, detail = asyncio.run(
                live(rig, size.incidents, size.seed, lambda what, d: progress(what, 0.2 + 0.4 * d))
            )
        checks += found
        details["live"] = detail
    if "committed" in size.parts:
        with EmbeddedRedis() as redis:
            found, detail = committed(
                redis.url, data, size.clean, lambda what, d: progress(what, 0.6 + 0.1 * d)
            )
        checks += found
        details["committed"] = detail
    if "cost" in size.parts:
        with EmbeddedRedis() as redis:
            found, details["growth"] = asyncio.run(
                cost(redis.url, lambda what, d: progress(what, 0.9 + 0.1 * d))
            )
            checks += found
    return Report(name="propagation", machine=machine(), checks=checks, details=details)


def _recorded(data: Path, details: dict[str, Any], progress: Progress) -> list[Check]:
    path = data / "traces" / LEONG
    if not path.exists():
        reason = f"`{LEONG}` is not there; name its folder with --data"
        return [Check(id=name, value=None, unit="sends", reason=reason) for name in RECORDED_IDS]
    policy = load_policies([policies_directory() / "default.yaml", GRAPH_POLICY])
    runs = list(read_traces([path]))
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        progress("recorded runs", done / len(runs))

    with EmbeddedRedis() as redis:
        counts = asyncio.run(recorded(redis.url, policy, runs, advance))
    details["recorded"] = {
        "runs": len(runs),
        "incidents": counts.incidents,
        "missed": counts.missed[:10],
        "wrong": counts.wrong[:10],
    }
    return counts.checks()
