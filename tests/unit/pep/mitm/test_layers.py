"""The watchdog closes idle clients, and never one that waits for an answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from mitmproxy.connection import Client, Server
from mitmproxy.options import Options
from mitmproxy.proxy import commands, events, server
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import http

from guard.pep.mitm import layers


class Handler:
    """Stands for a connection handler: what the watchdog knows of it."""

    def __init__(self) -> None:
        self.client = SimpleNamespace(id="c1")
        self.closed = asyncio.Event()

    async def on_timeout(self) -> None:
        self.closed.set()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make every sleep end at once, with the time-out passed; return how often that was."""
    sleeps: list[float] = []
    real = asyncio.sleep
    now = [1000.0]

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now[0] += max(seconds, 0)
        await real(0)

    monkeypatch.setattr(layers.asyncio, "sleep", sleep)
    monkeypatch.setattr(layers.time, "time", lambda: now[0])
    return sleeps


async def test_an_idle_client_is_closed_after_the_time_out(slept: list[float]) -> None:
    """A keep-alive connection nobody uses does not stay for ever."""
    handler = Handler()
    watchdog = layers.PatientWatchdog(600, handler.on_timeout)
    watchdog.last_activity = 1000.0

    await watchdog.watch()

    assert handler.closed.is_set()
    assert slept == [600]


async def test_a_client_that_waits_for_an_answer_is_not_idle(slept: list[float]) -> None:
    """A stream may be quiet for longer than the time-out; it is closed once nothing is awaited."""
    handler = Handler()
    watchdog = layers.PatientWatchdog(600, handler.on_timeout)
    watchdog.last_activity = 1000.0
    layers.AWAITED["c1"] += 1
    try:
        watching = asyncio.ensure_future(watchdog.watch())
        while len(slept) < 5:
            await asyncio.tasks.sleep(0)
        assert not handler.closed.is_set()
    finally:
        del layers.AWAITED["c1"]
    await watching

    assert handler.closed.is_set()


def test_mitmproxy_starts_the_guard_s_watchdog_after_install() -> None:
    """A mitmproxy that took another one would cut quiet streams: the self-check sees it."""
    layers.install()
    layers.verify()

    assert server.ConnectionHandler.__init__.__globals__["TimeoutWatchdog"] is (
        layers.PatientWatchdog
    )


def test_head_and_body_of_a_message_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write is a packet, and wakes its reader."""
    client, upstream = Client(peername=("a", 1), sockname=("b", 2)), Server(address=("c", 3))
    said = [
        commands.SendData(upstream, b"head "),
        commands.SendData(upstream, b"body"),
        commands.SendData(client, b"100 "),
        commands.Log("between"),
        commands.SendData(client, b"200"),
        commands.CloseConnection(client),
    ]
    monkeypatch.setattr(layers.layer.Layer, "handle_event", lambda *_: iter(said))
    layers.install()
    http_layer = http.HttpLayer(Context(client, Options()), http.HTTPMode.regular)

    done = list(http_layer.handle_event(events.Start()))

    assert [getattr(one, "data", type(one)) for one in done] == [
        b"head body",
        b"100 ",
        commands.Log,
        b"200",
        commands.CloseConnection,
    ]


def test_what_is_sent_last_is_not_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event of a stream goes out when it comes."""
    client = Client(peername=("a", 1), sockname=("b", 2))
    said = [commands.Log("before"), commands.SendData(client, b"event")]
    monkeypatch.setattr(layers.layer.Layer, "handle_event", lambda *_: iter(said))
    layers.install()
    http_layer = http.HttpLayer(Context(client, Options()), http.HTTPMode.regular)

    assert list(http_layer.handle_event(events.Start()))[-1].data == b"event"  # type: ignore[attr-defined]
