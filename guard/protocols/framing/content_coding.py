"""Decoding of ``Content-Encoding`` with a limit on what may come out.  Pure: no I/O.

A body the guard cannot decode is a body it has not read, and is refused.  The limit holds while
decoding: a decompression bomb costs the limit and what one small step of input can become.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import brotli
import zstandard

from guard.core.errors import MessageError, OversizeError
from guard.values.decoder import ZSTD_WINDOW, unpacked_brotli

if TYPE_CHECKING:
    from collections.abc import Callable

CODE: Final = "bad_content_encoding"
_BOMB_STEP: Final = 64
"""Bytes of zstd per step: its library cannot limit the output."""
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
    decoder = StreamDecoder(encoding or "", limit=limit)
    decoded = decoder.feed(body)
    if not decoder.is_finished:
        raise MessageError(CODE, f"the body is not valid {decoder.coding}")
    return decoded


class StreamDecoder:
    """Takes the content coding off a stream, chunk by chunk, as soon as the sender flushes.

    Args:
        encoding: value of ``Content-Encoding``; at most one coding is understood.
        limit: bytes that one chunk may become.

    Raises:
        MessageError: the coding is not understood.
    """

    def __init__(self, encoding: str, *, limit: int) -> None:
        self.coding = encoding.strip().lower() or "identity"
        self._limit = limit
        make = _DECODERS.get(self.coding)
        if make is None:
            raise MessageError(
                CODE, f"content encoding `{self.coding[:40]}` is not understood", status=415
            )
        self._decoder = make()

    @property
    def is_finished(self) -> bool:
        """Return whether the data may end here."""
        return self._decoder.is_finished()

    def feed(self, chunk: bytes) -> bytes:
        """Return what a chunk decodes to, empty where more input is needed.

        Raises:
            OversizeError: more than ``limit`` bytes came out.
            MessageError: damaged data, or data after its end.
        """
        try:
            return self._decoded(chunk)
        except _DAMAGED as error:
            raise MessageError(CODE, f"the body is not valid {self.coding}") from error

    def _decoded(self, chunk: bytes) -> bytes:
        out = bytearray()
        step = self._decoder.step or len(chunk) or 1
        for start in range(0, len(chunk), step):
            if self._decoder.is_finished() and self._decoder.ends:
                raise EOFError
            out += self._decoder.process(chunk[start : start + step], self._limit + 1)
            if len(out) > self._limit:
                raise OversizeError(f"the body is larger than {self._limit} bytes once decoded")
        return bytes(out)


class _Decoder:
    """Decoder of no coding, and base of those of the others."""

    step = 0
    """Bytes of input per step; 0 for all at once."""
    ends = False
    """True if the data themselves mark their end."""

    def process(self, data: bytes, limit: int) -> bytes:
        return data[:limit]

    def is_finished(self) -> bool:
        return True


class _Zlib(_Decoder):
    ends = True

    def __init__(self, window: int) -> None:
        self._decoder = zlib.decompressobj(window)

    def process(self, data: bytes, limit: int) -> bytes:
        decoded = self._decoder.decompress(data, limit)
        if self._decoder.unused_data:
            raise EOFError
        return decoded

    def is_finished(self) -> bool:
        return self._decoder.eof


class _Brotli(_Decoder):
    ends = True

    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()

    def process(self, data: bytes, limit: int) -> bytes:
        return unpacked_brotli(self._decoder, data, limit)

    def is_finished(self) -> bool:
        return bool(self._decoder.is_finished())


class _Zstd(_Decoder):
    step, ends = _BOMB_STEP, True

    def __init__(self) -> None:
        self._decoder = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()

    def process(self, data: bytes, limit: int) -> bytes:
        decoded = self._decoder.decompress(data)
        if self._decoder.unused_data:
            raise EOFError
        return decoded

    def is_finished(self) -> bool:
        return self._decoder.eof


def _gzip() -> _Zlib:
    return _Zlib(16 + zlib.MAX_WBITS)


_DECODERS: Final[dict[str, Callable[[], _Decoder]]] = {
    "identity": _Decoder,
    "gzip": _gzip,
    "x-gzip": _gzip,
    # RFC 9110 means the zlib format by "deflate"; raw deflate is what a lenient peer would guess.
    "deflate": lambda: _Zlib(zlib.MAX_WBITS),
    "br": _Brotli,
    "zstd": _Zstd,
}
"""Makers of the decoder of each coding."""
