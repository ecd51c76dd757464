"""The comparison with other gateways: what counts as a ratio, and the tool server behind them."""

import json
from pathlib import Path

import pytest

from guard.core.errors import GuardError
from lab.load import Load, Post, request_bytes
from lab.peers.bench import GUARD, TARGETS, ratios
from lab.peers.gateways import PEERS, _call_of
from lab.peers.upstream import McpResponder, answer_of

SHARED, DEFAULT, LITELLM = (peer for peer, _ in TARGETS.values())
PLACE = Path(__file__).resolve().parents[3] / "peers"


def did(*rates, errors=0):
    """Return the loads of so many rounds."""
    return [Load(rate, 1.0, 2.0, errors) for rate in rates]


def test_a_ratio_is_the_median_of_its_rounds():
    """Each round by itself, so that a noisy minute is noisy for both."""
    loads = {GUARD: did(600, 1200, 900), SHARED: did(100, 100, 300)}

    shared, default, litellm = ratios(loads, {DEFAULT: "not installed"})

    assert (shared.id, shared.value, shared.n) == ("ratio_vs_fastmcp_proxy", 6.0, 3)
    assert (default.value, default.reason) == (None, "not installed")
    assert litellm.value is None


@pytest.mark.parametrize("theirs", [did(0.0), did(50.0, errors=2)], ids=["nothing", "errors"])
def test_a_peer_that_does_not_answer_is_no_peer_to_be_faster_than(theirs):
    """The figure is null, with the reason."""
    (shared, *_) = ratios({GUARD: did(600), SHARED: theirs}, {})

    assert shared.value is None
    assert "did not answer every call" in shared.reason


def test_every_peer_has_a_package_to_install():
    """The Makefile installs what these files name, exactly."""
    npm = json.loads((PLACE / "package.json").read_text("utf-8"))["dependencies"]
    for peer in PEERS:
        if peer.environment == "npm":
            assert peer.package in npm
            continue
        text = (PLACE / f"{peer.environment}.txt").read_text("utf-8")
        assert text.startswith(f"{peer.package}==")


def test_the_tool_server_speaks_what_gateways_ask():
    """Initialize, listing, call; nothing to a notification, an error to the rest."""

    def asked(method, **params):
        return answer_of({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})

    begun = asked("initialize", protocolVersion="2025-03-26")["result"]
    assert begun["protocolVersion"] == "2025-03-26"
    assert asked("tools/list")["result"]["tools"][0]["name"] == "email_send_email"
    assert asked("tools/call")["result"]["content"] == [{"type": "text", "text": "sent"}]
    assert asked("nothing")["error"]["code"] == -32601
    assert answer_of({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None


def test_the_tool_server_offers_no_stream():
    """A GET is refused, a notification is accepted without a body."""
    responder = McpResponder()

    assert responder.answer(b"GET /mcp HTTP/1.1", b"").startswith(b"HTTP/1.1 405")
    told = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'
    assert responder.answer(b"POST /mcp HTTP/1.1", told).startswith(b"HTTP/1.1 202")


def test_requests_of_one_session_have_ids_of_their_own():
    """Two open requests with one id would answer each other."""
    post = Post(body=_call_of("tools-email_send_email"), numbered=True)
    bodies = [request_bytes(80, post, n).partition(b"\r\n\r\n")[2] for n in (8, 1000)]

    assert [json.loads(body)["id"] for body in bodies] == [8, 1000]
    assert json.loads(bodies[0])["params"]["name"] == "tools-email_send_email"
    head = request_bytes(80, post, 1000).partition(b"\r\n\r\n")[0]
    assert f"content-length: {len(bodies[1])}".encode() in head


def test_a_request_without_that_id_cannot_be_numbered():
    """Rather than all alike."""
    with pytest.raises(GuardError, match="has no id of 1"):
        request_bytes(80, Post(body="{}", numbered=True), 2)
