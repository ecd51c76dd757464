"""Several workers: calls go on while one dies or all are replaced."""

import os
import signal

import pytest

from guard.processes.loopback import START_SECONDS
from lab.guard_processes import child_of
from tests.e2e.clients import Load
from tests.e2e.running_guard import serving, wait_until

pytestmark = pytest.mark.e2e
CLIENTS = 6


def workers_of(guard):
    """Return the process of each worker; None of one that has ended."""
    return [child_of(guard.process.pid, f"/worker-{number}") for number in range(2)]


def events(guard, name):
    """Return the audit lines of one kind."""
    return [line for line in guard.audit() if line["event"] == name]


def test_workers_are_replaced_and_killed_under_load_and_others_go_on(tmp_path):
    """A replacement loses no call; a death ends its own connections only; each call has a line."""
    options = ("--workers", "2", "--pep", "lean")
    with serving(tmp_path / "guard", options=options) as guard:
        before = workers_of(guard)
        with Load(guard.port, agents=CLIENTS) as load:
            load.wait_for(20)
            guard.process.send_signal(signal.SIGUSR2)
            wait_until(
                lambda: events(guard, "guard.workers_replaced"), "the replacement", START_SECONDS
            )
            load.wait_for(20)
            lost, after = list(load.failures), workers_of(guard)
            os.kill(after[1] or 0, signal.SIGKILL)
            wait_until(lambda: events(guard, "guard.worker_lost"), "the loss")
            wait_until(
                lambda: workers_of(guard)[1] not in {None, after[1]}, "its heir", START_SECONDS
            )
            load.wait_for(20)

        assert lost == []
        assert not {None, *before} & {*after}
        assert len(load.failures) <= CLIENTS
        assert [line["worker"] for line in events(guard, "guard.worker_lost")] == [1]
        assert len(events(guard, "guard.decision")) >= len(load.released)
