"""The supervisor passes signals on to the process that can act on them."""

import signal

from guard.settings import Settings
from guard.supervisor import Supervisor


class Worker:
    """Stands for a worker process; notes the signals sent to it."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def send_signal(self, number: int) -> None:
        self.received.append(number)


def test_a_hang_up_before_the_first_heartbeat_reaches_the_worker_after_it(tmp_path):
    """A worker that has no handler yet would end of it; an operator's reload is not lost."""
    supervisor = Supervisor(Settings(policy=tmp_path))
    worker = Worker()

    supervisor._on_hangup(signal.SIGHUP, None)
    supervisor._pass_on_hangup(worker)
    before = list(worker.received)
    supervisor._beating = True
    supervisor._pass_on_hangup(worker)
    supervisor._pass_on_hangup(worker)

    assert before == []
    assert worker.received == [signal.SIGHUP]
