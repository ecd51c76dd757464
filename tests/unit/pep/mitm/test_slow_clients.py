"""What waits for a client behind mitmproxy is bounded, and who does not read is closed."""

import asyncio
import socket
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from mitmproxy.connection import Client
from mitmproxy.options import Options
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode

from guard.pep.message_budget import MessageBudget
from guard.pep.mitm import layers as slow_clients
from guard.pep.mitm.layers import SlowClients
from tests.guards import until

LIMIT = 1 << 20
SECONDS = 60


class Stage:
    """Connections that nobody reads, and what watches them."""

    def __init__(self, held=1 << 26):
        self.budget = MessageBudget(held)
        self.closed = Counter()
        self.output = SlowClients(self.budget)
        self.output.limit = LIMIT
        self.output.principal = lambda _: "alice"
        self.output.count = lambda why: self.closed.update([why])

    @asynccontextmanager
    async def handler(self, name="c1", alpn=b""):
        """Yield what stands for a connection's handler; its other end is ``own``."""
        own, theirs = socket.socketpair()
        for one in (own, theirs):
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        _, writer = await asyncio.open_connection(sock=theirs)
        client = Client(peername=("a", 1), sockname=("b", 2), timestamp_start=0.0)
        client.id, client.alpn = name, alpn
        transports = {client: SimpleNamespace(writer=writer)}
        context = Context(client, Options())
        layer = HttpLayer(context, HTTPMode.transparent)
        handler = SimpleNamespace(client=client, transports=transports, layer=layer, own=own)
        try:
            yield handler
        finally:
            own.close()
            writer.transport.abort()
            # Only its own watcher: those of connections that are still open go on for a minute.
            if (watcher := self.output._watched.get(name)) is not None:
                await asyncio.gather(watcher, return_exceptions=True)

    def write(self, handler, data):
        """Send as a layer does, and look as the handler does."""
        handler.transports[handler.client].writer.write(data)
        self.output.look(handler)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(slow_clients, "LOOK_SECONDS", 0)


async def test_all_that_waits_counts_towards_the_budget():
    """One principal leaves an eighth of it."""
    stage = Stage(held=LIMIT)
    async with stage.handler("a") as a, stage.handler("b") as b:
        stage.write(a, bytes(LIMIT // 2))
        stage.write(b, bytes(LIMIT // 2))
        assert stage.closed == {"no_room": 1}
        assert stage.budget.total <= LIMIT - LIMIT // 8


async def test_a_client_that_takes_nothing_for_long_is_closed(
    monkeypatch,
):
    """A minute, which here is none."""
    monkeypatch.setattr(slow_clients, "STALL_SECONDS", 0)
    stage = Stage()
    async with stage.handler() as handler:
        stage.write(handler, bytes(LIMIT))
        await until(lambda: stage.budget.total == 0)
        assert stage.closed == {"stalled": 1}
