"""Streams pass event by event, in the upstream's own time, however they are coded or cut.

No test looks at a clock.  The upstream sends the next piece only after the client has read the
one before, so a guard that held anything back would never get past the first.
"""

import zlib
from functools import partial

import brotli
import pytest
import zstandard

from tests.e2e.controlled_upstream import (
    ControlledUpstream,
    StreamClient,
    body_of,
    close_all,
)
from tests.e2e.running_guard import json_bytes, serving, tool_call

PROGRESS = b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"n":%d}}\n\n'
RESULT = b'data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ok"}]}}\n\n'


@pytest.fixture(scope="module")
def streaming(tmp_path_factory):
    """Return a guard in front of an upstream whose every chunk a test controls."""
    server = ControlledUpstream()
    with serving(
        tmp_path_factory.mktemp("guard"), server, options=("--body-limit", "64k")
    ) as guard:
        yield guard


@pytest.fixture(autouse=True)
def _sockets():
    """Close what a test opened."""
    yield
    close_all()


def _post(document=None):
    return json_bytes(document or tool_call(), "accept: application/json, text/event-stream")


def _get():
    return (
        b"GET /mcp HTTP/1.1\r\nhost: tools.test\r\naccept: text/event-stream\r\n"
        b"mcp-session-id: s1\r\n\r\n"
    )


def _zlib(**options):
    coder = zlib.compressobj(**options)
    return lambda data: coder.compress(data) + coder.flush(zlib.Z_SYNC_FLUSH)


def _brotli():
    coder = brotli.Compressor()
    return lambda data: coder.process(data) + coder.flush()


def _zstd():
    coder = zstandard.ZstdCompressor().compressobj()
    return lambda data: coder.compress(data) + coder.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


@pytest.mark.parametrize(
    ("coding", "coder"),
    [
        pytest.param(b"identity", lambda: bytes, id="plain stream"),
        pytest.param(b"gzip", partial(_zlib, wbits=31), id="gzip stream"),
        pytest.param(b"deflate", _zlib, id="deflate stream"),
        pytest.param(b"br", _brotli, id="brotli stream"),
        pytest.param(b"zstd", _zstd, id="zstd stream"),
    ],
)
def test_each_event_reaches_the_client_before_the_next_one_is_produced(streaming, coding, coder):
    """Whatever its coding: the client asked for none and gets none."""
    code = coder()
    client = StreamClient(streaming.port, _post())
    exchange = streaming.upstream.next()
    exchange.head(b"content-encoding: " + coding + b"\r\n")

    for number in range(3):
        exchange.chunk(code(PROGRESS % number))
        client.until(b'"n":%d' % number)
    exchange.chunk(code(RESULT))
    client.until(RESULT)
    exchange.end()
    client.until(b"0\r\n\r\n")

    assert b"accept-encoding: identity" in exchange.request.lower()
    assert b"content-encoding" not in client.received.lower()
    assert body_of(client.received) == b"".join(PROGRESS % n for n in range(3)) + RESULT


def test_a_stream_in_an_unknown_coding_is_refused_and_the_upstream_let_go(
    streaming,
):
    """What cannot be decoded is not released, and the model reads so in the call's answer."""
    client = StreamClient(streaming.port, _post())
    exchange = streaming.upstream.next()
    exchange.head(b"content-encoding: x-rot13\r\n")
    exchange.chunk(b"qngn: frperg\n\n")

    reply = client.until(b"bad_content_encoding")

    assert reply.startswith(b"HTTP/1.1 200")
    assert b'"isError": true' in reply
    assert b"frperg" not in reply
    assert exchange.is_gone()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b'data: {"id":1,"id":2}\n\n', "duplicate_key", id="event with two ids"),
        pytest.param(b"data: {]\n\n", "bad_json", id="event that is not json"),
        pytest.param(b"data: " + b"x" * 70_000, "body_too_large", id="event over the limit"),
    ],
)
def test_an_event_that_cannot_be_read_ends_the_stream(streaming, data, code):
    """Its reader could take it for a result that the guard has not seen; it gets a refusal."""
    refusals = streaming.metric("guard_refusals_total", code=code)
    client = StreamClient(streaming.port, _post())
    exchange = streaming.upstream.next()
    exchange.head()
    exchange.chunk(PROGRESS % 7)
    client.until(PROGRESS % 7)

    exchange.chunk(data)

    body = body_of(client.rest())
    assert body.startswith(PROGRESS % 7)
    assert b'"isError": true' in body
    assert code.encode() in body
    assert data[:12] not in body.removeprefix(PROGRESS % 7)
    assert exchange.is_gone()
    assert streaming.metric("guard_refusals_total", code=code) == refusals + 1


def test_a_bomb_in_a_compressed_stream_ends_it(streaming):
    """One chunk may become as much as one event may have, and no more."""
    client = StreamClient(streaming.port, _post())
    exchange = streaming.upstream.next()
    exchange.head(b"content-encoding: br\r\n")
    exchange.chunk(brotli.compress(b"data: " + bytes(50_000_000)))

    body = body_of(client.rest())
    assert body.count(b"data:") == 1
    assert b'"isError": true' in body
    assert bytes(8) not in body
    assert exchange.is_gone()


def test_a_client_that_leaves_takes_the_upstream_with_it(streaming):
    """The upstream is told at once and the guard is idle again."""
    client = StreamClient(streaming.port, _get())
    exchange = streaming.upstream.next()
    exchange.head()
    exchange.chunk(PROGRESS % 1)
    client.until(PROGRESS % 1)

    client.close()

    assert exchange.is_gone()
