"""The supervisor's places for workers: signals, replacement, and what becomes of one that dies."""

import signal
import time

import pytest

from guard.processes import workers
from guard.processes.child_process import Heartbeat
from guard.processes.workers import Replacement, WorkerSlot


class Process:
    """Stands for a worker process; notes the signals sent to it."""

    def __init__(self, launch):
        self.launch = launch
        self.received = []
        self.returncode = None
        self.pulse = Heartbeat(launch.pulse)

    def send_signal(self, number):
        self.received.append(number)

    def kill(self):
        self.returncode = -signal.SIGKILL

    def poll(self):
        return self.returncode


class Place:
    """A slot, the processes it has started, and what it has told of."""

    def __init__(self, directory, *, alone=True, heartbeat=60.0):
        self.started = []
        self.died = []
        self.slot = WorkerSlot(
            0,
            directory,
            start=self._start,
            heartbeat=heartbeat,
            drain=1.0,
            died=self.died.append,
            retired=lambda _: None,
            alone=alone,
        )

    def _start(self, launch):
        self.started.append(Process(launch))
        return self.started[-1]


@pytest.fixture
def place(tmp_path):
    """Make places in a directory of the test's own."""
    return lambda **options: Place(tmp_path, **options)


def up(place):
    """Have the place's newest worker come up, and return it."""
    place.slot.tend()
    place.started[-1].pulse.beat()
    place.slot.tend()
    return place.started[-1]


@pytest.fixture
def one(place):
    """Return a place."""
    return place()


def test_a_hang_up_before_the_first_heartbeat_reaches_the_worker_after_it(one):
    """A worker that has no handler yet would end of it; an operator's reload is not lost."""
    one.slot.tend()

    one.slot.hang_up()
    one.slot.tend()
    before = list(one.started[0].received)
    one.started[0].pulse.beat()
    one.slot.tend()
    one.slot.tend()

    assert before == []
    assert one.started[0].received == [signal.SIGHUP]


def test_a_worker_ends_only_once_its_successor_serves(one):
    """At no moment is there nobody who accepts."""
    first = up(one)

    one.slot.begin_replacement()
    one.slot.tend()
    before = list(first.received)
    one.started[1].pulse.beat()
    one.slot.tend()

    assert before == []
    assert first.received == [signal.SIGTERM]
    assert one.slot.replacement is Replacement.GOING_ON
    first.returncode = 0
    one.slot.tend()
    assert one.slot.replacement is Replacement.DONE
    assert one.slot.current is not None
    assert one.slot.current.process is one.started[1]
    assert one.died == []


def test_a_successor_that_never_comes_up_leaves_the_worker_alone(one):
    """A key or a model that cannot be used does not stop a guard that serves."""
    first = up(one)

    one.slot.begin_replacement()
    one.started[1].returncode = 1
    one.slot.tend()

    assert one.slot.replacement is Replacement.FAILED
    assert first.received == []
    assert one.slot.failed is None


def test_a_worker_that_dies_is_started_again_under_its_name(one):
    """So that its successor knows at once whose writes were left in flight."""
    first = up(one)
    first.returncode = -signal.SIGKILL
    one.slot.tend()

    one.slot._from = 0.0
    one.slot.tend()

    name, number = first.launch.owner.rpartition(":")[::2]
    assert one.started[1].launch.owner == f"{name}:{int(number) + 1}"
    assert [line["exit_code"] for line in one.died] == [-signal.SIGKILL]


@pytest.mark.parametrize(("alone", "failed"), [(True, 0), (False, None)])
def test_a_guard_ends_with_its_only_worker(place, alone, failed):
    """Of several, one that ends by itself is started again."""
    one = place(alone=alone)
    up(one).returncode = 0

    one.slot.tend()

    assert one.slot.failed == failed
    assert len(one.died) == (0 if alone else 1)


def test_a_first_worker_that_never_came_up_ends_the_start(place):
    """It cannot use what it was given; another would not either."""
    one = place(alone=False)
    one.slot.tend()
    one.started[0].returncode = 3

    one.slot.tend()

    assert one.slot.failed == 3


def test_a_worker_without_a_heartbeat_is_killed(place):
    """Code that loops cannot be timed out from inside."""
    one = place(heartbeat=-1.0)
    up(one)

    assert one.started[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize(("seconds", "kills"), [(29, False), (61, True)])
def test_a_worker_is_not_blamed_for_a_machine_that_stood_still(place, monkeypatch, seconds, kills):
    """Nobody ran, the supervisor neither: it beats again, or is killed, after that."""
    one = place(heartbeat=60.0)
    worker = up(one)
    now = time.monotonic() + 3600
    monkeypatch.setattr(workers.time, "monotonic", lambda: now)
    one.slot.tend()
    for _ in range(seconds):
        now += 1
        one.slot.tend()

    assert (worker.returncode is not None) is kills
