"""Content codings are undone within a limit, or the body counts as unread."""

import base64
import gzip
import tracemalloc
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

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


CODERS = {
    "gzip": lambda: _zlib_coder(31),
    "x-gzip": lambda: _zlib_coder(31),
    "deflate": lambda: _zlib_coder(15),
    "br": lambda: _brotli_coder(brotli.Compressor()),
    "zstd": lambda: _zstd_coder(zstandard.ZstdCompressor().compressobj()),
    "identity": lambda: lambda data, *, last=False: data,
}


def _zlib_coder(window):
    coder = zlib.compressobj(wbits=window)
    return lambda data, *, last=False: (
        coder.compress(data) + coder.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
    )


def _brotli_coder(coder):
    return lambda data, *, last=False: (
        coder.process(data) + (coder.finish() if last else coder.flush())
    )


def _zstd_coder(coder):
    finish, block = zstandard.COMPRESSOBJ_FLUSH_FINISH, zstandard.COMPRESSOBJ_FLUSH_BLOCK
    return lambda data, *, last=False: coder.compress(data) + coder.flush(finish if last else block)


@given(
    st.sampled_from(sorted(CODERS)),
    st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5),
    st.integers(1, 40),
)
def test_a_stream_decodes_to_what_was_sent_however_it_is_cut(coding, pieces, size):
    """Whatever the sender has flushed comes out at once, in any chunks."""
    code, decoder = CODERS[coding](), StreamDecoder(coding, limit=1000)
    for number, piece in enumerate(pieces, start=1):
        wire = code(piece, last=number == len(pieces))
        out = b"".join(decoder.feed(wire[i : i + size]) for i in range(0, len(wire), size))
        assert out == piece


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
