"""A real Envoy with the shipped configuration, in front of ``guard decide``."""

import json
import random
import re
from contextlib import closing, suppress

import pytest

from lab.fuzz_inputs import Mutator
from lab.fuzz_peps import connection
from tests.e2e.raw_server import RawClient, whole_request
from tests.e2e.running_guard import (
    ROOT,
    needs_envoy,
    serving,
    tool_call,
    wait_until,
)
from tests.e2e.running_guard import json_bytes as _json
from tests.e2e.test_failure_matrix import TE, _chunked

pytestmark = [pytest.mark.e2e, needs_envoy]
FRONTED = {"GUARD_PEP": "envoy"}
CONNECTIONS = 120
PIECES = 50
"""A connection in more pieces is sent at once: Envoy reads what has arrived."""
CALL = json.dumps(tool_call()).encode()


@pytest.fixture(scope="module")
def fronted(tmp_path_factory):
    """A guard with an Envoy in front, for tests that leave both as they were."""
    with serving(tmp_path_factory.mktemp("fronted"), environment=FRONTED) as guard:
        yield guard


@pytest.mark.parametrize(
    "data",
    [
        _json(CALL, "x-note: a\r\rPOST /mcp HTTP/1.1\rhost: a\rcontent-length: 0\r"),
        _json(CALL, "x-note: a\r\n\tx-evil: 1"),
        _json(_chunked(CALL, end=b"0\r\nx-trailer: 1\r\n\r\n"), TE),
        _json(CALL, "connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMA"),
    ],
    ids=["cr in a header", "folded header", "trailers", "h2c upgrade"],
)
def test_what_envoy_mends_is_one_call_judged_as_it_is_sent(fronted, data):
    """A guard of its own refuses these heads; here nobody behind Envoy reads them any more."""
    before, lines = len(fronted.upstream.received), len(fronted.audit())

    reply = fronted.send(data)

    sent = bytes(fronted.upstream.received[before:])
    head, _, body = sent.partition(b"\r\n\r\n")
    names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
    assert reply.startswith(b"HTTP/1.1 200")
    assert body == CALL
    assert not {b"x-evil", b"x-trailer", b"upgrade", b"http2-settings", b""} & set(names)
    assert b"\r" not in head.replace(b"\r\n", b"")
    assert [line["enforced"] for line in fronted.audit()[lines:]] == ["allow"]


def test_nothing_of_a_broken_connection_passes_unjudged(launch, upstream):
    """Whole requests only reach the server, and each was allowed before.

    Connections of the fuzzer of enforcement points; the policy lets pass whatever can be read.
    """
    mutator = Mutator(random.Random(20261122))
    policy = ROOT / "policies" / "examples" / "observe.yaml"
    guard = launch(policy=policy, environment=FRONTED)
    for _ in range(CONNECTIONS):
        pieces = connection(mutator)
        if len(pieces) > PIECES:
            pieces = [b"".join(pieces)]
        with closing(RawClient(guard.port)) as client:
            client.socket.settimeout(0.2)
            with suppress(OSError):  # Envoy has read enough.
                for piece in pieces:
                    client.socket.sendall(piece)
            client.ask(b"")

    def allowed():
        return sum(line["event"] == "guard.decision" for line in guard.audit())

    wait_until(lambda: len(_requests(bytes(upstream.received))[0]) == allowed(), "the last request")
    requests, rest = _requests(bytes(upstream.received))

    assert rest == b""
    assert len(requests) == allowed() > CONNECTIONS / 5
    for request in requests:
        head, _, body = request.partition(b"\r\n\r\n")
        start, *fields = head.split(b"\r\n")
        assert re.fullmatch(rb"[A-Z]+ [/*][!-~]* HTTP/1\.1", start), request
        assert all(re.fullmatch(rb"[!-9;-~]+: ?[^\r\n\0]*", one) for one in fields), request
        assert not body or b"content-length: %d" % len(body) in head.lower(), request
        assert b"transfer-encoding" not in head.lower()


def _requests(data):
    """Cut what a server received into requests, and what is left."""
    found = []
    while (request := whole_request(data)) is not None:
        found.append(request)
        data = data[len(request) :]
    return found, data
