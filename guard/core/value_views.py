"""Other readings of a text: what an address in it looks like once its disguise is undone.

Pure: no I/O.  Whatever is found only here can *taint* a value and never attest one, so a wrong
guess costs a question to a human and frees nobody.  Every expression is linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import unicodedata
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN_LIMIT: Final = 64
"""Encoded tokens decoded per text; each is a new text to look through."""
TOKEN_LENGTH: Final = 4096
"""Characters of one encoded token that are decoded."""
WHOLE_LIMIT: Final = 64 * 1024
"""Characters up to which compatibility characters are decomposed."""
PLACE_LIMIT: Final = 100
"""Places of one kind that are read another way, per text."""
SURROUNDING: Final = 72
"""Characters before and after such a place; an address and its spacing fit in."""
DEPTH: Final = 3
"""Encodings inside one another that are followed."""

_HIDDEN: Final = dict.fromkeys(
    [
        *(0x00AD, 0x034F, 0x061C, 0x180E, 0x2800, 0x3164, 0xFEFF, 0xFFA0, 0x115F, 0x1160),
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xFE00, 0xFE10),
    ]
)
_LETTERS: Final = "аеорсухіјѕһԁԛԝѵӏмтквнαορνικτυχηıɡɑℓ∙·․．。＠﹫"  # noqa: RUF001
_ASCII: Final = "aeopcyxijshdqwvlmtkbhaopviktuxnigal.....@@"
_ALIKE: Final = str.maketrans(_LETTERS, _ASCII)
"""Letters that look like ASCII ones in most fonts, lower case."""
_AT: Final = re.compile(r"[ \t]*[\[({<][ \t]*(?:at|@|arroba|ät)[ \t]*[\])}>][ \t]*", re.IGNORECASE)
_DOT: Final = re.compile(
    r"[ \t]*[\[({<][ \t]*(?:dot|\.|punkt|point|punto)[ \t]*[\])}>][ \t]*", re.IGNORECASE
)
_WORD_AT: Final = re.compile(r"(?<=[\w.+-])[ \t]{1,4}at[ \t]{1,4}(?=[\w-])", re.IGNORECASE)
_WORD_DOT: Final = re.compile(r"(?<=[\w-])[ \t]{1,4}dot[ \t]{1,4}(?=[\w-])", re.IGNORECASE)
_GAP_AT: Final = re.compile(r"(?<=[\w.+-])[\s\"'`+,;|]{0,8}@[\s\"'`+,;|]{0,8}(?=[\w-])")
_GAP_DOT: Final = re.compile(
    r"(?<=[\w-])(?:[ \t]{1,4}\.[ \t]{0,4}|[ \t]{0,4}\.[ \t]{1,4})(?=[\w-])"
)
_SPELLED: Final = re.compile(r"(?<![^\s\"'(])(?:[\w@.+][ \t_*|-]{1,3}){5,80}[\w@.](?![\w@])")
_SPELLING: Final = re.compile(r"[ \t_*|-]+")
_TOKEN64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{10,}={0,2}")
_TOKEN16: Final = re.compile(r"(?<![0-9A-Fa-f])(?:(?:0x|\\x|%)?[0-9A-Fa-f]{2}[ :,]?){6,}")
_NOT_HEX: Final = re.compile(r"0x|\\x|[^0-9A-Fa-f]")
_TOKEN32: Final = re.compile(r"(?<![A-Z2-7])[A-Z2-7]{16,}={0,6}")
_NUMBERS: Final = re.compile(r"(?<!\d)(?:1?\d{2}[ ,]{1,2}){6,}1?\d{2}(?!\d)")
_SIGN: Final = re.compile(
    r"(?<![\w+])@|@(?![\w\[])|[\[({<][ \t]*(?:at|@|dot|arroba|\.)[ \t]*[\])}>]|[ \t](?:at|dot)[ \t]"
)
_ENTITIES: Final = re.compile(r"&(?:#|commat|period|nbsp|amp)")
_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_ESCAPES: Final = re.compile(r"\\[ux][0-9A-Fa-f]{2}")
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,100}")
_LIAM: Final = re.compile(r"(?<![\w.-])[\w-]{2,63}\.[\w.-]{1,100}@[\w.+-]{1,64}")
_ESCAPED: Final = re.compile(r"\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})")
_JOINED: Final = re.compile(r"[\"'`][ \t]*\+[ \t]*[\"'`]")
_PRINTABLE: Final = 0.85


def is_own_skeleton(text: str) -> bool:
    """Return whether a text is the same as its skeleton; False where that takes work to say."""
    return text.isascii() and text == text.lower()


def skeleton(text: str) -> str:
    """Return a text in lower case, without hidden characters, look-alikes replaced by ASCII."""
    if text.isascii():
        return text.lower()
    text = text.translate(_HIDDEN).lower().translate(_ALIKE)
    if len(text) <= WHOLE_LIMIT:
        # Quadratic only in runs of combining marks, and a text is looked at in bounded pieces.
        text = "".join(
            char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char)
        )
    return text.lower().translate(_ALIKE)


def views(text: str, depth: int = DEPTH) -> Iterator[str]:
    """Yield further readings of a text; the text itself is not among them.

    Most are made of the places where a disguise may be, so they are far shorter than the text.
    """
    plain = skeleton(text)
    if plain != text.lower():
        yield plain
    yield from _respaced(plain)
    for unescaped in _unescaped(text):
        yield unescaped
        yield from _respaced(unescaped)
    yield from _turned(plain)
    if depth > 0:
        for decoded in _decoded(text):
            yield decoded
            yield from views(decoded, depth - 1)


def _unescaped(text: str) -> Iterator[str]:
    for pattern, decode in (
        (_ENTITIES, html.unescape),
        (_PERCENT, lambda run: unquote(unquote(run))),
        (_ESCAPES, lambda run: _ESCAPED.sub(lambda one: chr(int(one[1] or one[2], 16)), run)),
    ):
        places = _places(text, pattern)
        if places:
            yield skeleton(decode(places))


def _respaced(text: str) -> Iterator[str]:
    """Yield the places that may hold an address with its signs spelt or spaced out."""
    places = _places(text, _SIGN)
    if places:
        named = _DOT.sub(".", _AT.sub("@", places))
        spoken = _WORD_AT.sub("@", _WORD_DOT.sub(".", named))
        yield spoken
        yield _GAP_DOT.sub(".", _GAP_AT.sub("@", _JOINED.sub("", spoken)))
    spelled = "\n".join(
        _SPELLING.sub("", found[0]) for found in islice(_SPELLED.finditer(text), TOKEN_LIMIT)
    )
    if spelled:
        yield spelled
        yield _GAP_DOT.sub(".", _GAP_AT.sub("@", spelled))


def _turned(text: str) -> Iterator[str]:
    """Yield what may be addresses written backwards, or with letters rotated by 13."""
    rotated = " ".join(found[0] for found in islice(_MAIL.finditer(text), TOKEN_LIMIT))
    if rotated:
        yield codecs.encode(rotated, "rot13")
    turned = " ".join(found[0] for found in islice(_LIAM.finditer(text), TOKEN_LIMIT))
    if turned:
        yield turned[::-1]


def _places(text: str, pattern: re.Pattern[str]) -> str:
    """Return the surroundings of what a pattern finds, each on a line of its own."""
    pieces: list[str] = []
    end = 0
    for found in islice(pattern.finditer(text), PLACE_LIMIT):
        start = max(found.start() - SURROUNDING, 0)
        if start < end and pieces:
            pieces[-1] += text[end : found.end() + SURROUNDING]
        else:
            pieces.append(text[start : found.end() + SURROUNDING])
        end = max(end, min(found.end() + SURROUNDING, len(text)))
    return "\n".join(pieces)


def _decoded(text: str) -> Iterator[str]:
    """Yield what encoded tokens of a text decode to, where that is text."""
    for pattern, decode in (
        (_TOKEN64, _base64),
        (_TOKEN16, _hex),
        (_TOKEN32, _base32),
        (_NUMBERS, _codes),
    ):
        for found in islice(pattern.finditer(text), TOKEN_LIMIT):
            decoded = decode(found[0][:TOKEN_LENGTH])
            if decoded is not None:
                yield decoded


def _as_text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    shown = sum(char.isprintable() or char.isspace() for char in text)
    return text if text and shown >= _PRINTABLE * len(text) else None


def _base64(token: str) -> str | None:
    bare = token.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return _as_text(base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True))
    except (binascii.Error, ValueError):
        return None


def _hex(token: str) -> str | None:
    digits = _NOT_HEX.sub("", token)
    return _as_text(bytes.fromhex(digits[: len(digits) & ~1]))


def _base32(token: str) -> str | None:
    bare = token.rstrip("=")
    try:
        return _as_text(base64.b32decode(bare + "=" * (-len(bare) % 8)))
    except (binascii.Error, ValueError):
        return None


def _codes(token: str) -> str | None:
    numbers = [int(part) for part in re.findall(r"\d+", token)]
    return _as_text(bytes(number for number in numbers if number < 256))  # noqa: PLR2004 - a byte
