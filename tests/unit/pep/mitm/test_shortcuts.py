"""What mitmproxy is asked for in fewer steps is what it would have said."""

from __future__ import annotations

import random

import pytest
from mitmproxy.coretypes.multidict import _MultiDict
from mitmproxy.http import Headers
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import http as http_layers

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


def test_they_are_what_mitmproxy_uses() -> None:
    """The layers are installed with them."""
    layers.install()

    assert http_layers.HttpStream is layers.GuardedHttpStream
    assert Headers.get is shortcuts.get
    assert vars(Context)["fork"] is shortcuts.branched
    assert "host" in Headers(host="a")
