"""Streams pass event by event, in the upstream's own time, however they are coded or cut.

No test looks at a clock.  The upstream sends the next piece only after the client has read the
one before, so a guard that held anything back would never get past the first.
"""

import asyncio
import zlib
from functools import partial

import brotli
import httpx
import pytest
import zstandard

from tests.e2e.clients import Posting
from tests.e2e.controlled_upstream import ControlledUpstream
from tests.e2e.running_guard import serving, tool_call

PROGRESS = 'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"n":%d}}\n\n'
RESULT = 'data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ok"}]}}\n\n'


@pytest.fixture(scope="module")
def streaming(tmp_path_factory):
    """Return a guard in front of an upstream whose every chunk a test controls."""
    server = ControlledUpstream()
    with serving(
        tmp_path_factory.mktemp("guard"), server, options=("--body-limit", "64k")
    ) as guard:
        yield guard


@pytest.fixture
async def begun(streaming):
    """Return a function that makes a request; it gives the client and its exchange."""
    clients = []

    async def begin(document=None, head=b""):
        url, session = f"http://127.0.0.1:{streaming.port}/mcp", {"mcp-session-id": "s1"}
        clients.append(Posting(url, document, headers=session))
        exchange = await asyncio.to_thread(streaming.upstream.next)
        exchange.head(head)
        return clients[-1], exchange

    yield begin
    for client in clients:
        await client.leave()


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
async def test_each_event_reaches_the_client_before_the_next_one_is_produced(begun, coding, coder):
    """Whatever its coding: the client gets none, although it would take one."""
    code = coder()
    client, exchange = await begun(tool_call(), b"content-encoding: " + coding + b"\r\n")

    for number in range(3):
        exchange.chunk(code((PROGRESS % number).encode()))
        await client.reads(PROGRESS % number)
    exchange.chunk(code(RESULT.encode()))
    await client.reads(RESULT)
    exchange.end()
    await client.task

    assert b"accept-encoding: identity" in exchange.request.lower()
    assert "content-encoding" not in client.headers
    assert client.text == "".join(PROGRESS % n for n in range(3)) + RESULT


async def test_a_stream_in_an_unknown_coding_is_refused_and_the_upstream_let_go(begun):
    """What cannot be decoded is not released, and the model reads so in the call's answer."""
    client, exchange = await begun(tool_call(), b"content-encoding: x-rot13\r\n")
    exchange.chunk(b"qngn: frperg\n\n")
    await client.task

    assert client.status == 200
    assert "bad_content_encoding" in client.text
    assert '"isError": true' in client.text
    assert "frperg" not in client.text
    assert exchange.is_gone()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param('data: {"id":1,"id":2}\n\n', "duplicate_key", id="event with two ids"),
        pytest.param("data: {]\n\n", "bad_json", id="event that is not json"),
        pytest.param("data: " + "x" * 70_000, "body_too_large", id="event over the limit"),
    ],
)
async def test_an_event_that_cannot_be_read_ends_the_stream(streaming, begun, data, code):
    """Its reader could take it for a result that the guard has not seen; it gets a refusal."""
    refusals = streaming.metric("guard_refusals_total", code=code)
    client, exchange = await begun(tool_call())
    exchange.chunk((PROGRESS % 7).encode())
    await client.reads(PROGRESS % 7)

    exchange.chunk(data.encode())
    with pytest.raises(httpx.RemoteProtocolError):
        await client.task

    body = client.text
    assert body.startswith(PROGRESS % 7)
    assert '"isError": true' in body
    assert code in body
    assert data[:12] not in body.removeprefix(PROGRESS % 7)
    assert exchange.is_gone()
    assert streaming.metric("guard_refusals_total", code=code) == refusals + 1


async def test_a_bomb_in_a_compressed_stream_ends_it(begun):
    """One chunk may become as much as one event may have, and no more."""
    client, exchange = await begun(tool_call(), b"content-encoding: br\r\n")
    exchange.chunk(brotli.compress(b"data: " + bytes(50_000_000)))
    with pytest.raises(httpx.RemoteProtocolError):
        await client.task

    assert client.text.count("data:") == 1
    assert '"isError": true' in client.text
    assert "\0" * 8 not in client.text
    assert exchange.is_gone()


async def test_a_client_that_leaves_takes_the_upstream_with_it(begun):
    """The upstream is told at once and the guard is idle again."""
    client, exchange = await begun()
    exchange.chunk((PROGRESS % 1).encode())
    await client.reads(PROGRESS % 1)

    await client.leave()

    assert exchange.is_gone()
