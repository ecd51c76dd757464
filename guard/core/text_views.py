"""One text in every form a reader could give it: decoded, unescaped, unmasked.  Pure: no I/O.

Whoever hides a secret encodes it, and a pattern that looks at the bytes sees nothing.  So patterns
look at views: look-alike letters folded, percent signs undone, base64, base32 and hex undone where
text comes out, quotes and backslashes of a shell taken away.
"""

from __future__ import annotations

import base64
import binascii
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import re2

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTH: Final = 3
"""How many codings may lie inside each other."""
SIZE: Final = 256 * 1024
"""Characters of views per text; beyond it nothing more is decoded."""
_TOKEN: Final = re2.compile(r"[A-Za-z0-9+/_-]{12,}={0,6}")
_HEX: Final = re2.compile(r"(?i)(?:[0-9a-f]{2}){5,}")
_BASE32: Final = re2.compile(r"(?i)[a-z2-7]{16,}")
_SHELL: Final = re2.compile(r"""[\\'"`^]|\$\{?IFS\}?|\$@|\$\*""")
_FOLDED: Final = str.maketrans(
    "аеіорсухѕјԁһкмтвАЕІОРСУХЅЈНКМТВοαεικνρτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeiopcyxsjdhkmtbAEIOPCYXSJHKMTBoaeiknptuxABEZHIKMNOPTYX",
)
_MOSTLY: Final = 0.95
_FEWEST: Final = 5


@lru_cache(maxsize=64)
def views(text: str) -> tuple[str, ...]:
    """Return the text and everything it decodes to, each once, the text itself first."""
    found: dict[str, None] = {text: None}
    level, room = [text], SIZE
    for _ in range(DEPTH):
        following: list[str] = []
        for item in level:
            for view in _one_step(item):
                room -= len(view)
                if room < 0:
                    return tuple(found)
                if view not in found:
                    found[view] = None
                    following.append(view)
        level = following
    return tuple(found)


def _one_step(text: str) -> Iterator[str]:
    folded = fold(text)
    if folded != text:
        yield folded
    if "%" in text:
        yield unquote(text)
    bare = _SHELL.sub(lambda match: " " if "IFS" in match.group() else "", text)
    if bare != text:
        yield bare
    for match in _TOKEN.finditer(text):
        # A word has neither digits nor capitals inside; a coding of text has some of them.
        if not (match.group().isalpha() and match.group().islower()):
            yield from decoded(match.group())


def fold(text: str) -> str:
    """Return the text in compatibility form, look-alikes as Latin letters, nothing invisible."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKC", text).translate(_FOLDED)
    return "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")


def decoded(token: str) -> Iterator[str]:
    """Yield the texts that a token is a coding of."""
    if _HEX.fullmatch(token):
        yield from _text(bytes.fromhex(token))
    if _BASE32.fullmatch(token.rstrip("=")):
        bare = token.rstrip("=").upper()
        yield from _try(base64.b32decode, bare + "=" * (-len(bare) % 8))
    bare = token.rstrip("=").replace("-", "+").replace("_", "/")
    if len(bare) > _FEWEST and len(bare) % 4 != 1:
        yield from _try(base64.b64decode, bare + "=" * (-len(bare) % 4))


def _try(decode: object, token: str) -> Iterator[str]:
    if callable(decode):
        try:
            yield from _text(decode(token))
        except (binascii.Error, ValueError):
            return


def _text(raw: bytes) -> Iterator[str]:
    """Yield the bytes as text if that is what they are."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return
    printable = sum(letter.isprintable() or letter in "\r\n\t" for letter in text)
    if len(text) >= _FEWEST and printable >= _MOSTLY * len(text):
        yield text
