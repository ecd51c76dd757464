"""The schedule of a chaos run, and a run that goes on from a file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from lab.chaos import bench
from lab.chaos.bench import EACH, SEGMENT, Broken, Plan, Segment, bench_chaos

HERE = {"kill": [""], "cut": ["a", "b", "c"], "stop": ["short", "long"]}


def test_every_kind_comes_equally_often_and_its_variants_in_turn() -> None:
    """In another order with another seed."""
    schedule = Plan(None, 7).schedule(HERE)

    assert Counter(kind for kind, _ in schedule) == dict.fromkeys(HERE, EACH)
    variants = Counter(one for one in schedule if one[0] == "cut")
    assert max(variants.values()) - min(variants.values()) <= 1
    assert schedule == Plan(None, 7).schedule(HERE)
    assert schedule != Plan(None, 8).schedule(HERE)


def test_only_kinds_that_are_asked_for_and_can_be_had_are_drawn() -> None:
    """Where none of them can be had there is nothing to do."""
    assert {kind for kind, _ in Plan(9, 7, ("cut", "fill")).schedule(HERE)} == {"cut"}
    assert Plan(9, 7, ("fill",)).schedule(HERE) == []


def test_a_run_goes_on_behind_the_segments_of_its_own_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another plan has left in the same file counts for nothing."""
    begun: list[int] = []

    def segment(plan: Plan, done: int, *_: object) -> Segment:
        begun.append(done)
        count = min(SEGMENT, (plan.faults or 0) - done)
        broken = [Broken("kill", "", 2.0, 1.0)] * count
        lost = [{"rule": "grant_lost", "call": "g", "seen": []}] if done == 0 else []
        return Segment(plan.faults or 0, [], broken, {"asked": 10}, lost)

    monkeypatch.setattr(bench, "_segment", segment)
    kept = tmp_path / "segments.jsonl"
    bench_chaos(Plan(SEGMENT + 10, 7), kept=kept)
    first, second = kept.read_text("utf-8").splitlines()
    kept.write_text(f"{first}\n", "utf-8")
    bench_chaos(Plan(30, 8), kept=kept)
    report = bench_chaos(Plan(SEGMENT + 10, 7), kept=kept)

    assert begun == [0, SEGMENT, 0, SEGMENT]
    assert kept.read_text("utf-8").splitlines()[-1] == second
    values = {check.id: (check.value, check.n) for check in report.checks}
    assert values["chaos_faults"] == (SEGMENT + 10, 1)
    assert values["chaos_violations"] == (1, 20)
    assert values["lost_acknowledged"][0] == 1
    assert report.details["seconds_to_serve_again"]["kill"]["n"] == SEGMENT + 10
    assert json.loads(report.to_json())["details"]["seed"] == 7
