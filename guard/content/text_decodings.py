"""One text in every form a reader could give it: decoded, unescaped, unmasked.  Pure: no I/O.

Whoever hides a secret encodes it, and a pattern that looks at the bytes sees nothing.  So patterns
look at views: look-alike letters folded, percent signs and escapes undone, base64, base32 and hex
undone where text comes out (unpacked where it is compressed), quotes and backslashes of a shell
taken away.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
import zlib
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import re2

from guard.core.bounded_cache import bounded_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEPTH: Final = 4
"""How many codings may lie inside each other."""
SIZE: Final = 256 * 1024
"""Characters of views per text; beyond it nothing more is decoded."""
TOKENS: Final = 2000
"""Words per view that are tried as codings."""
_TOKEN: Final = re2.compile(r"[A-Za-z0-9+/_-]{12,}={0,6}")
_WRAPPED: Final = re2.compile(r"(?:[A-Za-z0-9+/]{16,}\s+)+[A-Za-z0-9+/]{2,}={0,2}")
_HEX: Final = re2.compile(r"(?i)(?:[0-9a-f]{2}){5,}")
_PAIRS: Final = re2.compile(r"(?i)\b(?:(?:0x)?[0-9a-f]{2}[ :,-]+){7,200}(?:0x)?[0-9a-f]{2}\b")
_NUMBERS: Final = re2.compile(r"\b(?:[0-9]{2,3}[ ,;]+){7,200}[0-9]{2,3}\b")
_OCTETS: Final = re2.compile(r"\b(?:[01]{8}[ ,]?){5,120}\b")
_BASE32: Final = re2.compile(r"(?i)[a-z2-7]{16,}")
_SHELL: Final = re2.compile(r"""\\\r?\n|[\\'"`^]|\$\{?IFS\}?|\$@|\$\*""")
_ESCAPE: Final = re2.compile(r"\\x([0-9A-Fa-f]{2})|\\u\{?([0-9A-Fa-f]{4,6})\}?|\\([0-3][0-7]{2})")
_ENTITY: Final = re2.compile(r"&#?\w{2,8};")
_FOLDED: Final = str.maketrans(
    "аеіорсухѕјԁһкмтвАЕІОРСУХЅЈНКМТВοαεικνρτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeiopcyxsjdhkmtbAEIOPCYXSJHKMTBoaeiknptuxABEZHIKMNOPTYX",
)
_SHORTEST: Final = 12
_MOSTLY: Final = 0.95
_FEWEST: Final = 5
_LAST_LETTER: Final = 0x10FFFF
_PACKED: Final = (b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda", b"x^")
_HALVES: Final = re.compile("[\ud800-\udfff]")
_WIDE: Final = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


@bounded_cache(64)
def views(text: str, *, shell: bool = True) -> tuple[str, ...]:
    """Return the text and everything it decodes to, each once, the text itself first.

    Args:
        text: of any length; the views are bounded.
        shell: whether one view is the text as a shell reads it, without quotes.
    """
    # Half a letter of UTF-16 is no text for the engines that look for patterns.
    text = _HALVES.sub("\ufffd", text)
    found: dict[str, None] = {text: None}
    level, room = [text], SIZE
    for _ in range(DEPTH):
        following: list[str] = []
        for item in level:
            for view in _one_step(item, shell=shell):
                room -= len(view)
                if room < 0:
                    return tuple(found)
                if view not in found:
                    found[view] = None
                    following.append(view)
        level = following
    return tuple(found)


def _one_step(text: str, *, shell: bool) -> Iterator[str]:
    folded = fold(text)
    if folded != text:
        yield folded
    if "%" in text:
        yield unquote(text)
    if "\\" in text:
        yield _ESCAPE.sub(_unescaped, text)
    if "&" in text and _ENTITY.search(text):
        yield html.unescape(text)
    if shell:
        bare = _SHELL.sub(lambda match: " " if "IFS" in match.group() else "", text)
        if bare != text:
            yield bare
    yield from _codings(text)


def _codings(text: str) -> Iterator[str]:
    for number, match in enumerate(_TOKEN.finditer(text)):
        if number >= TOKENS:
            break
        token = match.group()
        # A slash is a letter of base64, and in a path it is none.
        for piece in dict.fromkeys((token, *token.split("/"))):
            # A word has neither digits nor capitals inside; a coding of text has some of them.
            if len(piece) >= _SHORTEST and not (piece.isalpha() and piece.islower()):
                yield from decoded(piece)
    for match in _WRAPPED.finditer(text):
        yield from decoded("".join(match.group().split()))
    for match in _PAIRS.finditer(text):
        digits = match.group().lower().replace("0x", "")
        yield from _text(bytes.fromhex("".join(c for c in digits if c.isalnum())))
    for match in _OCTETS.finditer(text):
        digits = "".join(c for c in match.group() if c in "01")
        yield from _text(int(digits, 2).to_bytes(len(digits) // 8, "big"))
    for match in _NUMBERS.finditer(text):
        codes = [int(word) for word in match.group().replace(",", " ").replace(";", " ").split()]
        if max(codes) < 128:  # noqa: PLR2004  (ASCII)
            yield from _text(bytes(codes))


def _unescaped(match: re2._Match) -> str:
    digits = match.group(1) or match.group(2)
    code = int(digits, 16) if digits else int(match.group(3), 8)
    return chr(code) if code <= _LAST_LETTER and not 0xD800 <= code <= 0xDFFF else ""  # noqa: PLR2004  (surrogates)


def fold(text: str) -> str:
    """Return the text in compatibility form, look-alikes as Latin letters, nothing invisible."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKC", text).translate(_FOLDED)
    split = unicodedata.normalize("NFD", plain)
    return "".join(letter for letter in split if unicodedata.category(letter) not in {"Cf", "Mn"})


def decoded(token: str) -> Iterator[str]:
    """Yield the texts that a token is a coding of."""
    yield from _caseless(token)
    bare = token.rstrip("=").replace("-", "+").replace("_", "/")
    if len(bare) > _FEWEST and len(bare) % 4 != 1:
        yield from _try(base64.b64decode, bare + "=" * (-len(bare) % 4))


def decoded_label(label: str) -> bool:
    """Return whether a part of a host name is text in a coding that survives lower case."""
    return any(_caseless(label))


def _caseless(token: str) -> Iterator[str]:
    if _HEX.fullmatch(token):
        yield from _text(bytes.fromhex(token))
    if _BASE32.fullmatch(token.rstrip("=")):
        bare = token.rstrip("=").upper()
        yield from _try(base64.b32decode, bare + "=" * (-len(bare) % 8))


def _try(decode: Callable[[str], bytes], token: str) -> Iterator[str]:
    try:
        yield from _text(decode(token))
    except (binascii.Error, ValueError):
        return


def _text(raw: bytes) -> Iterator[str]:
    """Yield the bytes as text if that is what they are, unpacked where they are compressed."""
    if raw.startswith(_PACKED):
        raw = _unpacked(raw)
    try:
        text = raw.decode(_WIDE.get(raw[:2], "utf-8"))
    except UnicodeDecodeError:
        return
    if text.count("\0") * 3 > len(text):
        text = text.replace("\0", "")
    printable = sum(letter.isprintable() or letter in "\r\n\t" for letter in text)
    if len(text) >= _FEWEST and printable >= _MOSTLY * len(text):
        yield text


def _unpacked(raw: bytes) -> bytes:
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(raw, SIZE)
    except zlib.error:
        return raw
