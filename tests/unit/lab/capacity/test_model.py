"""The simulator does what queueing theory says, and what it was calibrated on."""

import numpy as np
import pytest

from guard.lab.capacity.bench import ASSUMED, plan, simulator_check
from guard.lab.capacity.measure import State
from guard.lab.capacity.model import (
    AGENT,
    MESSAGES,
    PATH,
    REDIS,
    UPSTREAM,
    WORKER,
    Cost,
    Costs,
    Scenario,
    Seen,
    calibrated,
    simulate,
)

NOTHING = dict.fromkeys(MESSAGES, Cost(0.0, 0.0))
COSTS = Costs(
    {
        WORKER: Cost(20e-6, 50e-6),
        REDIS: Cost(10e-6, 20e-6),
        UPSTREAM: Cost(5e-6, 15e-6),
        AGENT: Cost(5e-6, 10e-6),
    },
    hop=8e-6,
)
STATE = State(2.0, 20.0, 2_000.0, 300.0, 800.0, 900.0)


def test_a_call_alone_takes_the_sum_of_its_way():
    """Each process once for each message, and each hop."""
    found = simulate(COSTS, Scenario(workers=1, agents=1, calls=200))

    way = sum(COSTS.per_call(kind) for kind in MESSAGES) + (len(PATH) + 1) * COSTS.hop
    assert found.quantile(0.5) == pytest.approx(way)
    assert found.per_second == pytest.approx(1 / way)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_a_queue_of_one_server_waits_as_pollaczek_and_khinchine_say(load):
    """Poisson arrivals, one server, equal service times: wait = load x service / 2 (1 - load)."""
    service = 1e-3
    costs = Costs({**NOTHING, UPSTREAM: Cost(0.0, service)}, hop=0.0)
    found = simulate(costs, Scenario(workers=4, rate=load / service, calls=12_000))

    wait = load * service / (2 * (1 - load))
    assert float(found.latencies.mean()) == pytest.approx(service + wait, rel=0.1)
    assert found.busy[UPSTREAM] == pytest.approx(load, rel=0.05)


def test_what_waits_is_taken_together_and_costs_less():
    """The cost of a look is shared."""
    alone = simulate(COSTS, Scenario(workers=1, cores=2, agents=1, calls=500))
    many = simulate(COSTS, Scenario(workers=1, cores=2, agents=16, calls=4_000))

    assert alone.batch[WORKER] == pytest.approx(1.0)
    assert many.batch[WORKER] > 2
    assert many.per_second > 2 * alone.per_second


def test_a_worker_never_does_more_than_its_time_allows():
    """Its rate is at most one by the processor time of a call."""
    found = simulate(COSTS, Scenario(workers=1, agents=64, calls=2_000))

    assert found.busy[WORKER] <= 1.0
    assert found.per_second <= 1 / COSTS.per_call(WORKER, batch=64)


def test_two_workers_on_two_cores_share_them_with_everything_else():
    """Faster than one, and less than twice as fast."""
    one, two = (simulate(COSTS, Scenario(n, cores=2, agents=16, calls=2_000)) for n in (1, 2))

    assert 1.1 < two.per_second / one.per_second < 1.9


def test_the_model_is_calibrated_on_what_was_seen():
    """Fed with loads that it made itself, it finds costs that make them again."""
    seen = []
    for agents in (1, 16):
        found = simulate(COSTS, Scenario(1, cores=2, agents=agents, calls=2_000))
        cpu = {kind: COSTS.per_call(kind, found.batch[kind]) for kind in MESSAGES}
        seen.append(Seen(agents, found.per_second, cpu))

    costs = calibrated(*seen, cores=2)

    assert costs.hop == pytest.approx(COSTS.hop, rel=0.05)
    for workers, agents in ((1, 1), (1, 4), (1, 32), (2, 16)):
        place = Scenario(workers, cores=2, agents=agents, calls=2_000)
        expected = simulate(COSTS, place).per_second
        assert simulate(costs, place).per_second == pytest.approx(expected, rel=0.1)


def test_while_redis_is_away_nothing_is_answered_and_nobody_is_forgotten():
    """Calls are refused after their time, and asked again until they are answered."""
    place = Scenario(workers=1, rate=500.0, calls=2_000, away=(1.0, 2.0))
    found = simulate(COSTS, place)

    assert found.refused > 100
    # What Redis had answered before it went is still on its way.
    assert not np.any((found.ended > 1.05) & (found.ended < 2.0))
    assert len(found.ended) == 2_000 - 200


def test_ten_times_the_agents_need_ten_times_the_workers():
    """And as many shards as their memory needs."""
    small, large = (plan(COSTS, STATE, agents, calls=2_000) for agents in (10**5, 10**6))

    assert large["workers"] == pytest.approx(10 * small["workers"], rel=0.3)
    assert large["redis_gigabytes"] == pytest.approx(10 * small["redis_gigabytes"], rel=0.01)
    assert large["shards"] * ASSUMED.shard_bytes >= large["redis_gigabytes"] * 1e9
    assert large["worker_busy"] < 1
    assert small["first_to_saturate"].startswith("a shard's memory")


def test_a_busy_machine_checks_nothing():
    """A rate that others took part of is no rate to foretell."""
    rows = [{"error": 0.04}, {"error": -0.09}]

    assert simulator_check(rows, 0.1, 2).value == 0.09
    noisy = simulator_check(rows, 1.2, 2)
    assert noisy.value is None
    assert "other programs used 1.2 of 2 cores" in noisy.reason
