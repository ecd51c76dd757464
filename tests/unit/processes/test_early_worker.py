"""What a worker is told that began before its supervisor knew."""

import os
import socket
import sys
from typing import Any

import pytest

from guard.processes import early_worker
from guard.processes.early_worker import EarlyWorker, heard_sockets


class Process:
    """Stands for a worker process that has its end of the channel."""

    def __init__(self, channel: int) -> None:
        self.input = os.fdopen(os.dup(channel))
        self.stdin: Any = None
        self.is_killed = False

    def kill(self) -> None:
        self.is_killed = True

    def wait(self) -> None:
        """It ends at once."""


@pytest.fixture
def begun(monkeypatch, tmp_path):
    """Return a worker that began early, and its process."""
    started: list[Process] = []

    def start(*arguments: str, stdin: int) -> Process:
        started.append(Process(stdin))
        return started[0]

    monkeypatch.setattr(early_worker, "start_worker", start)
    early = EarlyWorker(tmp_path / "worker-0")
    monkeypatch.setattr(sys, "stdin", started[0].input)
    yield early, started[0]
    early.end()
    started[0].input.close()


def test_sockets_the_url_and_settings_arrive_in_their_order(begun):
    """Each socket under a number of the worker's own, so that it knows them by their places."""
    early, process = begun
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as two:
        early.tell("unix:///run/redis.sock", [two, one])
        process.stdin.write(b"{}\n")
        process.stdin.close()

        heard = [socket.socket(fileno=number) for number in heard_sockets()]

        assert [x.getsockname() for x in heard] == [two.getsockname(), one.getsockname()]
        assert sys.stdin.read() == "unix:///run/redis.sock\n{}\n"
        for found in heard:
            found.close()


def test_a_worker_that_nobody_will_tell_anything_ends(begun):
    """Its supervisor could not begin, or has died."""
    early, process = begun

    early.end()

    assert process.is_killed
    with pytest.raises(EOFError):
        heard_sockets()
