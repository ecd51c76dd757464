"""A worker has no more connections than it may; an old idle one makes room for a new one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from guard.adapters.lean.connections import TOO_SOON, ClientConnection
from guard.adapters.lean.messages import RequestReader
from guard.adapters.lean.pep import IDLE_AT_LIMIT_SECONDS, LeanPep
from guard.core.errors import MessageError
from guard.core.metrics import Metrics
from guard.enforcement.admission import Limits
from guard.protocols.http.message import HttpReply
from guard.settings import Listener


class Client:
    """A connection that was heard some seconds ago."""

    sockname = ("127.0.0.1", 8080)

    def __init__(self, heard: float, *, is_idle: bool) -> None:
        self.heard = heard
        self.is_idle = is_idle
        self.aborted = False

    def abort(self) -> None:
        """End."""
        self.aborted = True


@pytest.fixture(name="noted")
def _noted() -> list[MessageError]:
    return []


@pytest.fixture(name="pep")
def _pep(noted: list[MessageError]) -> Any:
    return _made(noted, connections=2)


def _made(noted: list[MessageError], **options: Any) -> LeanPep:
    requests = SimpleNamespace(note=lambda error, _: noted.append(error))
    admission = SimpleNamespace(limits=Limits())
    enforcement = SimpleNamespace(
        streams=[], body_limit=1000, requests=requests, admission=admission
    )
    return LeanPep(enforcement, Metrics(), [], **options)  # type: ignore[arg-type]


def test_beyond_the_limit_a_connection_is_refused_and_recorded(pep: Any, noted: Any) -> None:
    """Those that are open are at work, so none of them has to go."""
    busy = [Client(0.0, is_idle=False), Client(0.0, is_idle=False)]
    assert [pep.came(one) for one in busy] == [True, True]

    assert not pep.came(Client(100.0, is_idle=True))
    assert not any(one.aborted for one in busy)
    assert [(error.code, error.retry_after) for error in noted] == [("overloaded", 1)]
    pep.left(busy[0])
    assert pep.came(Client(100.0, is_idle=True))


def test_a_connection_that_is_idle_for_long_makes_room(pep: Any, noted: Any) -> None:
    """One that was used a moment ago does not."""
    old, fresh = Client(0.0, is_idle=True), Client(100.0, is_idle=True)
    assert pep.came(fresh)
    assert pep.came(old)

    assert pep.came(Client(IDLE_AT_LIMIT_SECONDS + 1, is_idle=True))
    assert (old.aborted, fresh.aborted) == (True, False)
    assert not noted


@pytest.mark.parametrize("has_waited", [True, False])
async def test_who_was_refused_at_once_rests_and_who_has_waited_for_it_does_not(
    noted: list[MessageError], monkeypatch: pytest.MonkeyPatch, *, has_waited: bool
) -> None:
    """Else a client that asks again at once would be refused again at once."""
    pep = _made(noted)
    loop, clock = asyncio.get_running_loop(), [5.0]
    monkeypatch.setattr(loop, "time", lambda: clock[0])

    async def refused(_: object) -> HttpReply:
        clock[0] += TOO_SOON * pep.patience * has_waited
        return HttpReply(503, "text/plain", b"later", (("retry-after", "7"),))

    enforcement: Any = pep._enforcement
    enforcement.requests.on_holdable_request = refused
    enforcement.where_it_is_read = lambda reply, _: reply
    enforcement.sockets = SimpleNamespace(accepts=False)
    client = ClientConnection(pep, (Listener.parse("127.0.0.1:8080=http://127.0.0.1:1"),))
    sent: list[bytes] = []
    client.transport = SimpleNamespace(write=sent.append)  # type: ignore[assignment]
    reader = RequestReader(1000)
    reader.feed(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")

    assert await pep.serve(client, reader.complete.popleft())
    assert b"retry-after: 7\r\n" in sent[0]
    assert client.rests == (0 if has_waited else 7)
