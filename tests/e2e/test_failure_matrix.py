"""The failure matrix: what cannot be read one way only never reaches the upstream.

Each row sends real bytes through a real guard process and asserts four things: the upstream
received nothing, the client got a clear refusal, one audit line was written, one counter rose.
"""

import gzip
import json
import zlib

import pytest

from tests.e2e.running_guard import (
    BEHIND_ENVOY,
    tool_call,
    wait_until,
)
from tests.e2e.running_guard import http_bytes as _send
from tests.e2e.running_guard import json_bytes as _json

SECRET = "quarterly-figures-7731"


def _call(**changes):
    call = tool_call()
    call["params"]["arguments"]["body"] = SECRET
    return json.dumps(call | changes).encode()


def _params(**changes):
    return _call(params=tool_call()["params"] | changes)


def _chunked(*chunks, end=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + end


GOOD = _call()
BOMB = gzip.compress(b"[" + b" " * 2_000_000 + b"]")
JSONRPC_ESCAPED = GOOD.replace(b'"jsonrpc"', b'"\\u006asonrpc"').replace(b'"method"', b'"Method"')
WEBSOCKET = (
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)
TE = "transfer-encoding: chunked"
ENVOYS = frozenset({"bad_http", "bad_transfer_encoding", "upgrade", "bad_content_type"})
"""Codes of heads: an Envoy in front may refuse them before the guard is told."""

ROWS = [
    pytest.param(_json(GOOD[:-1]), "bad_json", id="truncated json"),
    pytest.param(_json(b"{]" + GOOD), "bad_json", id="unparsable json"),
    pytest.param(_json(b"\xef\xbb\xbf" + GOOD), "bad_json", id="byte order mark"),
    pytest.param(_json(GOOD.decode().encode("utf-16")), "bad_json", id="utf-16"),
    pytest.param(_json(GOOD.replace(b'"id": 1', b'"id": NaN')), "bad_json", id="nan"),
    pytest.param(_json(GOOD + b"{}"), "bad_json", id="two documents"),
    pytest.param(_json(b"/* */" + GOOD), "bad_json", id="comment in json"),
    pytest.param(_json(b"[" * 60_000), "bad_json", id="nested too deep"),
    pytest.param(
        _json(GOOD[:-1] + b',"method":"ping"}'), "duplicate_key", id="duplicate key in envelope"
    ),
    pytest.param(
        _json(GOOD.replace(b'"to":', b'"to": "a@evil.test", "to":')),
        "duplicate_key",
        id="duplicate key in arguments",
    ),
    pytest.param(
        _json(_params(Name="other_tool")), "ambiguous_key", id="member in another case in params"
    ),
    pytest.param(
        _json(GOOD.replace(b'"method"', b'"Method"')), "ambiguous_key", id="method in another case"
    ),
    pytest.param(_json(JSONRPC_ESCAPED), "ambiguous_key", id="escaped member names"),
    pytest.param(_send(GOOD, "content-type: text/plain"), "bad_content_type", id="text/plain"),
    pytest.param(_send(GOOD), "bad_content_type", id="no content type"),
    pytest.param(
        _send(GOOD, "content-type: application/json; charset=utf-7"),
        "bad_content_type",
        id="charset that is not utf-8",
    ),
    pytest.param(
        _send(GOOD, "content-type: application/json", "content-type: text/plain"),
        "duplicate_header",
        id="two content types",
    ),
    pytest.param(_json(BOMB, "content-encoding: gzip"), "body_too_large", id="decompression bomb"),
    pytest.param(
        _json(gzip.compress(GOOD)[:-4], "content-encoding: gzip"),
        "bad_content_encoding",
        id="truncated gzip",
    ),
    pytest.param(
        _json(gzip.compress(b"{}") + gzip.compress(GOOD), "content-encoding: gzip"),
        "bad_content_encoding",
        id="second gzip member",
    ),
    pytest.param(
        _json(zlib.compress(GOOD)[2:-4], "content-encoding: deflate"),
        "bad_content_encoding",
        id="raw deflate",
    ),
    pytest.param(
        _json(GOOD, "content-encoding: x-rot13"), "bad_content_encoding", id="unknown coding"
    ),
    pytest.param(
        _json(gzip.compress(GOOD), "content-encoding: gzip, gzip"),
        "bad_content_encoding",
        id="two codings",
    ),
    pytest.param(_json(b'"' + b"x" * 70_000 + b'"'), "body_too_large", id="body over the limit"),
    pytest.param(
        _json(_chunked(*[b" " * 10_000] * 8), TE), "body_too_large", id="chunked over the limit"
    ),
    pytest.param(_json(_call(method="tools/invoke")), "unknown_method", id="unknown method"),
    pytest.param(_json(_call(method="Tools/Call")), "unknown_method", id="method name in capitals"),
    pytest.param(_json(_params(name=None)), "call_without_name", id="call without a name"),
    pytest.param(_json(_params(name=7)), "call_without_name", id="name that is a number"),
    pytest.param(_json(_params(extra=1)), "bad_call", id="unknown member in params"),
    pytest.param(_json(_params(arguments=["a"])), "bad_call", id="arguments that are a list"),
    pytest.param(_json(_call(extra=1)), "bad_jsonrpc", id="unknown member in envelope"),
    pytest.param(_json(_call(jsonrpc="1.0")), "bad_jsonrpc", id="json-rpc 1.0"),
    pytest.param(_json(_call(id=None)), "bad_jsonrpc", id="id null"),
    pytest.param(_json(_call(id=True)), "bad_jsonrpc", id="id true"),
    pytest.param(_json(_call(result={})), "bad_jsonrpc", id="request and response at once"),
    pytest.param(_json(b"[]"), None, id="empty array is no mcp message"),
    pytest.param(_json(b"[" + GOOD + b"," + GOOD + b"]"), "bad_jsonrpc", id="equal ids in a batch"),
    pytest.param(
        _json(GOOD.replace(b'"id": 1, ', b"")), "call_without_id", id="call as a notification"
    ),
    pytest.param(
        _send(GOOD, "content-type: application/json", method="PUT"), "bad_http_method", id="put"
    ),
    pytest.param(
        _json(GOOD, "mcp-session-id: a", "mcp-session-id: b"), "duplicate_header", id="two sessions"
    ),
    pytest.param(
        _json(GOOD, "x-guard-session: " + "s" * 300), "bad_session_id", id="session id too long"
    ),
    pytest.param(
        _json(GOOD, "x-guard-session: a b"), "bad_session_id", id="session id with a space"
    ),
    pytest.param(
        _json(GOOD, f"content-length: {len(GOOD)}", TE), "bad_http", id="length and chunking"
    ),
    pytest.param(
        _json(GOOD, "content-length: 3", f"content-length: {len(GOOD)}"),
        "bad_http",
        id="two lengths",
    ),
    pytest.param(_json(GOOD, "content-length: +9"), "bad_http", id="signed length"),
    pytest.param(
        _json(_chunked(GOOD), "transfer-encoding: xchunked"), "bad_http", id="unknown chunking"
    ),
    pytest.param(
        _json(_chunked(GOOD), "transfer-encoding: chunked", "transfer-encoding: identity"),
        "bad_http",
        id="two transfer encodings",
    ),
    pytest.param(
        _json(_chunked(gzip.compress(GOOD)), "transfer-encoding: gzip, chunked"),
        "bad_transfer_encoding",
        id="gzip as transfer encoding",
    ),
    pytest.param(_json(GOOD, "transfer-encoding : chunked"), "bad_http", id="space in a name"),
    pytest.param(
        _json(GOOD, "x-note: a\r\rPOST /mcp HTTP/1.1\rhost: a\rcontent-length: 0\r"),
        "bad_http",
        id="request behind cr in a header",
    ),
    pytest.param(_json(GOOD, "x-note: a\x00b"), "bad_http", id="nul in a header"),
    pytest.param(_json(GOOD, "x-note: a\r\n\tx-evil: 1"), "bad_http", id="folded header"),
    pytest.param(b"\x16\x00garbage\r\n\r\n" + GOOD, "bad_http", id="not http"),
    pytest.param(b"GET / HTTP/1.1\r\nx: " + b"y" * 80_000, "bad_http", id="endless head"),
    pytest.param(_send(b"", *WEBSOCKET, method="GET", target="/ws"), "upgrade", id="websocket"),
    pytest.param(
        _json(GOOD, "connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMA"),
        "upgrade",
        id="h2c upgrade",
    ),
    pytest.param(
        b"CONNECT evil.test:443 HTTP/1.1\r\nhost: evil.test:443\r\n\r\n" + GOOD,
        "bad_http",
        id="bytes after connect",
    ),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\n", "bad_http", id="http/2 preface in clear"),
    pytest.param(
        _json(_chunked(GOOD, end=b"0\r\nx-trailer: 1\r\n\r\n"), TE), "bad_http", id="trailers"
    ),
    pytest.param(_json(b"zz\r\n" + GOOD + b"\r\n0\r\n\r\n", TE), "bad_http", id="bad chunk size"),
    pytest.param(
        _send(
            json.dumps({"model": "m", "messages": [{"role": "user", "content": SECRET}]}).encode(),
            "content-type: application/json",
            target="/v1/messages",
        ),
        None,
        id="model path on a tool server",
    ),
    pytest.param(
        _send(SECRET.encode(), "content-type: text/plain", target="/collect"),
        None,
        id="plain post to a tool server",
    ),
    pytest.param(
        _send(b"", method="GET", target=f"/collect?d={SECRET}"), None, id="plain get with a query"
    ),
    pytest.param(_json(_call(params=tool_call("a@evil.test")["params"])), None, id="stranger"),
    pytest.param(
        _json(_call(params=tool_call(tool="post_everywhere")["params"])), None, id="unmapped tool"
    ),
    pytest.param(
        _json(
            b"["
            + json.dumps(tool_call(ident=1)).encode()
            + b","
            + json.dumps(tool_call("a@evil.test", ident=2)).encode()
            + b"]"
        ),
        None,
        id="batch with one stranger",
    ),
]


MENDED = {
    "two content types": "bad_content_type",
    "request behind cr in a header": None,
    "folded header": None,
    "trailers": None,
    "h2c upgrade": None,
    "http/2 preface in clear": None,
}
"""What an Envoy in front makes readable: the code it is refused with then, None where it is a call
like any other (tests/e2e/test_envoy.py)."""
if BEHIND_ENVOY:
    ROWS = [
        pytest.param(*row.values[:-1], MENDED[str(row.id)], id=row.id) if row.id in MENDED else row
        for row in ROWS
        if MENDED.get(str(row.id), "refused") is not None
    ]


@pytest.mark.parametrize(("data", "code"), ROWS)
def test_what_cannot_go_out_never_reaches_the_upstream(shared_guard, data, code):
    """Upstream silent, client refused, one audit line, one counter up."""
    received = len(shared_guard.upstream.received)
    lines = len(shared_guard.audit())
    name = "guard_decisions_total" if code is None else "guard_refusals_total"
    labels = {} if code is None else {"code": code}
    counted = shared_guard.metric(name, **labels)
    envoy = shared_guard.envoy if code in ENVOYS else None
    own = envoy.refused() if envoy is not None else 0

    reply = shared_guard.send(data)

    wait_until(
        lambda: len(shared_guard.audit()) > lines or (envoy is not None and envoy.refused() > own),
        "an audit line",
    )
    new = shared_guard.audit()[lines:]
    assert len(shared_guard.upstream.received) == received
    assert SECRET.encode() not in bytes(shared_guard.upstream.received)
    assert reply[:12] != b"HTTP/1.1 200" or b"isError" in reply or b'"error"' in reply
    assert SECRET.encode() not in reply
    assert SECRET not in json.dumps(new)
    if not new:
        assert reply[:10] in {b"HTTP/1.1 4", b"HTTP/1.1 5", b""}, "Envoy's own, in its log"
    elif code is None:
        assert {line["enforced"] for line in new} == {"block"} or "ask" in {
            line["enforced"] for line in new
        }
    else:
        assert [line["code"] for line in new] == [code]
    assert shared_guard.metric(name, **labels) == counted + len(new)


def test_a_compressed_and_chunked_benign_call_is_framed_anew(shared_guard):
    """The upstream gets the coded body with a length, never our client's chunking."""
    before = len(shared_guard.upstream.received)
    body = gzip.compress(json.dumps(tool_call()).encode())

    reply = shared_guard.send(_json(_chunked(body[:10], body[10:]), "content-encoding: gzip", TE))

    assert reply.startswith(b"HTTP/1.1 200")
    head, _, sent = bytes(shared_guard.upstream.received[before:]).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert sent == body


def test_each_of_two_pipelined_requests_is_judged(shared_guard):
    """A second request in the same packet is no stowaway."""
    before = len(shared_guard.upstream.received)
    lines = len(shared_guard.audit())
    benign = _json(json.dumps(tool_call()).encode())
    stowaway = _json(_call(params=tool_call("a@evil.test")["params"]))

    shared_guard.send(benign + stowaway)

    wait_until(lambda: len(shared_guard.audit()) == lines + 2, "two audit lines")
    sent = bytes(shared_guard.upstream.received[before:])
    assert sent.count(b"POST /mcp") == 1
    assert b"evil.test" not in sent
