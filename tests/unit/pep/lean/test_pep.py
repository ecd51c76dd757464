"""A worker has no more connections than it may; an old idle one makes room for a new one."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from guard.core.errors import AuditError
from guard.core.metrics import ERRORS, REFUSALS, Metrics
from guard.pep.lean.connections import ClientConnection
from guard.pep.lean.pep import LeanPep
from guard.pep.lean.upstream_requests import Inbound
from guard.pipeline.admission import Limits
from guard.pipeline.exchange import ADDRESSES, RefusedConnections
from guard.settings import Listener
from tests.guards import Counts, Lines, until


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


class Audit(Lines):
    """Knows by which threads lines were written."""

    def __init__(self):
        super().__init__()
        self.threads = set()

    def event(self, name, fields):
        """Keep a line."""
        super().event(name, fields)
        self.threads.add(threading.get_ident())


@pytest.fixture(name="noted")
def _noted():
    return Audit(), Counts()


@pytest.fixture(name="pep")
def _pep(noted):
    return _made(noted, connections=2)


def _made(noted, **options):
    audit = noted[0]
    admission = SimpleNamespace(limits=Limits())
    enforcement = SimpleNamespace(
        streams=[],
        body_limit=1000,
        requests=SimpleNamespace(),
        admission=admission,
        sockets=None,
        refused_connections=RefusedConnections(audit, noted[1]),
    )
    return LeanPep(enforcement, Metrics(), [], Inbound(**options))


REFUSED = (REFUSALS, "overloaded")


async def test_beyond_the_limit_connections_are_refused_counted_and_recorded_in_one_line(
    pep, noted
):
    """Those that are open are at work, so none of them has to go; a thread writes the line."""
    busy = [Client(0.0, is_idle=False), Client(0.0, is_idle=False)]
    assert [pep.admits(one) for one in busy] == [True, True]

    assert not any(pep.admits(Client(100.0, is_idle=True)) for _ in range(500))
    assert not any(one.aborted for one in busy)
    audit, counted = noted
    assert counted.counted.count(REFUSED) == 500
    assert audit.events == [], "nothing is written while connections come"
    summary = pep._enforcement.refused_connections
    audit.error = AuditError("the disk is full")
    await summary.write()
    audit.error = None
    await summary.write()
    await summary.write()
    line = {"server": "127.0.0.1:8080", "code": "overloaded", "action": "block", "count": 500}
    assert audit.events == [("guard.connections_refused", line)]
    assert threading.get_ident() not in audit.threads
    assert counted.counted.count((ERRORS, "audit")) == 1
    pep.closed(busy[0])
    assert pep.admits(Client(100.0, is_idle=True))


async def test_the_lines_about_refused_connections_are_bounded_by_address(
    noted,
):
    """However many addresses a machine has, an interval has a bounded number of lines."""
    audit = noted[0]
    summary = RefusedConnections(audit, noted[1])
    for number in range(10 * ADDRESSES):
        summary.add(f"[::{number:x}]:80")
    await summary.write()
    assert len(audit.events) == ADDRESSES + 1
    assert sum(fields["count"] for _, fields in audit.events) == 10 * ADDRESSES


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"])
async def test_connections_without_a_request_do_not_hold_up_the_end(noted, monkeypatch, sent):
    """Neither one that never sent any, nor one whose request has been answered."""
    monkeypatch.setattr("guard.pep.lean.pep.FAREWELL_SECONDS", 0)
    pep = _made(noted)

    async def serve(client, request):
        del request
        await client.write(b"done")
        return True

    monkeypatch.setattr(pep, "serve", serve)
    loop = asyncio.get_running_loop()
    listener = Listener.parse("127.0.0.1:0=http://127.0.0.1:1")
    server = await loop.create_server(lambda: ClientConnection(pep, (listener,)), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(sent)
    if sent:
        assert await reader.readexactly(4) == b"done"
    async with asyncio.timeout(60):
        await until(lambda: pep._clients and all(one.is_idle for one in pep._clients))
        await pep.drain(3600)
        assert await reader.read() == b""
    writer.close()
    server.close()
    await pep.close()
