"""Hooks of forward listeners where something on their way fails: closed, never open."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest
from mitmproxy.connection import Client, Server
from mitmproxy.http import Headers, HTTPFlow, Request
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from guard.core.errors import MessageError
from guard.core.metrics import ERRORS
from guard.core.policy import EgressLimits
from guard.pep.mitm import forward
from guard.pep.mitm.forward import NOT_CONNECTED, ForwardAddon
from guard.pipeline.identity import Credentials
from guard.protocols.http.message import HttpReply
from tests.guards import Counts

LIMITS = EgressLimits()


def addon(limits=LIMITS):
    """Return the addon; its limits may be a callable."""
    requests = Mock(spec=["refuse", "note"])
    requests.refuse.side_effect = lambda error, *_, **__: HttpReply(error.status, "text", b"no")
    requests.note.return_value = "d1"
    enforcement = SimpleNamespace(body_limit=1000, credentials=Credentials(), requests=requests)
    return ForwardAddon(enforcement, Counts(), limits if callable(limits) else lambda: limits)


def refused(one):
    """Return the codes of what the addon has refused or noted."""
    return [given.args[0].code for given in one._enforcement.requests.mock_calls]


def client(mode="regular"):
    """Return a client connection."""
    return Client(
        peername=("127.0.0.1", 50000),
        sockname=("127.0.0.1", 8080),
        proxy_mode=ProxyMode.parse(mode),
        timestamp_start=0,
    )


def connecting(host, port=443, mode="regular"):
    """Return a connection about to be opened."""
    return ServerConnectionHookData(server=Server(address=(host, port)), client=client(mode))


def connect_flow(authority_host="files.example", port=443):
    """Return a CONNECT."""
    flow = HTTPFlow(client(), Server(address=None))
    flow.request = Request(
        authority_host, port, b"CONNECT", b"", b"", b"", b"HTTP/1.1", Headers(), b"", None, 0, 0
    )
    return flow


def resolving(monkeypatch, *answers):
    """Let names resolve to each answer in turn."""
    monkeypatch.setattr(forward, "resolve", AsyncMock(side_effect=answers))


async def test_the_checked_address_is_the_one_connected_to(monkeypatch):
    """The name is gone before the connection is opened, so a second look-up cannot change it."""
    resolving(monkeypatch, ["93.184.216.34"], ["127.0.0.1"])
    one, data = addon(), connecting("files.example")
    await one.server_connect(data)

    assert data.server.error is None
    assert data.server.address == ("93.184.216.34", 443)
    one.server_connected(data)
    assert data.server.address == ("files.example", 443)

    again = connecting("files.example")
    await one.server_connect(again)
    assert NOT_CONNECTED in again.server.error


async def test_a_name_for_a_further_proxy_is_looked_up_once_and_checked(monkeypatch):
    """What leads inside is refused; what only that proxy knows is left to it."""
    resolving(monkeypatch, ["10.0.0.7"], OSError("unknown here"), ["93.184.216.34"])
    one, behind = addon(), client("upstream:http://proxy.example:3128")

    for _ in range(2):
        with pytest.raises(MessageError) as caught:
            await one.check_name(behind, "files.example", 443)
        assert caught.value.code == "private_address"
    await one.check_name(behind, "only.there.example", 443)
    await one.check_name(behind, "public.example", 443)
    await one.check_name(client(), "files.example", 443)


@pytest.mark.parametrize(
    ("answer", "words", "counted"),
    [
        (["93.184.216.34", "169.254.169.254"], "metadata", []),
        (RuntimeError("boom"), NOT_CONNECTED, [(ERRORS, "hook")]),
        (asyncio.CancelledError(), NOT_CONNECTED, [(ERRORS, "hook")]),
    ],
    ids=["one bad address among good ones", "error", "cancelled"],
)
async def test_what_goes_wrong_in_a_hook_leaves_no_connection(monkeypatch, answer, words, counted):
    """mitmproxy logs a hook that raises and connects; so the error is set before."""
    resolving(monkeypatch, answer)
    one, data = addon(), connecting("files.example")
    is_cancelled = isinstance(answer, asyncio.CancelledError)
    with pytest.raises(asyncio.CancelledError) if is_cancelled else nullcontext():
        await one.server_connect(data)

    assert words in data.server.error
    assert one._metrics.counted == counted
    if words == "metadata":
        assert refused(one) == ["private_address"]
        place = one._enforcement.requests.note.call_args.args[1]
        assert (place.server, place.host) == ("127.0.0.1:8080", "files.example:443")


@pytest.mark.parametrize(
    ("mode", "host", "port", "opened"),
    [
        ("upstream:http://10.0.0.5:3128", "10.0.0.5", 3128, True),
        ("upstream:http://10.0.0.5:3128", "93.184.216.34", 443, False),
        ("regular", "93.184.216.34", 443, True),
        ("regular", "93.184.216.34", 22, False),
        ("regular", "10.0.0.5", 443, False),
    ],
)
async def test_each_listener_connects_where_it_may(mode, host, port, opened):
    """What the operator named is not checked for its address, and nothing else is open there."""
    data = connecting(host, port, mode)
    await addon().server_connect(data)

    assert (data.server.error is None) is opened


async def test_an_error_while_a_tunnel_is_asked_for_opens_none():
    """mitmproxy opens a tunnel unless it is answered."""

    def fail():
        raise RuntimeError("boom")

    one, flow = addon(fail), connect_flow()
    await one.http_connect(flow)

    assert flow.response.status_code == 503
    assert one.tunnel(flow.client_conn.id) is None


async def test_a_second_tunnel_of_one_connection_is_refused():
    """The second would be judged by the first one's host."""
    one, flow = addon(), connect_flow()
    await one.http_connect(flow)
    second = connect_flow("other.example")
    second.client_conn = flow.client_conn
    await one.http_connect(second)

    assert second.response.status_code == 403
    assert refused(one) == ["connect"]
