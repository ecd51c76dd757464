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
from lab.propagation.agents import AGENTS, live
from lab.propagation.committed import committed
from lab.propagation.cost import cost
from lab.propagation.recorded import recorded
from lab.write_path.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str, float], object]
    Part = tuple[list[Check], Any]

GRAPH_POLICY: Final = Path(__file__).with_name("policy.yaml")
LEONG: Final = "leong_dev.jsonl.gz"


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
    parts: dict[str, Callable[[Progress], Part]] = {
        "recorded": lambda told: _recorded(data, told),
        "live": lambda told: _live(size, told),
        "committed": lambda told: _committed(data, size.clean, told),
        "cost": _cost,
    }
    checks: list[Check] = []
    details: dict[str, Any] = {}
    chosen = [name for name in parts if name in size.parts]
    for place, name in enumerate(chosen):

        def tell(what: str, done: float, place: int = place) -> None:
            progress(what, (place + done) / len(chosen))

        found, details[name] = parts[name](tell)
        checks += found
    return Report(name="propagation", machine=machine(), checks=checks, details=details)


def _recorded(data: Path, progress: Progress) -> Part:
    path = data / "traces" / LEONG
    if not path.exists():
        reason = f"`{LEONG}` is not there; name its folder with --data"
        names = ("sends_confirmed", "others_confirmed")
        return [Check(id=name, value=None, unit="sends", reason=reason) for name in names], {}
    policy = load_policies([policies_directory() / "default.yaml", GRAPH_POLICY])
    runs = list(read_traces([path]))
    with EmbeddedRedis() as redis:
        return asyncio.run(
            recorded(redis.url, policy, runs, lambda: progress("recorded runs", 0.5))
        )


def _live(size: Size, progress: Progress) -> Part:
    with Rig(AGENTS) as rig:
        return asyncio.run(live(rig, size.incidents, size.seed, progress))


def _committed(data: Path, clean: int, progress: Progress) -> Part:
    with EmbeddedRedis() as redis:
        return committed(redis.url, data, clean, progress)


def _cost(progress: Progress) -> Part:
    with EmbeddedRedis() as redis:
        return asyncio.run(cost(redis.url, progress))
