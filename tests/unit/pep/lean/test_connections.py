"""A client that was told to come back later is not read until then."""

import asyncio
import os
import ssl

from guard.pep.lean.connections import (
    BUSY,
    NAP,
    ClientConnection,
    connected,
    upstream_tls,
)
from guard.pep.message_budget import MessageBudget
from tests.e2e.tls_upstream import issue

CALL = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
LONG = 3600


class Transport(asyncio.Transport):
    """Remembers what it is told."""

    def __init__(self):
        super().__init__()
        self.told = []

    def get_extra_info(self, name, default=None):
        """Return where the client came in."""
        return ("127.0.0.1", 8080) if name == "sockname" else default

    def pause_reading(self):
        """Read no more."""
        self.told.append("pause")

    def resume_reading(self):
        """Read on."""
        self.told.append("resume")

    def set_write_buffer_limits(self, high=None, low=None):
        """Everything is taken at once."""

    def get_write_buffer_size(self):
        """Nothing waits."""
        return 0

    def write(self, data):
        """Take an answer."""
        self.told.append(bytes(data))

    def close(self):
        """Hang up."""
        self.told.append("close")

    def abort(self):
        """Break off."""
        self.told.append("abort")


class Serving:
    """Serves requests by telling their client to rest.

    Args:
        rests: seconds, of each request in turn; the last one's of those that follow, too.
        room: whether connections are taken.
        patience: seconds that a request may wait.
    """

    ANSWER = b"later"

    def __init__(self, *rests, room=True, patience=LONG):
        self.budget = MessageBudget()
        self.body_limit = 1000
        self.patience = patience
        self.tls = None
        self.served = 0
        self._rests = rests
        self._room = room
        self.tasks = []

    async def serve(self, client, request):
        """Serve one."""
        del request
        self.served += 1
        client.rests = self._rests[min(self.served, len(self._rests)) - 1]
        client.transport.write(self.ANSWER)
        return True

    async def refuse(self, client, error):
        """Refuse nothing."""

    def start(self, work):
        """Run a task."""
        self.tasks.append(asyncio.get_running_loop().create_task(work))
        return self.tasks[-1]

    def admits(self, client):
        """Say whether there is room."""
        del client
        return self._room

    def closed(self, client):
        """Note nothing."""

    def count_slow(self, why):
        """Count nothing."""


async def _turns():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_a_client_sends_before_its_time_is_not_served():
    """Of two requests the first is answered; its client rests, and then leaves."""
    pep, transport = Serving(LONG), Transport()
    pep.body_limit = 2 * NAP
    client = ClientConnection(pep, ())
    client.connection_made(transport)
    client.data_received(CALL + CALL)
    await _turns()

    assert pep.served == 1
    assert client.is_idle, "a stop need not wait for it"
    assert "pause" not in transport.told
    head = CALL.replace(b"Length: 2", b"Length: %d" % (2 * NAP)).removesuffix(b"{}")
    client.data_received(head + bytes(NAP - len(CALL + CALL)))
    assert "pause" not in transport.told
    client.data_received(bytes(len(CALL + CALL)))
    assert transport.told[-1] == "pause", "no more than a little is read"
    client.connection_lost(None)
    await asyncio.gather(*pep.tasks, return_exceptions=True)
    assert pep.served == 1


async def test_a_connection_without_room_is_told_so_and_never_read():
    """Nothing that it sends is a request."""
    pep, transport = Serving(0, room=False), Transport()
    client = ClientConnection(pep, ())
    client.connection_made(transport)
    client.data_received(CALL)
    await _turns()

    assert transport.told == [BUSY, "close"]
    assert pep.served == 0


async def test_tls_records_that_arrive_together_are_read_in_order(tmp_path):
    """Each byte of an answer is the server's, and none is of what was read before."""
    chain = issue(tmp_path / "ca.pem", "127.0.0.1")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(chain)
    body = os.urandom(200_000)

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    place = server.sockets[0].getsockname()[:2]
    async with server, asyncio.timeout(60):
        upstream = await connected(place, upstream_tls(str(tmp_path / "ca.pem")))
        answer = await upstream.ask("GET", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        received = b""
        while piece := await upstream.take(answer):
            received += piece
        upstream.close()

    assert received == body
