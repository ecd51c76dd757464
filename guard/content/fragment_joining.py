"""Data that a call carries in pieces, put together: its values, in document order.  Pure: no I/O.

Whoever cuts a key in two sends both halves, in the order of the whole more often than not: as two
arguments, two parameters of a query, two members of a body.  Joined, they are looked at again, for
forms that nothing else has.
"""

from __future__ import annotations

import codecs
import json
from itertools import permutations
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import re2

from guard.core.json_values import strings_in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from urllib.parse import SplitResult

    from guard.core.model import Json

LIMIT: Final = 16 * 1024
"""Characters of one joined text; what is longer is not cut to be hidden."""
PIECES: Final = 500
_PARTED: Final = re2.compile(r"[\s.|+'\"-]+")
_BLANK: Final = re2.compile(r"(?:\s|%0[09AaDd]|%20|[\x00-\x1f\x7f])+")
"""What shows as nothing between letters, also as a URL writes it."""
_TURNED: Final = 4
"""Pieces, or fewer, that are joined in every order; more of them as they follow and backwards."""
_PIECE: Final = re2.compile(r"[A-Za-z0-9_+/=.-]{3,}")
_LABEL: Final = re2.compile(
    r"(?i)^\W*(?:part|chunk|piece|segment|p|half|fragment)?[ _#-]?[0-9]{0,3}\s*[:=]\s*"
    r"|^\W*(?:part|chunk|piece|segment|half|fragment)[ _#-]?[0-9]{1,3}\s+"
)


def joined(arguments: Json) -> Iterator[str]:
    """Yield the values of a call, of each query and of each document in it, joined."""
    texts = list(strings_in_order(arguments))
    yield from join_pieces(texts)
    for text in texts:
        if len(text) > LIMIT:
            continue
        parts = _url(text)
        query = parts.query if parts is not None else text
        if parts is not None:
            yield from join_pieces([part for part in parts.path.split("/") if part])
        if "=" in query:
            yield from join_pieces([value for _, value in parse_qsl(query, keep_blank_values=True)])
        if text[:1] in {"{", "["}:
            yield from join_pieces(list(_document(text)))


def members(text: str) -> Iterator[str]:
    """Yield the parts of a URL and the members of a document, each whole."""
    if len(text) > LIMIT:
        return
    parts = _url(text)
    if parts is not None:
        yield from (unquote(part) for part in parts.path.split("/") if part)
        yield unquote(parts.fragment)
        yield unquote(parts.netloc.rpartition("@")[0])
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            yield from (name, value)
    elif text[:1] in {"{", "["}:
        yield from _document(text)


def join_pieces(pieces: Sequence[str]) -> Iterator[str]:
    """Yield pieces joined, as they are and without their numbering; nothing for a single piece."""
    if not 1 < len(pieces) <= PIECES or sum(map(len, pieces)) > LIMIT:
        return
    yield "".join(pieces)
    bare = [_LABEL.sub("", piece).strip() for piece in pieces]
    yield "".join(bare)
    tokens = [piece for piece in bare if _PIECE.fullmatch(piece)]
    if 1 < len(tokens) <= _TURNED:
        yield from map("".join, permutations(tokens))
    elif len(tokens) > 1:
        yield "".join(tokens)
        yield "".join(reversed(tokens))


def deobfuscated(text: str) -> Iterator[str]:
    """Yield a text reversed, under rot13, and without separators between its letters."""
    if len(text) > LIMIT:
        return
    yield text[::-1]
    yield codecs.encode(text, "rot13")
    for parts in (_PARTED, _BLANK):
        bare = parts.sub("", text)
        if bare != text:
            yield bare


def _url(text: str) -> SplitResult | None:
    """Return the parts of a text that is a URL."""
    try:
        return urlsplit(text) if "://" in text[:32] else None
    except ValueError:
        return None


def _document(text: str) -> Iterator[str]:
    try:
        yield from strings_in_order(json.loads(text))
    except (ValueError, RecursionError):
        return
