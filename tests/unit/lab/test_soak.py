"""What a soak says of memory: nothing of Redis before that has begun to forget."""

from __future__ import annotations

import pytest

from lab.soak import FORGOTTEN, SAMPLES, Run, Sample, _report

CALLS = 100_000


def _run(seconds: float) -> Run:
    """Return a run in which Redis grows while it forgets nothing, and the worker all the while."""
    run = Run(CALLS, done=CALLS, seconds=[0.001] * CALLS)
    for number in range(1, SAMPLES + 1):
        at, calls = seconds * number / SAMPLES, CALLS * number // SAMPLES
        worker, redis = 100_000 + calls // 100, 2000 + int(min(at, FORGOTTEN) * 100)
        run.samples.append(Sample(calls, at, worker, redis, 10, 5))
    return run


@pytest.mark.parametrize(("seconds", "redis"), [(FORGOTTEN / 2, None), (4 * FORGOTTEN, 0.0)])
def test_redis_is_judged_once_it_forgets_as_much_as_it_learns(seconds, redis):
    """A run that ends before has no figure, and says why; the worker's has one all the same."""
    found = {check.id: check for check in _report(_run(seconds)).checks}

    assert found["soak_slope_redis"].value == redis
    assert bool(found["soak_slope_redis"].reason) == (redis is None)
    assert found["soak_slope"].value == pytest.approx(9.77, abs=0.05)


def test_times_at_the_end_are_compared_with_those_of_full_caches():
    """Calls before are faster: that they were is no growth."""
    run = _run(4 * FORGOTTEN)
    run.seconds[: CALLS // 2] = [0.0005] * (CALLS // 2)
    run.seconds[-CALLS // 10 :] = [0.0012] * (CALLS // 10)
    found = {check.id: check.value for check in _report(run).checks}

    assert found["soak_p99_ratio"] == pytest.approx(1.2)
