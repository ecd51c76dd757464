"""A client that does not read makes the worker hold a bounded number of bytes, and is closed."""

import asyncio
import socket
import ssl
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

from guard.core.metrics import SLOW_CLIENTS
from guard.credentials.authority import CERTIFICATE_FILE
from guard.pep.lean.client_tls import ClientTls
from guard.pep.lean.connections import STALL_SECONDS, STREAMED, ClientConnection
from guard.pep.lean.pep import LeanPep
from guard.pep.lean.upstream_requests import Inbound
from guard.pipeline.admission import Limits
from guard.pipeline.exchange import RefusedConnections
from guard.settings import Listener
from tests.guards import Counts, Lines, until

STREAM = ("127.0.0.1:8080", "alice", "one")
MESSAGE = b"x" * 8192
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
MANY = 4000
"""Messages that are 32 MB together."""
KERNEL = 16 * 1024
"""Bytes that the kernel is to keep of each direction of a connection."""
_PATIENCE = 60


class Stage:
    """A PEP whose requests a test answers, and clients that read only when they are told to.

    Args:
        answers: serves a request of a client.
        inbound: bounds of the PEP.
    """

    def __init__(self, answers=None, **inbound):
        self.metrics = Counts()
        enforcement = SimpleNamespace(
            streams=[],
            body_limit=1 << 24,
            requests=SimpleNamespace(),
            admission=SimpleNamespace(limits=Limits()),
            sockets=None,
            refused_connections=RefusedConnections(Lines(), self.metrics),
        )
        self.pep = LeanPep(enforcement, self.metrics, [], Inbound(**inbound))
        self.clients = []
        self.served = 0
        self._answers = answers
        self.pep.serve = self._serve

    async def _serve(self, client, request):
        del request
        self.served += 1
        if self._answers is not None:
            await self._answers(client)
        return True

    @asynccontextmanager
    async def client(self, principal="alice", *, is_admitted=True):
        """Yield a connected socket that nobody reads; its connection is the last of `clients`."""
        listener = Listener.parse("127.0.0.1:0=http://127.0.0.1:1")

        def made():
            self.clients.append(ClientConnection(self.pep, (listener,)))
            self.clients[-1].principal = principal
            return self.clients[-1]

        loop = asyncio.get_running_loop()
        place = socket.create_server(("127.0.0.1", 0))
        place.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL)
        server = await loop.create_server(made, sock=place)
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL)
            own.setblocking(False)
            before = len(self.clients)
            await loop.sock_connect(own, place.getsockname())
            await until(
                lambda: (
                    len(self.clients) > before
                    and (self.clients[-1] in self.pep._clients) is is_admitted
                )
            )
            try:
                yield own
            finally:
                server.close()
                self.clients[before].abort()

    def slow(self):
        """Count the slow clients by why."""
        found = (labels for metric, *labels in self.metrics.counted if metric is SLOW_CLIENTS)
        return Counter(why for [why] in found)

    def waiting(self, client):
        """Return the bytes that a connection holds for its client."""
        return 0 if client.is_lost else client.waiting


async def test_messages_into_a_stream_that_nobody_reads_are_bounded_and_end_it():
    """However many refusals come on other connections, no more than the bound is held."""
    stage = Stage()
    async with stage.client():
        [client] = stage.clients
        client.streams = client.chunked = True
        stage.pep._streams[STREAM] = client
        for _ in range(MANY):
            if not stage.pep._send_into(STREAM, MESSAGE):
                break
            assert stage.waiting(client) <= STREAMED + len(MESSAGE)
            await asyncio.sleep(0)

        assert stage.slow() == {"stream": 1}
        await until(lambda: client.is_lost)
        assert not stage.pep._send_into(STREAM, MESSAGE), "it is open no longer"
        assert stage.pep.budget.total == 0


async def test_over_tls_what_waits_is_counted_and_the_client_is_not_read(tmp_path):
    """Wherever it waits: in the TLS layer, or in the transport of the socket beneath."""
    size = len(MESSAGE) * 2000

    async def answers(client):
        await client.write(bytes(size))

    stage = Stage(answers=answers)
    stage.pep.tls = ClientTls(tmp_path / "ca", ())
    context = ssl.create_default_context(cafile=str(tmp_path / "ca" / CERTIFICATE_FILE))
    async with stage.client() as own:
        reader, writer = await asyncio.open_connection(
            sock=own.dup(), ssl=context, server_hostname="127.0.0.1", limit=1024
        )
        writer.write(REQUEST)
        [client] = stage.clients
        await until(lambda: stage.waiting(client) > 0)

        assert not client.transport.is_reading()
        assert stage.pep.budget.owned("alice") >= stage.waiting(client)
        assert await reader.readexactly(size) == bytes(size)
        await until(lambda: stage.pep.budget.total == 0)
        assert client.transport.is_reading()
        writer.close()


async def test_what_waits_for_clients_counts_and_who_holds_too_much_is_closed():
    """All of it together is bounded, and one principal leaves an eighth of it to others."""
    limit = 1 << 20

    async def answers(client):
        await client.write(bytes(limit // (4 if client.principal == "alice" else 8)))

    stage = Stage(held_limit=limit, answers=answers)
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        for number in range(1, 9):
            own = await stack.enter_async_context(stage.client())
            await loop.sock_sendall(own, REQUEST)
            await until(lambda n=number: stage.served == n)
            assert stage.pep.budget.owned("alice") <= limit - limit // 8
        closed = stage.slow()["no_room"]
        assert closed > 0
        other = await stack.enter_async_context(stage.client("bob"))
        await loop.sock_sendall(other, REQUEST)
        await until(lambda: stage.pep.budget.owned("bob") > 0)
        assert stage.slow() == {"no_room": closed}
        assert sum(map(stage.waiting, stage.clients)) <= stage.pep.budget.total <= limit


async def test_a_client_that_reads_nothing_for_long_is_closed_and_one_that_reads_is_not():
    """Time is what the sweep is told; what was read is what the kernel took."""

    async def answers(client):
        await client.write(MESSAGE * 64)

    stage = Stage(answers=answers)
    async with stage.client() as own, stage.client() as stuck:
        reads, stays = stage.clients
        loop = asyncio.get_running_loop()
        for one in (own, stuck):
            await loop.sock_sendall(one, REQUEST)
        await until(lambda: min(map(stage.waiting, stage.clients)) > 0)
        now = loop.time()
        stage.pep.sweep(now)
        held = stage.waiting(reads)
        async with asyncio.timeout(_PATIENCE):
            while stage.waiting(reads) >= held:
                await loop.sock_recv(own, 65536)
        stage.pep.sweep(now + STALL_SECONDS)
        await until(lambda: stays.is_lost)

        assert not reads.is_lost
        assert stage.slow() == {"stalled": 1}
        assert 0 < stage.pep.budget.owned("alice") < held, "what was read is counted no longer"
