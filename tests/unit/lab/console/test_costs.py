"""What a console costs, from turns of two guards that change places."""

from __future__ import annotations

import random

import pytest

from guard.lab.console import costs
from guard.lab.console.costs import Side, Turn
from guard.lab.interleaved import in_turns

COST = 0.97
SLOWER = 0.9


def turns(rng: random.Random, speed: float, console: float, rates: list[float]) -> Turn:
    """Return a turn on a machine that is slower in some seconds than in others."""
    rates.append(min(max(rates[-1] + rng.gauss(0, 10), 1000), 3000))
    calls = round(rates[-1] * speed * costs.SECONDS * 100)
    return Turn(calls, costs.SECONDS, 1 / rates[-1] / speed * calls, console)


def test_what_two_guards_differ_by_cancels_as_they_change_places(tmp_path) -> None:
    """One is a tenth slower than the other; what is found is the cost, on both."""
    rng, rates = random.Random(3), [2000.0]
    here = Side(1, 1, 1, tmp_path)
    there = Side(2, 2, 2, tmp_path)
    speeds = {1: 1.0, 2: SLOWER}

    def measured(on: Side, off: Side, blocks: int, seed: int):
        return in_turns(
            blocks,
            lambda: turns(rng, speeds[on.port] * COST, 0.01, rates),
            lambda: turns(rng, speeds[off.port], 0.0, rates),
            seed=seed,
        )

    guards = iter([here, there] * costs.GUARDS)
    shares: list[float] = []
    pairs = costs._pairs(lambda: _Given(next(guards)), measured, 120, shares.append)
    found, told = costs._compared(pairs), costs._costs(pairs)
    low, high = found["interval"]

    assert found["n"] == 60
    assert low < COST < high
    assert found["value"] == pytest.approx(COST, abs=0.005)
    assert told["processor_time_ratio_of_workers"][0] == pytest.approx(COST, abs=0.005)
    assert told["same_side_ratio"][1] < 1 < told["same_side_ratio"][2]
    assert shares == sorted(shares)
    assert shares[-1] == 1


class _Given:
    """A guard that runs already."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def __enter__(self) -> Side:
        return self._side

    def __exit__(self, *_: object) -> None:
        pass


def test_a_block_in_which_nothing_came_through_is_left_out(tmp_path) -> None:
    """A machine that is far too busy says nothing of what a console costs."""
    side = Side(1, 1, 1, tmp_path)
    full, empty = Turn(250, 0.125, 0.1, 0.0), Turn(0, 0.125, 0.0, 0.0)

    def measured(on: Side, off: Side, blocks: int, seed: int):
        del on, off, seed
        yield from [([full, full], [full, full])] * blocks
        yield [full, empty], [full, full]

    pairs = costs._pairs(lambda: _Given(side), measured, 18, lambda _: None)

    assert len(pairs) == 3 * costs.GUARDS
    assert all(turn.calls for pair in pairs for block in pair for side in block for turn in side)
