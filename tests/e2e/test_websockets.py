"""WebSockets: every message waits for its verdict, and nothing else of a frame gets through."""

import base64
import gzip
from contextlib import closing

import pytest
from websockets.frames import Frame
from websockets.protocol import Protocol, Side, State
from websockets.utils import accept_key

from tests.e2e.raw_server import RawClient
from tests.e2e.running_guard import Upstream, http_bytes, serving, wait_until

KEY = base64.b64encode(b"0123456789abcdef").decode()
TOKEN = "ghp_" + "0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"
HANDSHAKE = (
    *("connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13"),
    f"sec-websocket-key: {KEY}",
)
ACCEPTS = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-accept: " + accept_key(KEY).encode() + b"\r\n\r\n"
)
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
POLICY = """
version: 1
name: sockets
mode: enforce
internal_domains: [example.com]
tools:
  - match: [http.request]
    role: send
    destinations: ["$.url"]
    ignore: ["$.method", "$.host", "$.content_type", "$.headers"]
  - match: [websocket.message]
    role: other
rules:
  - {id: secrets, type: content, finds: [secret_found], effect: block}
  - {id: allow, type: tool, effect: allow}
"""


def frame(opcode, payload, *, final=True):
    """Return a masked frame of a client."""
    return Frame(opcode, payload, final).serialize(mask=True)


def bare(opcode, payload):
    """Return a frame of a server."""
    return Frame(opcode, payload).serialize(mask=False)


def payloads(data):
    """Return the payloads of all frames that a server has received."""
    protocol = Protocol(Side.SERVER, state=State.OPEN)
    protocol.receive_data(data)
    return b" ".join(one.data for one in protocol.events_received())


class SocketUpstream(Upstream):
    """Accepts every handshake and keeps what comes after it."""

    def _serve(self, client):
        for head in self.requests(client):
            self.handshake = head
            self.client = client
            self.received.clear()
            client.sendall(ACCEPTS)


def opened(port, *headers):
    """Return a WebSocket client of the guard, and the answer to its handshake."""
    client = RawClient(port)
    client.socket.sendall(http_bytes(b"", *HANDSHAKE, *headers, method="GET", target="/chat"))
    return client, client.head()


@pytest.fixture(name="upstream", scope="module")
def _upstream():
    with closing(SocketUpstream()) as server:
        yield server


@pytest.fixture(name="guard", scope="module")
def _guard(upstream, tmp_path_factory):
    place = tmp_path_factory.mktemp("sockets")
    policy = place / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    limit = ("--body-limit", "64k")
    with serving(place / "guard", upstream, policy=policy, options=limit) as guard:
        yield guard


def test_messages_pass_both_ways_whole_and_in_pieces(guard, upstream):
    """And a ping is answered where it comes from: it is room for data."""
    client, head = opened(guard.port, "sec-websocket-extensions: permessage-deflate")
    assert b" 101 " in head
    assert b"sec-websocket-extensions" not in upstream.handshake.lower()
    client.socket.sendall(frame(PING, TOKEN.encode()))
    assert client.socket.recv(4096) == bare(PONG, TOKEN.encode())
    client.socket.sendall(frame(TEXT, b"go", final=False) + frame(0, b"ing"))
    wait_until(lambda: len(upstream.received) >= 2 * 6 + 5, "the message")
    assert TOKEN.encode() not in upstream.received
    upstream.client.sendall(bare(TEXT, b"welcome"))
    assert client.socket.recv(4096) == bare(TEXT, b"welcome")
    client.close()


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([frame(TEXT, f"key {TOKEN}".encode())], id="text"),
        pytest.param([frame(BINARY, TOKEN.encode())], id="binary that is text"),
        pytest.param([frame(BINARY, b"\xff\xfb\x90" + TOKEN.encode() + b"\x80")], id="binary"),
        pytest.param([frame(BINARY, b"\xff\xfe" + TOKEN.encode("utf-16-le"))], id="utf-16"),
        pytest.param([frame(BINARY, gzip.compress(TOKEN.encode()))], id="packed"),
        pytest.param([frame(TEXT, b"ghp_", final=False), frame(0, TOKEN[4:].encode())], id="parts"),
        pytest.param([frame(TEXT, b"x" * 60_000, final=False), frame(0, b"y" * 9_000)], id="large"),
        pytest.param([b"\xc1" + frame(TEXT, b"compressed")[1:]], id="compressed"),
        pytest.param([frame(TEXT, b"\xff\xff")], id="text that is none"),
        pytest.param([b"\x83" + frame(TEXT, b"reserved")[1:]], id="reserved opcode"),
        pytest.param([frame(CLOSE, b"\x03\xe8" + TOKEN.encode())], id="words of a close"),
    ],
)
def test_what_must_not_leave_does_not_and_the_socket_is_closed(guard, upstream, frames):
    """Nothing after it passes either."""
    client, _ = opened(guard.port)
    told = client.ask(b"".join(frames) + frame(TEXT, b"after"))
    client.close()

    assert told[:1] in {b"", bytes([0x80 | CLOSE])}
    assert TOKEN.encode() not in payloads(bytes(upstream.received))
    assert b"after" not in payloads(bytes(upstream.received))


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([TOKEN[:14], TOKEN[14:]], id="halves"),
        pytest.param(list(TOKEN), id="letters"),
        pytest.param([f'{{"i":{n},"d":"{c}"}}' for n, c in enumerate(TOKEN)], id="in members"),
        pytest.param(
            [TOKEN[:14], *(f"seq {number}" for number in range(40)), TOKEN[14:]],
            id="others between",
        ),
        pytest.param(
            [f'{{"a":"{TOKEN[:14]}"}}', '{"ping":1}', f'{{"b":"{TOKEN[14:]}"}}'],
            id="members of two names",
        ),
        pytest.param(["hello", *TOKEN], id="letters behind a word"),
        pytest.param(["a", "word", TOKEN[:14], *("word",) * 9, TOKEN[14:]], id="words between"),
    ],
)
def test_a_secret_over_many_small_messages_is_joined(guard, messages):
    """As many are kept as there is room for, and each member is joined with itself."""
    client, _ = opened(guard.port)
    told = client.ask(b"".join(frame(TEXT, message.encode()) for message in messages))
    client.close()

    assert told[:1] in {b"", bytes([0x80 | CLOSE])}


def test_a_secret_over_several_sockets_is_joined(launch, upstream, tmp_path):
    """Whoever opens them: of one principal, to one host."""
    (tmp_path / "policy.yaml").write_text(POLICY, "utf-8")
    guard = launch(policy=tmp_path / "policy.yaml")
    one, _ = opened(guard.port)
    one.socket.sendall(frame(TEXT, TOKEN[:14].encode()))
    # Whoever hangs up earlier has said nothing to anybody.
    wait_until(lambda: len(upstream.received) >= 14, "the first half to arrive")
    one.close()
    two, _ = opened(guard.port)
    told = two.ask(frame(TEXT, b"seq 1") + frame(TEXT, TOKEN[14:].encode()))
    two.close()

    assert told[:1] in {b"", bytes([0x80 | CLOSE])}
