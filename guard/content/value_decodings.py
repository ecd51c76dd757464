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
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

import re2

from guard.content.escapes import unescaped
from guard.content.spelled import respaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Decoder = Callable[[str], str | None]

TOKEN_LIMIT: Final = 64
"""Encoded tokens decoded per text; each is a new text to look through."""
TOKEN_LENGTH: Final = 4096
"""Characters of one encoded token that are decoded."""
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
_MAYBE_WRAPPED: Final = re2.compile(
    rb"[A-Za-z0-9+/]{8}[\r\n]{1,2}[ \t]{0,8}[A-Za-z0-9+/]{2}"
    rb"|(?:[A-Za-z0-9+/]{4} ){3}[A-Za-z0-9+/]{2}"
)
_MAYBE_CODED: Final = re2.compile(
    rb"(?:(?:0x|\\x|%)?[0-9A-Fa-f]{2}[ :,;-]{0,2}){6}|[A-Z2-7]{16}|[a-z2-7]{16}"
    rb"|(?:(?:[0-9]|[^\x00-\x7f]){2}[ ,;-]{1,2}1?){6}(?:[0-9]|[^\x00-\x7f])"
)
"""What is in the bytes of a text if the patterns before find anything in it."""
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,100}")
_LIAM: Final = re.compile(r"(?<![\w.-])[\w-]{2,63}\.[\w.-]{1,100}@[\w.+-]{1,64}")
_LRU: Final = re.compile(r"\S{4,400}//:s?ptth(?!\w)")
_HEEY: Final = re.compile(r"(?<!\w)uggcf?://\S{4,400}")
_KNAB: Final = re.compile(r"(?<!\w)[0-9a-z]{4,28}\d{6}[0-9a-z]{0,4}\d{2}[a-z]{2}(?!\w)")
_SIX_DIGITS: Final = re.compile(r"\d{6}")
FILE_ENDINGS: Final = (
    *(".csv", ".doc", ".docx", ".eml", ".htm", ".html", ".md", ".pdf", ".ppt", ".pptx", ".txt"),
    *(".xls", ".xlsx", ".zip", ".ics", ".json", ".yaml", ".yml", ".xml", ".toml", ".ini", ".cfg"),
    *(".log", ".py", ".js", ".ts", ".sh", ".sql", ".c", ".h", ".go", ".rs", ".java", ".exe"),
    *(".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".mp3", ".mp4", ".wav", ".gz", ".tar"),
)
"""How names of files end, whose last part else looks like that of a host."""
_SHORTEST: Final = 10
"""Letters of the shortest word that may be base64."""
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
    lower = text.lower()
    # Letter by letter: what is done to one depends on no other, and few are different.
    letters = {char: _letter(char) for char in set(lower)}
    return "".join(map(letters.__getitem__, lower))


@lru_cache(maxsize=8192)
def _letter(char: str) -> str:
    """Return what a lower-case character is in a skeleton: itself, other ones, or nothing."""
    if ord(char) in _HIDDEN:
        return ""
    parts = unicodedata.normalize("NFKD", char.translate(_ALIKE))
    bare = "".join(part for part in parts if not unicodedata.combining(part))
    return bare.lower().translate(_ALIKE)


def words_with(sign: str, words: list[str]) -> str:
    """Return the words of a text that have a sign in them, for patterns that cross no space.

    What such a pattern finds in a text it finds in these words, in the same order: around a word
    there is a space, here as there.
    """
    return " ".join([word for word in words if sign in word])


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
        mails = words_with("@", text.split())
        rotated = _all(_MAIL, mails)
        if rotated:
            yield codecs.encode(rotated, "rot13")
        yield _all(_LIAM, mails)[::-1]
        for name in rotated.split():
            if name.endswith(FILE_ENDINGS):
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
    long = " ".join([word for word in text.split() if len(word) >= _SHORTEST])
    yield from _each(_TOKEN64, long, _base64)
    data = text.encode("utf-8", "replace")
    if _MAYBE_WRAPPED.search(data) is not None:
        yield from _each(_WRAPPED64, text, _wrapped)
    if _MAYBE_CODED.search(data) is not None:
        yield from _each(_TOKEN16, text, _hex)
        yield from _each(_TOKEN32, long, _base32)
        yield from _each(_NUMBERS, text, _codes)
    if _SIX_DIGITS.search(text) is not None:
        yield from _each(_BITS, text, _bits)


def _each(pattern: re.Pattern[str], text: str, decode: Decoder) -> Iterator[str]:
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
        return _as_text(binascii.a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True))
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
