"""What `--record` costs: two guards side by side before one upstream, one of them recording."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from guard.adapters.loopback import Rig
from guard.lab.load import UPSTREAM, run_load
from guard.replay.reports import Check
from guard.settings import policies_directory

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECTIONS: Final = 16
ROUNDS: Final = 7
SECONDS: Final = 2.0


def record_overhead(told: Callable[[float], object], rounds: int = ROUNDS) -> Check:
    """Return how much longer a call takes with a recording, as a ratio of rates, by rounds.

    Args:
        told: the share of the rounds that is done.
        rounds: of both guards in turns, so that a noisy machine is noisy for both; after one more
            that is not counted.

    Raises:
        GuardError: a guard or the upstream did not start.
    """
    policy = policies_directory() / "default.yaml"
    with Rig() as rig, Rig() as other:
        upstream = rig.server(UPSTREAM)
        plain = rig.guard(policy, upstream)
        recording = other.guard(
            policy,
            upstream,
            "--record",
            str(other.directory / "recordings"),
            "--record-key",
            str(other.directory / "recording.key"),
        )
        ratios: list[float] = []
        for number in range(rounds + 1):
            without = run_load(plain, CONNECTIONS, SECONDS).per_second
            ratios.append(without / run_load(recording, CONNECTIONS, SECONDS).per_second)
            told((number + 1) / (rounds + 1))
        counted = sorted(ratios[1:])
    return Check(
        id="record_overhead_ratio",
        value=round(median(counted), 3),
        unit="ratio",
        n=len(counted),
        # Of seven rounds, the lowest and the highest enclose the median with 98 % confidence.
        interval=(round(counted[0], 3), round(counted[-1], 3)),
        target="<= 1.05",
    )
