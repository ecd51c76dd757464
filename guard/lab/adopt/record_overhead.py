"""What `--record` costs: two guards side by side before one upstream, one of them recording.

Counted is processor time of the guard's processes per call, every thread of them, the one that
enciphers and writes included: a guard is bound by its processor, and what else the machine does
hardly changes that time.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from scipy.stats import binom

from guard.adapters.loopback import Rig, free_port
from guard.lab.load import UPSTREAM, run_load
from guard.lab.result_load import cpu_seconds
from guard.replay.reports import Check
from guard.settings import policies_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONNECTIONS: Final = 16
ROUNDS: Final = 31
SECONDS: Final = 1.0


class Guard(NamedTuple):
    """One of the two."""

    port: int
    process: int

    def spent(self) -> tuple[float, float]:
        """Return microseconds of processor time per call, and calls per second, of one load."""
        before = cpu_seconds(self.process)
        load = run_load(self.port, CONNECTIONS, SECONDS)
        return 1e6 * (cpu_seconds(self.process) - before) / load.calls, load.per_second


def record_overhead(
    told: Callable[[float], object], rounds: int = ROUNDS
) -> tuple[Check, dict[str, object]]:
    """Return processor time per call with a recording, as a ratio to that without; and the rounds.

    Args:
        told: the share of the rounds that is done.
        rounds: of both guards, whose order alternates; after one more that is not counted.

    Raises:
        GuardError: a guard or the upstream did not start.
    """
    with Rig() as rig, Rig() as other:
        upstream = rig.server(UPSTREAM)
        key = str(other.directory / "recording.key")
        record = ("--record", str(other.directory / "recordings"), "--record-key", key)
        guards = (_guard(rig, upstream), _guard(other, upstream, *record))
        spent: list[list[tuple[float, float]]] = []
        for number in range(rounds + 1):
            found = {which: guards[which].spent() for which in ((0, 1), (1, 0))[number % 2]}
            spent.append([found[0], found[1]])
            told((number + 1) / (rounds + 1))
    times, rates = ([[one[kind] for one in pair] for pair in spent[1:]] for kind in (0, 1))
    ratios = sorted(recording / plain for plain, recording in times)
    low, high = median_interval(ratios)
    check = Check(
        id="record_overhead_ratio",
        value=round(median(ratios), 3),
        unit="ratio",
        n=len(ratios),
        interval=(round(low, 3), round(high, 3)),
        target="<= 1.05",
    )
    return check, {
        "cpu_us_per_call": [[round(one, 1) for one in pair] for pair in times],
        "rate_ratio": round(median(plain / recording for plain, recording in rates), 3),
    }


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return two of the values, in order, that enclose the median with at least 95 % confidence.

    Ranks of the binomial distribution: nothing is assumed of the values' own.
    """
    below = max(0, int(binom.ppf(0.025, len(values), 0.5)) - 1)
    return values[below], values[len(values) - 1 - below]


def _guard(rig: Rig, upstream: int, *options: str) -> Guard:
    port = free_port()
    policy = str((policies_directory() / "default.yaml").resolve())
    listener = f"127.0.0.1:{port}=http://127.0.0.1:{upstream}"
    child = rig.begin_guard("--policy", policy, "--reverse", listener, *options)
    child.wait_ready()
    return Guard(port, child.process.pid)
