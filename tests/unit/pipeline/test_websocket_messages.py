"""Messages of WebSockets: each is judged with what was sent before it, and what comes is read."""

import base64
import gzip
import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from guard.core.errors import MessageError
from guard.core.policy import Mode
from guard.detectors import DetectorResources
from guard.detectors.secrets import Secrets
from guard.pipeline import websocket_messages
from guard.pipeline.websocket_messages import check_switch, opens_websocket
from tests.guards import down
from tests.roads import Road, rpc

POLICY = """
version: 1
name: sockets
tools:
  - {match: [websocket.message], role: other}
  - {match: [send], role: send, destinations: ["$.to"]}
rules:
  - {id: secrets, type: content, finds: [secret_found], effect: block}
  - {id: allow, type: tool, effect: allow}
"""
TOKEN = "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"
HALVES = TOKEN[:20], TOKEN[20:]
BINARY = b"\xff\xfe\x00\x01" * 8


@pytest.fixture
def road(store, policy_from):
    """Return the handlers of a guard that looks for secrets."""
    return Road(store, policy_from(POLICY), detectors=(Secrets.create(DetectorResources()),))


async def opened(road, host="tools.test"):
    """Return a WebSocket."""
    exchange = await road.forwarded(rpc("ping"))
    return road.enforcement.sockets.opened(exchange, f"ws://{host}/chat", host)


def members(**more):
    """Return a message that is a JSON object."""
    return json.dumps({"a": [{"b": 1}], **more})


@pytest.mark.parametrize(
    ("messages", "last_passes"),
    [
        pytest.param(["hello", "world"], True, id="words"),
        pytest.param([TOKEN], False, id="a secret"),
        pytest.param(HALVES, False, id="in halves"),
        pytest.param([HALVES[0], "noise between", HALVES[1]], False, id="with noise between"),
        pytest.param([members(k=HALVES[0]), members(x="y", k=HALVES[1])], False, id="in a member"),
        pytest.param([members(k=HALVES[0]), members(z=HALVES[1])], False, id="in two members"),
        pytest.param(["{not json", "{neither"], True, id="braces"),
        pytest.param([BINARY], True, id="noise"),
        pytest.param([BINARY + TOKEN.encode() + BINARY], False, id="in noise"),
        pytest.param([BINARY + TOKEN.encode("utf-16-le") + BINARY], False, id="wide in noise"),
        pytest.param([gzip.compress(b"x")], False, id="packed"),
        pytest.param(["word " * 150] * 40, True, id="more than is joined"),
        pytest.param([members(**{f"m{n}": "x" for n in range(n, n + 12)}) for n in (0, 20)], True,
                     id="many members"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sockets", [1, 2])
async def test_a_message_is_judged_with_what_was_sent_before_it(
    road, messages, last_passes, sockets
):
    """By the same WebSocket, or by another of the same principal to the same host."""
    ours = [await opened(road) for _ in range(sockets)]
    passed = [
        await road.enforcement.sockets.from_client(
            ours[n % sockets], one if isinstance(one, bytes) else one.encode()
        )
        for n, one in enumerate(messages)
    ]
    assert passed == [True] * (len(messages) - 1) + [last_passes]


async def test_what_was_sent_to_a_host_is_kept_for_a_bounded_number_of_hosts(road, monkeypatch):
    """Of two, the host that was reached last."""
    monkeypatch.setattr(websocket_messages, "PLACES", 1)
    sockets = road.enforcement.sockets
    for host, half in (("a.test", 0), ("b.test", 0), ("a.test", 1), ("a.test", 0)):
        passes = await sockets.from_client(await opened(road, host), HALVES[half].encode())
        assert passes


@pytest.mark.parametrize("mode", list(Mode))
async def test_what_cannot_be_read_or_labelled_passes_in_monitor_mode_only(road, monkeypatch, mode):
    """From the client and from the server; each has an audit line."""
    road.guard.swap_policy(replace(road.policy, mode=mode))
    sockets, socket = road.enforcement.sockets, await opened(road)
    assert await sockets.from_server(socket, b"hello")
    assert await sockets.from_client(socket, gzip.compress(b"x")) is (mode is Mode.MONITOR)
    monkeypatch.setattr(road.store, "note", down)
    assert await sockets.from_server(socket, b"more") is (mode is Mode.MONITOR)
    assert not sockets.refuse("unreadable_frame", "no handshake")
    codes = [line["code"] for line in road.audit.named("guard.unreadable")]
    declared = [] if mode is Mode.MONITOR else ["definitions_unchecked"]
    assert codes == ["unreadable_frame", *declared, "unreadable_frame"]


async def test_only_a_policy_that_maps_messages_opens_a_socket(road, store):
    """Without declarations nothing that a server says needs a label."""
    assert road.enforcement.sockets.accepts
    road.guard.swap_policy(replace(road.policy, tools=()))
    assert not road.enforcement.sockets.accepts
    bare = Road(store, road.policy, declarations=None)
    assert await bare.enforcement.sockets.from_server(await opened(bare), b"hello")


KEY = base64.b64encode(bytes(16)).decode()
HANDSHAKE = {
    "upgrade": ["WebSocket"],
    "connection": ["keep-alive, Upgrade"],
    "sec-websocket-key": [KEY],
    "sec-websocket-version": ["13"],
}


@pytest.mark.parametrize(
    ("method", "changed", "opens"),
    [
        ("GET", {}, True),
        ("POST", {}, False),
        ("GET", {"upgrade": ["h2c"]}, False),
        ("GET", {"upgrade": ["websocket", "websocket"]}, False),
        ("GET", {"connection": ["close"]}, False),
        ("GET", {"sec-websocket-key": ["!"]}, False),
        ("GET", {"sec-websocket-key": [KEY[:8]]}, False),
        ("GET", {"sec-websocket-version": ["8"]}, False),
        ("GET", {"sec-websocket-version": []}, False),
    ],
)
def test_a_handshake_is_read_one_way_only(method, changed, opens):
    """RFC 6455, section 4.1."""
    headers = HANDSHAKE | changed
    assert opens_websocket(method, lambda name: headers.get(name, [])) is opens


@pytest.mark.parametrize(
    ("headers", "asked", "refused"),
    [
        ({"upgrade": ["WebSocket"]}, True, False),
        ({"upgrade": ["websocket"]}, False, True),
        ({"upgrade": ["h2c"]}, True, True),
        ({}, True, True),
        ({"upgrade": ["websocket"], "sec-websocket-extensions": ["x"]}, True, True),
    ],
)
def test_an_upstream_switches_to_what_was_asked_for_only(headers, asked, refused):
    """Neither to another protocol nor with extensions that nobody reads."""
    with pytest.raises(MessageError, match="nobody asked") if refused else nullcontext():
        check_switch(lambda name: headers.get(name, []), opens_socket=asked)
