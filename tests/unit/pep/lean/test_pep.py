"""A worker has no more connections than it may; an old idle one makes room for a new one."""

import asyncio

import pytest

from guard.core.metrics import REFUSALS
from guard.pep.lean.connections import BUSY, NAP
from tests.guards import until
from tests.unit.pep.lean.test_slow_readers import REQUEST, Stage

LONG = 3600


class Client:
    """A connection that was heard some seconds ago."""

    sockname = ("127.0.0.1", 8080)

    def __init__(self, heard, *, is_idle):
        self.heard = heard
        self.is_idle = is_idle
        self.aborted = False

    def abort(self):
        """End."""
        self.aborted = True


@pytest.mark.parametrize(("is_idle", "heard", "left"), [(False, 0.0, 2), (True, 0.0, 1)])
async def test_beyond_the_limit_an_old_idle_connection_goes_or_the_new_one(is_idle, heard, left):
    """Those that are at work stay; each that is refused is counted."""
    stage = Stage(connections=2)
    first = [Client(heard, is_idle=is_idle), Client(heard, is_idle=False)]
    assert [stage.pep.admits(one) for one in first] == [True, True]

    new = [stage.pep.admits(Client(100.0, is_idle=False)) for _ in range(500)]

    assert sum(new) == 2 - left
    assert [one.aborted for one in first] == [is_idle, False]
    assert stage.metrics.counted.count((REFUSALS, "overloaded")) == 500 - sum(new)
    stage.pep.closed(first[1])
    assert stage.pep.admits(Client(100.0, is_idle=True))


async def test_a_connection_without_room_is_told_so_and_never_read():
    """Nothing that it sends is a request."""
    stage = Stage(connections=1)
    async with stage.client(), stage.client(is_admitted=False) as own:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(own, REQUEST)
        assert await loop.sock_recv(own, 2 * len(BUSY)) == BUSY
        assert stage.served == 0


async def test_what_a_client_sends_before_its_time_is_not_served():
    """Of two requests the first is answered; its client rests, and little more of it is read."""

    async def answers(client):
        client.rests = LONG
        await client.write(b"later")

    stage = Stage(answers=answers)
    async with stage.client() as own:
        [client] = stage.clients
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(own, REQUEST + REQUEST)
        assert await loop.sock_recv(own, 9) == b"later"
        await until(lambda: client.is_idle)  # A stop need not wait for it.
        assert client.transport.is_reading()
        head = REQUEST.replace(b"\r\n\r\n", b"\r\ncontent-length: %d\r\n\r\n" % (9 * NAP))
        sending = asyncio.ensure_future(loop.sock_sendall(own, head + bytes(9 * NAP)))
        await until(lambda: not client.transport.is_reading())
        sending.cancel()
        assert stage.served == 1


@pytest.mark.parametrize("sent", [b"", REQUEST])
async def test_connections_without_a_request_do_not_hold_up_the_end(monkeypatch, sent):
    """Neither one that never sent any, nor one whose request has been answered."""
    monkeypatch.setattr("guard.pep.lean.pep.FAREWELL_SECONDS", 0)

    async def answers(client):
        await client.write(b"done")

    stage = Stage(answers=answers)
    async with stage.client() as own, asyncio.timeout(60):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(own, sent)
        if sent:
            assert await loop.sock_recv(own, 9) == b"done"
        await until(lambda: stage.clients[0].is_idle)
        await stage.pep.drain(LONG)
        assert await loop.sock_recv(own, 9) == b""
        await stage.pep.close()
