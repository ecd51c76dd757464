"""The supervisor's places for workers: signals, replacement, and what becomes of one that dies."""

import signal
import time
from functools import partial

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

    def started_worker(self):
        """Have a worker started, and return it."""
        self.slot.tend()
        return self.started[-1]


@pytest.fixture
def place(tmp_path):
    """Make places in a directory of the test's own."""
    return partial(Place, tmp_path)


@pytest.fixture
def one(place):
    """Return a place."""
    return place()


def up(place):
    """Have the place's newest worker come up, and return it."""
    worker = place.started_worker()
    worker.pulse.beat()
    place.slot.tend()
    return worker


def test_a_hang_up_before_the_first_heartbeat_reaches_the_worker_after_it(one):
    """A worker that has no handler yet would end of it; an operator's reload is not lost."""
    worker = one.started_worker()
    one.slot.hang_up()
    one.slot.tend()
    assert worker.received == []
    worker.pulse.beat()
    for _ in range(2):
        one.slot.tend()
    assert worker.received == [signal.SIGHUP]


def test_a_worker_ends_only_once_its_successor_serves(one):
    """At no moment is there nobody who accepts."""
    first = up(one)

    one.slot.begin_replacement()
    one.slot.tend()
    assert first.received == []
    one.started[1].pulse.beat()
    one.slot.tend()
    assert first.received == [signal.SIGTERM]
    assert one.slot.replacement is Replacement.GOING_ON
    first.returncode = 0
    one.slot.tend()
    assert one.slot.replacement is Replacement.DONE
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


@pytest.mark.parametrize(
    ("alone", "comes_up", "code", "failed"),
    [(True, True, 0, 0), (False, True, 0, None), (False, False, 3, 3)],
)
def test_a_guard_ends_with_its_only_worker(place, alone, comes_up, code, failed):
    """Of several, one is started again; a first one that never came up ends the start."""
    one = place(alone=alone)
    worker = up(one) if comes_up else one.started_worker()
    worker.returncode = code

    one.slot.tend()

    assert one.slot.failed == failed
    assert len(one.died) == (failed is None)


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
