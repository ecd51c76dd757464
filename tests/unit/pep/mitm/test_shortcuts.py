"""What mitmproxy is asked for in fewer steps is what it would have said."""

from __future__ import annotations

import random

import pytest
from mitmproxy.coretypes.multidict import _MultiDict
from mitmproxy.http import Headers
from mitmproxy.options import Options
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import Layer
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers.http import HttpRequestHook
from mitmproxy.test.tflow import tclient_conn, tflow

from guard.pep.mitm import layers, shortcuts

NAMES = (
    *(b"Host", b"host", b"HOST", b"x-\xc3\xa9", b"X-\xe9", b"accept"),
    *(b"Set-Cookie", b"", b"\xc4"),
)
ASKED: tuple[str | bytes, ...] = (
    *("host", "Host", b"hOsT", "x-é", b"X-\xe9", "accept"),
    *("set-cookie", "none", "", b"\xe4", "\udce9"),
)


def as_mitmproxy(headers: Headers, name: str | bytes) -> list[str]:
    """Return the values of a header as mitmproxy's own method does."""
    key = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    values: list[bytes] = _MultiDict.get_all(headers, key)
    return [value.decode("utf-8", "surrogateescape") for value in values]


@pytest.mark.parametrize("seed", range(40))
def test_headers_are_found_as_mitmproxy_finds_them(seed: int) -> None:
    """By any spelling of a name, whatever bytes there are in names and values."""
    draw = random.Random(seed)
    fields = [
        (draw.choice(NAMES), draw.choice((b"", b"a", b"\xff\xfe", "é".encode())))
        for _ in range(draw.randrange(8))
    ]
    headers = Headers(fields)

    for name in ASKED:
        found = as_mitmproxy(headers, name)
        assert shortcuts.get_all(headers, name) == found
        assert shortcuts.get(headers, name) == (", ".join(found) if found else None)
        assert shortcuts.get(headers, name, "-") == (", ".join(found) if found else "-")
        assert shortcuts.contains(headers, name) == bool(found)


def test_what_is_no_name_is_no_header() -> None:
    """mitmproxy says so by way of an exception."""
    assert not shortcuts.contains(Headers([(b"a", b"b")]), 1)


def test_options_that_are_read_often_are_looked_up_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They say what they said; others are asked for as ever."""
    options = Options(mode=["reverse:http://a.test"])
    for name in shortcuts.READ_OFTEN:
        options.add_option(name, str, f"its {name}", "")
    shortcuts.settle(options)
    asked: list[str] = []
    current = type(options).__getattr__
    monkeypatch.setattr(
        type(options), "__getattr__", lambda self, name: asked.append(name) or current(self, name)
    )

    said = [getattr(options, name) for name in shortcuts.READ_OFTEN]
    assert said == [f"its {name}" for name in shortcuts.READ_OFTEN]
    assert asked == []
    options.update(mode=[])
    assert options.mode == []


def test_a_branch_has_the_same_connections_and_its_own_layers() -> None:
    """No part of it is left at what a context begins with."""
    context = Context(tclient_conn(), Options())
    context.layers.append(Layer(context))
    made = shortcuts.branched(context)

    assert type(made) is Context
    assert vars(made) == vars(context)
    assert made.server is context.server
    assert made.layers is not context.layers


def test_a_hook_gives_its_fields() -> None:
    """In their order; the guard's own give themselves."""
    flow = tflow()

    assert shortcuts.args(HttpRequestHook(flow)) == [flow]
    hook = layers.GuardHeldHook(flow)
    layers.install()
    assert hook.args() == [hook]
    assert HttpRequestHook(flow).args() == [flow]


def test_they_are_what_mitmproxy_uses() -> None:
    """The layers are installed with them."""
    layers.install()

    assert http_layers.HttpStream is layers.GuardedHttpStream
    assert Headers.get is shortcuts.get
    assert vars(Context)["fork"] is shortcuts.branched
    assert "host" in Headers(host="a")
