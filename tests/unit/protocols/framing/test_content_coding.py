"""Content codings are undone within a limit, or the body counts as unread."""

import base64
import gzip
import tracemalloc
import zlib

import brotli
import pytest
import zstandard

from guard.core.errors import MessageError, OversizeError
from guard.protocols.framing.content_coding import StreamDecoder, decode_content
from guard.values.decoder import decoded

TEXT = b'{"jsonrpc": "2.0"}' * 50
CODED = {
    "gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
    "identity": TEXT,
}


@pytest.mark.parametrize("coding", CODED)
def test_each_coding_stops_at_the_limit(coding):
    """What decodes to more than the limit is refused while decoding."""
    with pytest.raises(OversizeError):
        decode_content(CODED[coding], coding, limit=100)


@pytest.mark.parametrize("coding", [c for c in CODED if c != "identity"])
def test_damaged_data_is_refused(coding):
    """Truncated data, and data with something after its end, has no one reading."""
    for damaged in (CODED[coding][:-1], CODED[coding] * 2, b"", b"\x00garbage"):
        with pytest.raises(MessageError):
            decode_content(damaged, coding, limit=10_000)
    decoder = StreamDecoder(coding, limit=10_000)
    decoder.feed(CODED[coding])
    with pytest.raises(MessageError, match="not valid"):
        decoder.feed(CODED[coding])
    with pytest.raises(OversizeError):
        StreamDecoder(coding, limit=100).feed(CODED[coding])


@pytest.mark.parametrize("coding", ["gzip, gzip", "compress", "x-rot13", "aws-chunked"])
def test_other_codings_are_refused(coding):
    """A coding the guard does not undo hides the body from it."""
    with pytest.raises(MessageError):
        decode_content(TEXT, coding, limit=10_000)


BOMB = brotli.compress(b"a" * (96 * 1024 * 1024))[:200]
"""Several blocks of many MiB, each in a few bytes."""


def test_few_bytes_of_brotli_hold_no_more_than_two_blocks():
    """Brotli before 1.2 cannot limit its output, and newer versions do."""
    limited = hasattr(brotli.Decompressor, "can_accept_more_data")
    tracemalloc.start()
    try:
        with pytest.raises(OversizeError):
            decode_content(BOMB, "br", limit=64 * 1024)
        assert list(decoded(base64.b64encode(BOMB).decode()))
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert held < (8 if limited else 40) * 1024 * 1024


def test_a_window_of_zstd_beyond_the_standard_is_an_error():
    """The decoder allocates it for a frame of a few bytes."""
    wide = zstandard.ZstdCompressionParameters(window_log=27)
    frame = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    body = frame.compress(b"data") + frame.flush()

    with pytest.raises(MessageError, match="not valid"):
        decode_content(body, "zstd", limit=1000)
