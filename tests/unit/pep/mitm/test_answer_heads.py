"""Heads of answers behind mitmproxy: which go on at once, and which are looked at first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from mitmproxy.http import Headers
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.test import tflow

from guard.core.metrics import Metrics
from guard.pep.mitm.addon import EXCHANGE, FORWARDED_AT, GuardAddon
from guard.pep.mitm.layers import GuardedHttpStream
from guard.pipeline.response import LEADING, ResponseHandler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mitmproxy.http import HTTPFlow


class Observed(Metrics):
    """Keeps what is measured."""

    def __init__(self) -> None:
        self.names: list[object] = []

    def observe(self, metric: Any, value: float, *labels: Any) -> None:
        """Keep it."""
        self.names.append(metric)


@pytest.fixture(name="addon")
def _addon() -> GuardAddon:
    addon: GuardAddon = object.__new__(GuardAddon)
    vars(addon).update(_enforcement=SimpleNamespace(responses=ResponseHandler), _metrics=Observed())
    return addon


def flow_with(*fields: tuple[bytes, bytes]) -> HTTPFlow:
    """Return a forwarded request and the head of its answer."""
    flow = tflow.tflow(resp=True)
    flow.metadata |= {EXCHANGE: object(), FORWARDED_AT: 0.0}
    flow.response.headers = Headers(fields)
    return flow


def test_a_head_that_says_nothing_goes_on(addon: GuardAddon) -> None:
    """What is measured of it is measured; what the guard answers itself was never asked."""
    own = flow_with((b"location", b"/x"))
    del own.metadata[EXCHANGE]

    assert addon.passes_head(flow_with((b"content-type", b"application/json")))
    assert addon.passes_head(own)
    assert len(addon._metrics.names) == 1


@pytest.mark.parametrize(
    "field",
    [
        *((name.title().encode(), b"") for name in (*LEADING, "mcp-session-id")),
        (b"WWW-Authenticate", b"Bearer"),
        (b"Content-Type", b" Text/Event-Stream ; charset=utf-8"),
    ],
)
def test_a_head_that_says_something_is_looked_at(
    addon: GuardAddon, field: tuple[bytes, bytes]
) -> None:
    """Where it leads is labelled, a session is noted, and events are judged one by one."""
    assert not addon.passes_head(flow_with((b"x", b"y"), field))
    assert addon._metrics.names == []


def test_a_head_on_which_something_fails_is_looked_at(addon: GuardAddon) -> None:
    """The hook fails as well then, and blocks."""
    vars(addon)["_enforcement"] = None

    assert not addon.passes_head(flow_with())


@pytest.mark.parametrize("passes", [False, True])
def test_the_hook_is_called_for_heads_that_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    """Each hook is a task."""
    flow = flow_with()
    head, whole = http_layers.HttpResponseHeadersHook(flow), http_layers.HttpResponseHook(flow)

    def handled(*_: object) -> Iterator[object]:
        yield head
        yield whole

    monkeypatch.setattr(GuardedHttpStream.__mro__[1], "_handle_event", handled)
    monkeypatch.setattr(GuardedHttpStream, "passes_head", staticmethod(lambda _: passes))
    stream: GuardedHttpStream = object.__new__(GuardedHttpStream)
    stream.flow = flow

    assert list(stream._handle_event(SimpleNamespace())) == ([whole] if passes else [head, whole])
