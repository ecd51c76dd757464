"""Other readings of a text: what an address in it looks like once its disguise is undone.

Pure: no I/O.  Whatever is found only here can *taint* a value and never attest one, so a wrong
guess costs a question to a human and frees nobody.  Every expression is linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.escaped_text import unescaped
from guard.core.spelled_text import respaced

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN_LIMIT: Final = 64
"""Encoded tokens decoded per text; each is a new text to look through."""
TOKEN_LENGTH: Final = 4096
"""Characters of one encoded token that are decoded."""
WHOLE_LIMIT: Final = 64 * 1024
"""Characters up to which compatibility characters are decomposed."""
DEPTH: Final = 4
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
_SMALL: Final = "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ‐‑−﹣"  # noqa: RUF001
_PLAIN: Final = "abcdefghijklmnoprstuvwyz----"
_ALIKE: Final = (
    str.maketrans(_LETTERS + _SMALL, _ASCII + _PLAIN)
    | {0xE0000 + code: chr(code).lower() for code in range(0x20, 0x7F)}
    | {zero + digit: str(digit) for zero in (0x660, 0x6F0, 0x966) for digit in range(10)}
)
"""Letters that look like ASCII ones in most fonts, lower case."""
_TOKEN64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{10,}={0,2}")
_WRAPPED64: Final = re.compile(
    r"(?<![\w+/])(?:(?:[A-Za-z0-9+/]{8,76}[\r\n]{1,2}[ \t]{0,8}){1,60}|(?:[A-Za-z0-9+/]{4} ){3,60})"
    r"[A-Za-z0-9+/]{2,76}={0,2}"
)
_TOKEN16: Final = re.compile(r"(?<![0-9A-Fa-f])(?:(?:0x|\\x|%)?[0-9A-Fa-f]{2}[ :,;-]{0,2}){6,}")
_NOT_HEX: Final = re.compile(r"0x|\\x|[^0-9A-Fa-f]")
_TOKEN32: Final = re.compile(r"(?<![A-Za-z2-7])(?:[A-Z2-7]{16,}|[a-z2-7]{16,})={0,6}")
_NUMBERS: Final = re.compile(r"(?<!\d)(?:1?\d{2}[ ,;-]{1,2}){6,}1?\d{2}(?!\d)")
_BITS: Final = re.compile(r"(?<!\d)(?:[01]{8}[ ,]?){6,}(?!\d)")
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,100}")
_LIAM: Final = re.compile(r"(?<![\w.-])[\w-]{2,63}\.[\w.-]{1,100}@[\w.+-]{1,64}")
_LRU: Final = re.compile(r"\S{4,400}//:s?ptth(?!\w)")
_HEEY: Final = re.compile(r"(?<!\w)uggcf?://\S{4,400}")
_KNAB: Final = re.compile(r"(?<!\w)[0-9a-z]{4,28}\d{6}[0-9a-z]{0,4}\d{2}[a-z]{2}(?!\w)")
_SIX_DIGITS: Final = re.compile(r"\d{6}")
_FILES: Final = (
    *(".csv", ".doc", ".docx", ".eml", ".htm", ".html", ".md", ".pdf", ".ppt", ".pptx", ".txt"),
    *(".xls", ".xlsx", ".zip"),
)
"""How names of files end, whose last part else looks like that of a host."""
_PRINTABLE: Final = 0.85
_WIDE: Final = 3
"""One zero in so many bytes is text of two bytes for each letter."""


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
    yield from respaced(plain)
    for reading in map(skeleton, unescaped(text)):
        yield reading
        yield from respaced(reading)
    yield from filter(None, _turned(plain))
    if depth > 0:
        for decoded in _decoded(text):
            yield decoded
            yield from views(decoded, depth - 1)


def _turned(text: str) -> Iterator[str]:
    """Yield what may be written backwards or rotated by 13 letters, and addresses of files."""
    if "@" in text:
        rotated = _all(_MAIL, text)
        if rotated:
            yield codecs.encode(rotated, "rot13")
        yield _all(_LIAM, text)[::-1]
        for name in rotated.split():
            if name.endswith(_FILES):
                local, _, domain = name.rpartition(".")[0].partition("@")
                yield f"{local}@{domain} {local.rpartition('_')[2]}@{domain}"
    if "uggc" in text:
        yield codecs.encode(_all(_HEEY, text), "rot13")
    if "//:" in text:
        yield _all(_LRU, text)[::-1]
    if _SIX_DIGITS.search(text):
        yield _all(_KNAB, text)[::-1]


def _all(pattern: re.Pattern[str], text: str) -> str:
    return " ".join(found[0] for found in islice(pattern.finditer(text), TOKEN_LIMIT))


def _decoded(text: str) -> Iterator[str]:
    """Yield what encoded tokens of a text decode to, where that is text."""
    for pattern, decode in (
        (_TOKEN64, _base64),
        (_WRAPPED64, _wrapped),
        (_TOKEN16, _hex),
        (_TOKEN32, _base32),
        (_NUMBERS, _codes),
        *(((_BITS, _bits),) if _SIX_DIGITS.search(text) else ()),
    ):
        for found in islice(pattern.finditer(text), TOKEN_LIMIT):
            decoded = decode(found[0][:TOKEN_LENGTH])
            if decoded is not None:
                yield decoded


def _as_text(data: bytes) -> str | None:
    wide = data.count(0) * _WIDE >= len(data)
    order = "utf-16-be" if data[:1] == b"\0" else "utf-16-le"
    try:
        text = data.decode(order if wide else "utf-8")
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


def _wrapped(token: str) -> str | None:
    """Return the text of base64 in lines or groups, all of one length but the last."""
    *groups, last = token.split()
    even = len({len(group) for group in groups}) == 1 and len(groups[0]) % 4 == 0
    return _base64("".join((*groups, last))) if even and len(last) <= len(groups[0]) else None


def _hex(token: str) -> str | None:
    digits = _NOT_HEX.sub("", token)
    return _as_text(bytes.fromhex(digits[: len(digits) & ~1]))


def _base32(token: str) -> str | None:
    bare = token.rstrip("=")
    try:
        return _as_text(base64.b32decode(bare.upper() + "=" * (-len(bare) % 8)))
    except (binascii.Error, ValueError):
        return None


def _codes(token: str) -> str | None:
    numbers = [int(part) for part in re.findall(r"\d+", token)]
    return _as_text(bytes(number for number in numbers if number < 256))  # noqa: PLR2004 - a byte


def _bits(token: str) -> str | None:
    return _as_text(bytes(int(byte, 2) for byte in re.findall(r"[01]{8}", token)))
