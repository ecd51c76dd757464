"""Content codings are undone within a limit, or the body counts as unread."""

from __future__ import annotations

import gzip
import zlib

import brotli
import pytest
import zstandard

from guard.core.errors import MessageError, OversizeError
from guard.protocols.content_coding import decode_content

TEXT = b'{"jsonrpc": "2.0"}' * 50
CODED = {
    "gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
    "identity": TEXT,
}


@pytest.mark.parametrize("coding", CODED)
def test_each_coding_is_undone(coding: str) -> None:
    """The body comes out as it went in."""
    assert decode_content(CODED[coding], coding.upper(), limit=10_000) == TEXT


@pytest.mark.parametrize("coding", CODED)
def test_each_coding_stops_at_the_limit(coding: str) -> None:
    """What decodes to more than the limit is refused while decoding."""
    with pytest.raises(OversizeError):
        decode_content(CODED[coding], coding, limit=100)


@pytest.mark.parametrize("coding", [c for c in CODED if c != "identity"])
def test_damaged_data_is_refused(coding: str) -> None:
    """Truncated data, and data with something after its end, has no one reading."""
    for damaged in (CODED[coding][:-1], CODED[coding] + CODED[coding], b"", b"\x00garbage"):
        with pytest.raises(MessageError):
            decode_content(damaged, coding, limit=10_000)


@pytest.mark.parametrize("coding", ["gzip, gzip", "compress", "x-rot13", "aws-chunked"])
def test_other_codings_are_refused(coding: str) -> None:
    """A coding the guard does not undo hides the body from it."""
    with pytest.raises(MessageError):
        decode_content(TEXT, coding, limit=10_000)
