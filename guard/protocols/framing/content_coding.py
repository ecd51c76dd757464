"""Decoding of ``Content-Encoding`` with a limit on what may come out.  Pure: no I/O.

A body the guard cannot decode is a body it has not read, and is refused.  The limit holds while
decoding: a decompression bomb costs the limit and what one small step of input can become.
"""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, Final, Protocol

import brotli
import zstandard

from guard.core.errors import MessageError, OversizeError

if TYPE_CHECKING:
    from collections.abc import Callable

CODE: Final = "bad_content_encoding"
_STEP: Final = 64 * 1024
_BOMB_STEP: Final = 64
"""Bytes of input per step where the library cannot limit its output: sixteen bytes of brotli can
become 16 MiB."""
_DAMAGED: Final = (zlib.error, brotli.error, zstandard.ZstdError, EOFError)


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
    except _DAMAGED as error:
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
    for start in range(0, len(body), _BOMB_STEP):
        if decoder.is_finished():
            raise EOFError
        out += decoder.process(body[start : start + _BOMB_STEP])
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


class StreamDecoder:
    """Takes the content coding off a stream, chunk by chunk, as soon as the sender flushes.

    Args:
        encoding: value of ``Content-Encoding``; at most one coding is understood.
        limit: bytes that one chunk may become.

    Raises:
        MessageError: the coding is not understood.
    """

    def __init__(self, encoding: str, *, limit: int) -> None:
        self._coding = encoding.strip().lower() or "identity"
        self._limit = limit
        step = _STEPS.get(self._coding)
        if step is None:
            message = f"content encoding `{self._coding[:40]}` is not understood"
            raise MessageError(CODE, message, status=415)
        self._step = step()

    def feed(self, chunk: bytes) -> bytes:
        """Return what a chunk decodes to, empty where more input is needed.

        Raises:
            OversizeError: more than ``limit`` bytes came out.
            MessageError: damaged data, or data after its end.
        """
        try:
            return self._step(chunk, self._limit)
        except _DAMAGED as error:
            raise MessageError(CODE, f"the stream is not valid {self._coding}") from error


class _Decompressor(Protocol):
    def process(self, data: bytes) -> bytes: ...
    def is_finished(self) -> bool: ...


class _Zstd:
    """zstandard's decompressor with the names of brotli's."""

    def __init__(self) -> None:
        self._decoder = zstandard.ZstdDecompressor().decompressobj()

    def process(self, data: bytes) -> bytes:
        decoded = self._decoder.decompress(data)
        if self._decoder.unused_data:
            raise EOFError
        return decoded

    def is_finished(self) -> bool:
        return self._decoder.eof


def _identity_step() -> Callable[[bytes, int], bytes]:
    def step(chunk: bytes, limit: int) -> bytes:
        _check(len(chunk), limit)
        return chunk

    return step


def _zlib_step(window: int) -> Callable[[bytes, int], bytes]:
    decoder = zlib.decompressobj(window)

    def step(chunk: bytes, limit: int) -> bytes:
        if decoder.eof and chunk:
            raise EOFError
        out = decoder.decompress(chunk, limit + 1)
        _check(len(out), limit)
        if decoder.unused_data:
            raise EOFError
        return out

    return step


def _sliced_step(decoder: _Decompressor) -> Callable[[bytes, int], bytes]:
    def step(chunk: bytes, limit: int) -> bytes:
        out = bytearray()
        for start in range(0, len(chunk), _BOMB_STEP):
            if decoder.is_finished():
                raise EOFError
            out += decoder.process(chunk[start : start + _BOMB_STEP])
            _check(len(out), limit)
        return bytes(out)

    return step


_STEPS: Final[dict[str, Callable[[], Callable[[bytes, int], bytes]]]] = {
    "identity": _identity_step,
    "gzip": lambda: _zlib_step(16 + zlib.MAX_WBITS),
    "x-gzip": lambda: _zlib_step(16 + zlib.MAX_WBITS),
    "deflate": lambda: _zlib_step(zlib.MAX_WBITS),
    "br": lambda: _sliced_step(brotli.Decompressor()),
    "zstd": lambda: _sliced_step(_Zstd()),
}
"""Per coding: what makes the function that decodes one chunk after another."""
