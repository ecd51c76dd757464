"""A load that works in bursts only, against a server that counts."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing

import pytest

from guard.core.errors import GuardError
from lab import load
from lab.load import PausedLoad, Responder

GENERATORS = [
    pytest.param("wrk", marks=pytest.mark.programs("wrk")),
    "asyncio",
]


class Counted:
    """A server in a thread of its own."""

    def __init__(self, status: bytes = b"200 OK") -> None:
        counted = self

        class Counting(Responder):
            def connection_made(self, transport: asyncio.WriteTransport) -> None:
                super().connection_made(transport)
                counted.open.add(transport)

            def connection_lost(self, error: Exception | None) -> None:
                counted.open.discard(self._transport)

            def answer(self, head: bytes, body: bytes) -> bytes:
                counted.calls += 1
                return super().answer(head, body).replace(b"200 OK", status, 1)

        self.calls = 0
        self.open: set[asyncio.WriteTransport] = set()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            self._loop.create_server(Counting, "127.0.0.1", 0)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    async def _end(self) -> None:
        self._server.close()
        while self.open:
            for transport in self.open:
                transport.abort()
            await asyncio.sleep(0)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def burst_until(load: PausedLoad, server: Counted, calls: int) -> None:
    """Have a load work until a server has counted so many calls."""
    while server.calls < calls:
        load.burst(0.05)


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_load_works_in_its_bursts(generator, monkeypatch):
    """Of two loads on two servers, the one that has no turn sends nothing."""
    monkeypatch.setattr(load, "generator", lambda: generator)
    with (
        closing(Counted()) as first,
        closing(Counted()) as second,
        PausedLoad(first.port, 4) as here,
        PausedLoad(second.port, 4) as there,
    ):
        burst_until(here, first, first.calls + 100)
        burst_until(there, second, second.calls + 100)
        # What it had sent is answered by now.
        before = second.calls
        burst_until(here, first, first.calls + 100)

        assert second.calls - before <= 4


@pytest.mark.parametrize("generator", GENERATORS)
def test_calls_that_fail_are_told_in_the_end(generator, monkeypatch):
    """Else refusals would be measured for calls."""
    monkeypatch.setattr(load, "generator", lambda: generator)
    with (
        closing(Counted(b"503 Service Unavailable")) as server,
        pytest.raises(GuardError, match=r"\d+ of the calls failed"),
        PausedLoad(server.port, 2) as refused,
    ):
        burst_until(refused, server, 20)
