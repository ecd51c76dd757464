"""Rows for the second prefix model: every send of a set of runs, as the guard sees it live.

The rows are taken by a detector in the replay, so training and traffic share one code path.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from guard.core.model import Role
from guard.lab.judged_runs import FLAGGED, Bench
from guard.lab.provenance_features import features

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.core.model import ClassifiedCall, Finding
    from guard.core.policy import Policy
    from guard.core.trajectory import Snapshot
    from guard.lab.judged_runs import JudgedCall
    from guard.replay.traces import Run


class RowTaker:
    """A detector that finds nothing and keeps the row of every send.

    Attributes:
        rows: by call id.
    """

    name: ClassVar[str] = "row_taker"

    def __init__(self) -> None:
        self.rows: dict[str, tuple[float, ...]] = {}

    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:
        """Keep the row of a send."""
        if call.role is Role.SEND and call.mapped:
            self.rows[call.call.id] = features(call, snapshot)
        return ()


@dataclass(frozen=True, slots=True)
class Example:
    """One send.

    Attributes:
        row: its features.
        attack: whether it must be stopped.
        asked: whether the ladder stops it.
        kind: what sort of run it is from.
    """

    row: tuple[float, ...]
    attack: bool
    asked: bool
    kind: str


async def examples(
    bench: Bench,
    runs: Sequence[Run],
    policy: Policy,
    truth: Callable[[JudgedCall], bool | None],
    kind: Callable[[JudgedCall], str],
) -> list[Example]:
    """Return the sends of runs with their rows.

    Args:
        bench: where to replay.
        runs: judged from fresh state.
        policy: the ladder is its rules.
        truth: whether a send is an attack; None leaves it out.
        kind: the group of a send.
    """
    taker = RowTaker()
    # A row counts guarded values of every kind, also of those that no rule looks at.
    judged = await bench.judge(runs, replace(policy, guarded_kinds=None), detectors=(taker,))
    found = []
    for run in judged:
        for call in run.calls:
            row = taker.rows.get(f"{run.run.run_id}:{call.call.i}")
            attack = truth(call) if row is not None else None
            if row is not None and attack is not None:
                asked = call.line["action"] in FLAGGED
                found.append(Example(row, attack, asked, kind(call)))
    return found
