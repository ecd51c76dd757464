"""How a worker waits for what comes next."""

import asyncio
import socket
import sys

import pytest

from guard.processes.event_loop import new_loop

if sys.platform != "linux":
    pytest.skip("epoll is Linux'", allow_module_level=True)


def test_a_loop_that_polls_serves_like_any_other():
    """Sockets, timers and other threads wake it."""

    async def work():
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
