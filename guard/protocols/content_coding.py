"""Decoding of ``Content-Encoding`` with a limit on what may come out.  Pure: no I/O.

A body the guard cannot decode is a body it has not read, and is refused.  The limit holds while
decoding, so a decompression bomb costs at most the limit.
"""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, Final

import brotli
import zstandard

from guard.core.errors import MessageError, OversizeError

if TYPE_CHECKING:
    from collections.abc import Callable

CODE: Final = "bad_content_encoding"
_STEP: Final = 64 * 1024


def decode_content(body: bytes, encoding: str | None, *, limit: int) -> bytes:
    """Return the body without its content coding.

    Args:
        body: as on the wire, after transfer coding.
        encoding: value of ``Content-Encoding``; at most one coding is understood.
        limit: bytes the decoded body may have.

    Raises:
        OversizeError: more than ``limit`` bytes came out.
        MessageError: an unknown coding or more than one, damaged data, or bytes after its end.
    """
    coding = (encoding or "identity").strip().lower()
    if coding in {"identity", ""}:
        if len(body) > limit:
            raise OversizeError(f"the body is larger than {limit} bytes")
        return body
    decoder = _DECODERS.get(coding)
    if decoder is None:
        raise MessageError(CODE, f"content encoding `{coding[:40]}` is not understood", status=415)
    try:
        return decoder(body, limit)
    except (zlib.error, brotli.error, zstandard.ZstdError, EOFError) as error:
        raise MessageError(CODE, f"the body is not valid {coding}") from error


def _zlib(body: bytes, limit: int, *, window: int) -> bytes:
    decoder = zlib.decompressobj(window)
    decoded = decoder.decompress(body, limit + 1)
    _check(len(decoded), limit)
    if not decoder.eof or decoder.unused_data:
        raise EOFError
    return decoded


def _gzip(body: bytes, limit: int) -> bytes:
    return _zlib(body, limit, window=16 + zlib.MAX_WBITS)


def _deflate(body: bytes, limit: int) -> bytes:
    # RFC 9110 means the zlib format by "deflate"; raw deflate is what a lenient peer would guess.
    return _zlib(body, limit, window=zlib.MAX_WBITS)


def _brotli(body: bytes, limit: int) -> bytes:
    decoder = brotli.Decompressor()
    out = bytearray()
    for start in range(0, len(body), _STEP):
        if decoder.is_finished():
            raise EOFError
        out += decoder.process(body[start : start + _STEP])
        _check(len(out), limit)
    if not decoder.is_finished():
        raise EOFError
    return bytes(out)


def _zstd(body: bytes, limit: int) -> bytes:
    source = io.BytesIO(body)
    out = bytearray()
    with zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=False) as reader:
        while chunk := reader.read(_STEP):
            out += chunk
            _check(len(out), limit)
    frame = zstandard.frame_content_size(body)
    if frame >= 0 and frame != len(out):
        raise EOFError
    return bytes(out)


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise OversizeError(f"the body is larger than {limit} bytes once decoded")


_DECODERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
