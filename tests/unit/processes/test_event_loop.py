"""How a worker waits for what comes next."""

import asyncio
import os
import selectors
import socket
import sys

import pytest

from guard.processes.event_loop import new_loop

if sys.platform != "linux":
    pytest.skip("epoll is Linux'", allow_module_level=True)

from guard.processes.event_loop import PollingSelector

LOOKS = 10
ASLEEP = 60.0


class Kernel:
    """Stands for epoll, and for the time: each look takes some, and sleep until something comes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.comes = 0.0
        self.asked: list[float | None] = []
        self.slow = 1
        self.answers = False
        """Whether what comes does so once nobody looks."""
        monkeypatch.setattr(selectors.EpollSelector, "select", self.select)
        self.selector = PollingSelector(LOOKS, lambda: self.now)

    def select(self, timeout: float | None = None) -> list[str]:
        """Return what has come."""
        self.asked.append(timeout)
        if timeout and self.answers:
            self.comes = self.now + 1
        self.now = self.now + self.slow if timeout == 0 else max(self.now, self.comes)
        return ["news"] if self.now >= self.comes else []

    def wait(self, until: float) -> list[float | None]:
        """Wait for what comes after so long; return how the kernel was asked for it."""
        self.asked, self.comes = [], self.now + until
        assert self.selector.select(ASLEEP) == ["news"]
        return self.asked


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """A kernel that does as it is told."""
    return Kernel(monkeypatch)


@pytest.mark.parametrize(
    ("microseconds", "workers", "cores", "polls"),
    [(200, 1, 2, True), (0, 1, 2, False), (200, 1, 1, False), (200, 2, 2, False)],
)
def test_only_a_worker_with_a_core_to_spare_polls(
    microseconds: int, workers: int, cores: int, polls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis and the servers on the same machine need one to answer on."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    loop = new_loop(microseconds / 1e6, workers)
    try:
        assert isinstance(loop, asyncio.SelectorEventLoop)
        assert isinstance(loop._selector, PollingSelector) == polls
    finally:
        loop.close()


def test_a_loop_that_polls_serves_like_any_other() -> None:
    """Sockets, timers and other threads wake it."""

    async def work() -> str:
        loop = asyncio.get_running_loop()
        near, far = await asyncio.open_connection(sock=_pair[0])
        far.write(b"ping")
        loop.call_later(0.001, _pair[1].send, b"pong")
        answer = await near.readexactly(4)
        threaded = await asyncio.to_thread(_pair[1].recv, 4)
        far.close()
        return (answer + threaded).decode()

    _pair = socket.socketpair()
    with _pair[1], asyncio.Runner(loop_factory=lambda: new_loop(0.01, 1)) as runner:
        assert runner.run(work()) == "pongping"
