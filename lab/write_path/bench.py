"""``guard lab bench write-path``: all measurements, beside the paper's numbers."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.replay.reports import Check, Report, machine
from lab.load import UPSTREAM
from lab.write_path import default_gate
from lab.write_path.measurements import cost, crashes, normal_writes, races
from lab.write_path.rig import POLICY, Rig
from lab.write_path.trials import (
    ATTACKS,
    SYSTEMS,
    VENDORS,
    campaigns_found,
    false_alarms,
    observations,
    run_trial,
)

if TYPE_CHECKING:
    from collections.abc import Callable


DATA: Final = Path("../shared/data")
NO_DATA: Final = "the recorded conversations and runs are not here; name their folder with --data"
NORMAL: Final = 300
"""Observations that are written."""
LEAST_NORMAL: Final = 200
"""Writes below which a count of false positives says too little."""
RACES: Final = 20


class _Bench:
    """Measures one part after the other on the same guards."""

    def __init__(self, rig: Rig, data: Path) -> None:
        self._rig = rig
        self._conversations = data / "locomo" / "locomo_dev.json.gz"
        self._traces = data / "traces" / "leong_dev.jsonl.gz"
        self._normal = (0, 0)
        """Normal writes so far, and the refused ones among them."""
        self.checks: list[Check] = []
        self.details: dict[str, Any] = {}

    def start(self) -> None:
        """Start the memory, an upstream that only answers, and the guards."""
        rig = self._rig
        text = POLICY.read_text("utf-8")
        head, _, rest = text.partition("memory:\n")
        ungated = rig.variant("ungated", f"{head}rules:\n{rest.partition('rules:')[2]}")
        late = rig.variant("s3", text.replace("memory:\n", "memory:\n  coupling: false\n"))
        memory, answering = rig.memory(), rig.server(UPSTREAM)
        for name, policy, upstream in (
            ("s3", late, memory),
            ("s4", POLICY, memory),
            ("s4b", POLICY, memory),
            ("fast-gated", POLICY, answering),
            ("fast-open", ungated, answering),
        ):
            rig.worker(name, policy, upstream=upstream)

    def attacks(self, runs: int, progress: Callable[[str], object]) -> None:
        """Play every attack on both systems."""
        outcomes = {}
        for system in SYSTEMS:
            for attack in ATTACKS:
                progress(f"{system} against {attack}")
                outcomes[system, attack] = [
                    run_trial(self._rig, system, attack, number) for number in range(runs)
                ]
        total = runs * len(ATTACKS)
        every = {s: [o for a in ATTACKS for o in outcomes[s, a]] for s in SYSTEMS}
        for system in SYSTEMS:
            core = sum(outcome.core_nfr for outcome in every[system])
            self._add(f"{system.lower()}_core_nfr", core, f"{total}", n=total)
        for system, target in zip(SYSTEMS, (f"{total}", "0"), strict=True):
            leaked = sum(outcome.leaked for outcome in every[system])
            self._add(f"{system.lower()}_prlr", leaked, target, n=total)

    def drift(self) -> None:
        """Count campaigns that are found and false alarms, and write normal items."""
        self._add("drift_found", campaigns_found(self._rig), "10", n=len(VENDORS))
        if not self._conversations.exists():
            self._missing("drift_false_alarms_per_1000")
            return
        conversations = observations(self._conversations)
        texts = [text for one in conversations for text in one]
        rate = 1000 * false_alarms(self._rig, conversations) / len(texts)
        self._add("drift_false_alarms_per_1000", rate, "<= 1", n=len(texts), unit="per 1000")
        normal = texts[::3][:NORMAL]
        self._normal = len(normal), normal_writes(self._rig, normal)

    def recorded(self) -> None:
        """Send every recorded call through the gate, and add up the normal writes."""
        writes, refused = self._normal
        if self._traces.exists():
            runs = default_gate.recorded_sessions(self._traces)
            poisoned, benign = asyncio.run(
                default_gate.play_marked(
                    runs, self._rig.redis, "bench-traces", default_gate.TRACES_POLICY
                )
            )
            committed = (benign.committed + benign.tainted) / max(benign.saves, 1)
            self._rate("poisoned_saves_contained", poisoned.contained, ">= 0.99", poisoned.saves)
            self._rate("benign_saves_committed", committed, ">= 0.95", benign.saves)
            self.details["recorded_saves"] = [asdict(poisoned), asdict(benign)]
            writes += benign.saves
            refused += benign.asked + benign.refused
        else:
            self._missing("poisoned_saves_contained")
            self._missing("benign_saves_committed")
        if writes < LEAST_NORMAL:
            self._missing("false_positives")
        else:
            self._add("false_positives", refused, "0", n=writes)

    def default_matrix(self) -> None:
        """Measure `memory: {}` on generated saves, and on poisoned words where nothing was read."""
        words = default_gate.poisoned_sessions
        sessions = {
            "poisoned": words(default_gate.POISONED),
            "unread": words(default_gate.POISONED, is_read=False),
            "benign": default_gate.benign_sessions(default_gate.BENIGN),
        }
        found = {
            name: asyncio.run(default_gate.play(steps, self._rig.redis, f"default-{name}"))
            for name, steps in sessions.items()
        }
        poisoned, benign = found["poisoned"], found["benign"]
        contained = "default_gate_poisoned_contained"
        self._rate(contained, poisoned.contained, ">= 0.99", poisoned.saves)
        self._add("default_gate_benign_refused", benign.refused, "0", n=benign.saves)
        asked = benign.asked / benign.saves
        self._rate("default_gate_benign_asked", asked, "<= 0.05", benign.saves)
        self.details["default_gate"] = {name: asdict(gated) for name, gated in found.items()}

    def speed(self, seconds: float) -> None:
        """Measure what the gate adds to a write."""
        found = self.details["speed"] = cost(self._rig, seconds)
        self._add("write_added_p50_ms", round(found["added_p50_ms"], 3), "<= 1.5", unit="ms")
        self._add("write_round_trips", round(found["round_trips"], 2), "<= 3")
        rate = round(found["writes_per_second"], 1)
        self._add("writes_per_second_16", rate, None, unit="writes/s")

    def violations(self, crash_runs: int, progress: Callable[[str], object]) -> None:
        """Count what must not be after races and crashes."""
        progress("races")
        self._add("race_violations", races(self._rig, RACES), "0", n=RACES)
        progress("crashes")
        crashed = self.details["crashes"] = crashes(self._rig, crash_runs)
        count = sum(map(len, crashed.values()))
        self._add("crash_violations", count, "0", n=crash_runs * len(crashed))

    def _add(
        self, ident: str, value: float, target: str | None, *, unit: str = "count", n: int = 0
    ) -> None:
        self.checks.append(Check(id=ident, value=value, unit=unit, n=n or None, target=target))

    def _rate(self, ident: str, value: float, target: str, n: int) -> None:
        self._add(ident, round(value, 5), target, unit="fraction", n=n)

    def _missing(self, ident: str) -> None:
        self.checks.append(Check(id=ident, value=None, unit="count", reason=NO_DATA))


def bench_write_path(
    *,
    runs: int,
    crash_runs: int,
    seconds: float,
    data: Path,
    progress: Callable[[str], object],
) -> Report:
    """Run the benchmark.

    Args:
        runs: of each attack on each system.
        crash_runs: of each crash point.
        seconds: of the throughput measurement.
        data: folder with ``traces/`` and ``locomo/``; what is not there is not measured.
        progress: told what is being done.

    Raises:
        GuardError: something did not start.
    """
    with Rig() as rig:
        bench = _Bench(rig, data)
        progress("starting")
        bench.start()
        bench.attacks(runs, progress)
        progress("drift")
        bench.drift()
        progress("recorded runs")
        bench.recorded()
        progress("default matrix")
        bench.default_matrix()
        progress("latency and throughput")
        bench.speed(seconds)
        bench.violations(crash_runs, progress)
    return Report(name="write-path", machine=machine(), checks=bench.checks, details=bench.details)
