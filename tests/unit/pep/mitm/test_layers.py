"""The watchdog closes idle clients, and never one that waits for an answer."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest
from mitmproxy.proxy import server

from guard.pep.mitm import layers


class Handler:
    """Stands for a connection handler: what the watchdog knows of it."""

    def __init__(self):
        self.client = SimpleNamespace(id="c1")
        self.closed = asyncio.Event()

    async def on_timeout(self):
        self.closed.set()


@pytest.fixture
def slept(monkeypatch):
    """Make every sleep end at once, with the time-out passed; return how often that was."""
    sleeps = []
    real = asyncio.sleep
    now = [1000.0]

    async def sleep(seconds):
        sleeps.append(seconds)
        now[0] += max(seconds, 0)
        await real(0)

    monkeypatch.setattr(layers.asyncio, "sleep", sleep)
    monkeypatch.setattr(layers.time, "time", lambda: now[0])
    return sleeps


@pytest.mark.parametrize("awaited", [False, True])
async def test_an_idle_client_is_closed_unless_it_waits_for_an_answer(slept, monkeypatch, awaited):
    """A stream may be quiet for longer than the time-out, until nothing is awaited any more."""
    handler = Handler()
    watchdog = layers.PatientWatchdog(600, handler.on_timeout)
    watchdog.last_activity = 1000.0
    monkeypatch.setattr(layers, "AWAITED", Counter(c1=awaited))
    watching = asyncio.ensure_future(watchdog.watch())
    while awaited and len(slept) < 5:
        await asyncio.tasks.sleep(0)
    assert not handler.closed.is_set()
    layers.AWAITED.clear()
    await watching

    assert handler.closed.is_set()
    assert awaited or slept == [600]


def test_mitmproxy_starts_the_guard_s_watchdog_after_install():
    """A mitmproxy that took another one would cut quiet streams: the self-check sees it."""
    layers.install()
    layers.verify()

    assert server.ConnectionHandler.__init__.__globals__["TimeoutWatchdog"] is (
        layers.PatientWatchdog
    )
