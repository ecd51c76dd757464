"""Codings that nobody standardised, or hardly anybody uses: what a text says if it has one.

Whoever wants past a reader of base64 spells a key letter by letter, counts its bytes, writes it as
one large number, shifts its alphabet or cuts it into groups.  :mod:`guard.content.decoder` reads
what programs exchange, everywhere; here is the family of the rest, tried on the few words of a text
that look drawn.  What comes out of a positional coding is a text or noise, and noise is told: bytes
at random are printable with a chance of .37 each.  What comes out of a turned alphabet always looks
like a word, so it says something only by a form that nothing else has, or by its grammar.

Every expression is linear and every step bounded.  Pure: no I/O.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import lzma
import re
import string
import zlib
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING, Final

from guard.content.secret_forms import entropy
from guard.content.seed_words import WORDS
from guard.core.bounded_cache import bounded_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Protocol

    class _Unpacker(Protocol):
        def decompress(self, data: bytes, limit: int, /) -> bytes: ...


LIMIT: Final = 16 * 1024
"""Characters of a text that are read so; what is longer is a document."""
TRIED: Final = 48
"""Words of one text that are tried."""
LENGTH: Final = 1024
"""Characters of one of them: a large number costs the square of its digits."""
SHORTEST: Final = 8
"""Characters of the shortest text that a positional coding is believed to spell."""
_TOKEN: Final = 16
_DRAWN_BITS: Final = 2.5
_PRINTED: Final = frozenset(range(32, 127)) | {9, 10, 13}
_NUMBER: Final = 30
"""Digits of a number that is no id."""

# --- bytes ------------------------------------------------------------------------------------

_STANDARD: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_SIXTY_FOUR: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
_TABLES32: Final = tuple(
    str.maketrans(letters, _STANDARD)
    for letters in (
        "0123456789ABCDEFGHIJKLMNOPQRSTUV",
        "YBNDRFG8EJKMCPQXOT1UWISZA345H769",
        "0123456789ABCDEFGHJKMNPQRSTVWXYZ",
    )
)
"""The alphabets of RFC 4648's extended hex, of z-base-32 and of Crockford."""
_XX: Final = str.maketrans(
    "+-" + string.digits + string.ascii_uppercase + string.ascii_lowercase, _SIXTY_FOUR
)
_Z85: Final = str.maketrans(
    string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#",
    string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~",
)
_ORDERS62: Final = (
    string.digits + string.ascii_uppercase + string.ascii_lowercase,
    string.digits + string.ascii_lowercase + string.ascii_uppercase,
    string.ascii_uppercase + string.ascii_lowercase + string.digits,
)
_PLACES62: Final = tuple({letter: at for at, letter in enumerate(order)} for order in _ORDERS62)


def _padded64(word: str) -> bytes:
    bare = word.rstrip("=").replace("-", "+").replace("_", "/")
    return binascii.a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)


def _padded32(word: str) -> bytes:
    bare = word.upper().rstrip("=")
    return base64.b32decode(bare + "=" * (-len(bare) % 8))


def _number(word: str, base: int) -> bytes:
    number = int(word, base)
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _base62(word: str) -> Iterator[bytes]:
    for letters in _PLACES62:
        number = 0
        for char in word:
            number = number * 62 + letters[char]
        yield number.to_bytes((number.bit_length() + 7) // 8, "big")


def _raw(word: str) -> Iterator[bytes]:
    """Yield the bytes that one word spells, in each coding that it has the letters of."""
    attempts: list[Callable[[], bytes]] = [lambda: binascii.a2b_uu(word)]
    if word.isascii() and word.isalnum():
        if not (any(map(str.isupper, word)) and any(map(str.islower, word))):
            attempts.append(lambda: _number(word, 36))
            attempts += [
                (lambda table=table: _padded32(word.upper().translate(table)))  # type: ignore[misc]
                for table in _TABLES32
            ]
        else:
            yield from _base62(word)
        if len(word) >= _NUMBER and word.isdigit():
            attempts.append(lambda: _number(word, 10))
    forms = (word, word[::-1], word.translate(_ALPHABETS[12]))
    for form in forms:
        attempts += [
            lambda form=form: bytes.fromhex(form),  # type: ignore[misc]
            lambda form=form: _padded32(form),  # type: ignore[misc]
            lambda form=form: _padded64(form),  # type: ignore[misc]
        ]
    attempts += [
        lambda: bytes.fromhex(word.replace("-", "")),
        lambda: _padded64(word.translate(_XX)),
        lambda: base64.b85decode(word.translate(_Z85)),
        lambda: base64.b85decode(word),
        lambda: base64.a85decode(word),
    ]
    for attempt in attempts:
        try:
            yield attempt()
        except ValueError:  # binascii.Error is one
            continue


def _texts(data: bytes) -> Iterator[str]:
    """Yield the text that bytes are: as they are, unpacked, or each changed by the same bits."""
    if len(data) < SHORTEST:
        return
    if _PRINTED.issuperset(data):
        yield data.decode("ascii")
        return
    yield from _unpacked(data)
    high = data[0] & 0x80
    if all(byte & 0x80 == high for byte in data):
        for key in range(high or 1, high + 0x80):
            changed = data.translate(_CHANGED[key])
            if _PRINTED.issuperset(changed):
                yield changed.decode("ascii")


_CHANGED: Final = tuple(bytes(byte ^ key for byte in range(256)) for key in range(256))


def _unpacked(data: bytes) -> Iterator[str]:
    unpacker: _Unpacker
    if data.startswith(b"BZh"):
        unpacker = bz2.BZ2Decompressor()
    elif data.startswith(b"\xfd7zXZ"):
        unpacker = lzma.LZMADecompressor(memlimit=1 << 26)
    else:
        wrapped = data.startswith((b"\x1f\x8b", b"x"))
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32 if wrapped else -zlib.MAX_WBITS)
    try:
        inside = unpacker.decompress(data, LIMIT)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
        return
    if len(inside) >= SHORTEST and _PRINTED.issuperset(inside):
        yield inside.decode("ascii")


# --- groups -----------------------------------------------------------------------------------

_PIECES: Final = (
    re.compile(r"([A-Za-z0-9+=]+)([^A-Za-z0-9+=]*)"),
    re.compile(r"([A-Za-z0-9=_-]+)([^A-Za-z0-9=_-]*)"),
)
_NUMBERS: Final = re.compile(r"([0-9]+)([^0-9]*)")
"""A piece and what parts it from the next: signs of a coding part pieces, or belong to them."""
_LETTERS: Final = re.compile(r"\S([^A-Za-z0-9]{1,6}|</\w{1,8}>\s{0,2}<\w{1,8}>)(?:\S\1){14,}\S")
"""Signs behind each of which the same stands."""
_FEWEST_PIECES: Final = 4
_FEWEST_LETTERS: Final = 16
_WIDEST: Final = 16
"""Letters of one piece; what parts them is no longer than :data:`_APART`."""
_APART: Final = 12
_DIGITS: Final = {2: re.compile(r"[01]+"), 8: re.compile(r"[0-7]+"), 10: re.compile(r"[0-9]+")}


def _runs(text: str, parted: re.Pattern[str]) -> Iterator[list[str]]:
    """Yield the pieces of each run in which the same sign parts one from the next."""
    run: list[str] = []
    sign = ""
    for piece, following in parted.findall(text):
        run.append(piece)
        if following == sign and len(run) > 1:
            continue
        if len(run) >= _FEWEST_PIECES:
            yield run
        run, sign = [piece], following if len(following) <= _APART else ""
    if len(run) >= _FEWEST_PIECES:
        yield run


def ungrouped(text: str) -> Iterator[str]:
    """Yield runs of pieces of one length without what parts them."""
    for letters in _LETTERS.finditer(text):
        yield letters[0][:: 1 + len(letters[1])]
    for parted in _PIECES:
        for pieces in _runs(text, parted):
            at = 0
            for length, group in groupby(pieces, len):
                run = list(group)
                at += len(run)
                last = pieces[at] if at < len(pieces) and len(pieces[at]) < length else ""
                whole = "".join((*run, last))
                many = len(run) >= _FEWEST_PIECES - 1 and len(whole) >= _FEWEST_LETTERS
                if many and length <= _WIDEST:
                    yield whole


def _counted(text: str) -> Iterator[tuple[int, list[int]]]:
    """Yield lists of numbers that may be those of letters, with how far they are shifted."""
    for pieces in _runs(text, _NUMBERS):
        numerals = [piece for piece in pieces if len(piece) <= SHORTEST]
        for base, digits in _DIGITS.items():
            if len(numerals) >= SHORTEST and all(map(digits.fullmatch, numerals)):
                numbers = [int(piece, base) for piece in numerals]
                low, high = min(numbers), max(numbers)
                if low < high <= low + _LAST_SIGN - _SPACE:
                    yield from (
                        (shift, numbers) for shift in range(_SPACE - low, _LAST_SIGN - high + 1)
                    )


def _numbered(text: str, *, shifted: bool) -> Iterator[str]:
    for shift, numbers in _counted(text):
        if bool(shift) == shifted:
            yield "".join(chr(number + shift) for number in numbers)


_SPACE, _LAST_SIGN = 32, 126

# --- signs that nobody sees, or reads ---------------------------------------------------------

_INVISIBLE: Final = re.compile("[\u200b-\u200f\u2060-\u2064\u00ad\ufeff\u180e]")
_BLOCKS: Final = (
    (re.compile("[\U000e0000-\U000e007f]"), 0xE0000),
    (re.compile("[\U000e0100-\U000e01ef]"), 0xE0100 - 16),
    (re.compile("[\u2800-\u28ff]"), 0x2800),
    (re.compile("[\U0001f300-\U0001f3ff]"), 0x1F300),
)
"""Tags, selectors of a variant, patterns of dots and pictures, and the sign that is nothing."""
_FEWEST_BITS: Final = 8 * SHORTEST
_KINDS: Final = frozenset({2, 3})


def unseen(text: str) -> Iterator[str]:
    """Yield what signs that are not shown, or are no letters, spell: one byte each, or one bit."""
    for block, nothing in _BLOCKS:
        yield from _printed([ord(sign) - nothing for sign in block.findall(text)])
    hidden = _INVISIBLE.findall(text)
    kinds = sorted(set(hidden))
    if len(kinds) in _KINDS and len(hidden) >= _FEWEST_BITS:
        for zero, one in (kinds[:2], kinds[1::-1]):
            bits = "".join(str(int(sign == one)) for sign in hidden if sign in {zero, one})
            yield from _printed([int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8)])


def _printed(codes: list[int]) -> Iterator[str]:
    if len(codes) >= SHORTEST and _PRINTED.issuperset(codes):
        yield bytes(codes).decode("ascii")


# --- turned alphabets -------------------------------------------------------------------------

_LOWER, _UPPER = string.ascii_lowercase, string.ascii_uppercase
_SHOWN: Final = "".join(map(chr, range(33, 127)))
_ALPHABETS: Final = (
    *(
        str.maketrans(_LOWER + _UPPER, _LOWER[by:] + _LOWER[:by] + _UPPER[by:] + _UPPER[:by])
        for by in range(1, 26)
    ),
    str.maketrans(_LOWER + _UPPER, _LOWER[::-1] + _UPPER[::-1]),
    str.maketrans(_SHOWN, _SHOWN[47:] + _SHOWN[:47]),
)
"""By each number of letters, back to front, and by 47 of all signs."""
_SAME_BITS: Final = tuple(
    {sign: sign ^ key for sign in _PRINTED if sign ^ key in _PRINTED} for key in range(1, 32)
)
_GRAMMAR: Final = frozenset(
    {"the", "are", "was", "were", "will", "has", "have", "had", "not", "and", "for", "from"}
    | {
        "is",
        "of",
        "on",
        "at",
        "in",
        "to",
        "by",
        "with",
        "than",
        "that",
        "this",
        "she",
        "they",
        "our",
        "his",
        "her",
        "their",
        "does",
        "did",
    }
)
_SPELT: Final = re.compile(r"[A-Za-z]{2,}")
_SENTENCE: Final = 4
"""Words of the shortest sentence."""


def turned(text: str) -> Iterator[str]:
    """Yield the drawn words of a text with their alphabet turned, their case or their order."""
    if not _TOKEN <= len(text) <= LIMIT:
        return
    yield from _numbered(text, shifted=True)
    words = [word for word in _drawn_words(text) if len(word) <= LENGTH]
    joined = "\n".join(words)
    yield from (joined.translate(table) for table in _ALPHABETS)
    yield joined.swapcase()
    yield from (joined.translate(table) for table in _SAME_BITS)
    for word in words:
        half = (len(word) + 1) // 2
        yield word[half:] + word[:half]
        yield word[len(word) // 2 :] + word[: len(word) // 2]
        yield "".join(word[at : at + 2][::-1] for at in range(0, len(word), 2))
    for one, other in pairwise(words):
        if abs(len(one) - len(other)) <= 1:
            yield "".join(a + b for a, b in zip(one, other + " ", strict=False))


@bounded_cache(1024)
def is_turned_sentence(text: str) -> bool:
    """Return whether words are a sentence once their alphabet is turned, and none before."""
    words = {word.lower() for word in _SPELT.findall(text[:LENGTH])}
    if len(words) < _SENTENCE or _speaks(words):
        return False
    return _speaks({word[::-1] for word in words}) or any(
        _speaks({word.translate(table) for word in words}) for table in _ALPHABETS[:-1]
    )


def _speaks(words: set[str]) -> bool:
    """Return whether enough of some words are of English: more than chance makes of others."""
    known = (_GRAMMAR | WORDS) & words
    return len(known) > 1 and sum(map(len, known)) >= _KNOWN * (1 + len(words) // _MANY)


_KNOWN: Final = 9
"""Letters of words in a turned text that are English, so that the text is: in ten words as many."""
_MANY: Final = 10


# --- all of it --------------------------------------------------------------------------------

_WORD: Final = re.compile(rf"[!-~]{{{_TOKEN},}}")
_RUNS: Final = (
    re.compile(rf"[A-Za-z0-9+/_-]{{{_TOKEN},}}={{0,6}}"),
    re.compile(rf"[A-Za-z0-9_-]{{{_TOKEN},}}"),
)


def _drawn_words(text: str) -> Iterator[str]:
    """Yield the words of a text that no language writes, and the runs of letters in them."""
    found = dict.fromkeys(word.strip(",;\"'") for word in _WORD.findall(text))
    found |= dict.fromkeys(run for runs in _RUNS for run in runs.findall(text))
    return islice((word for word in found if _looks_drawn(word)), TRIED)


def _looks_drawn(word: str) -> bool:
    return (
        len(word) >= _TOKEN
        and not (word.isalpha() and (word.islower() or word.istitle()))
        and entropy(word[:256]) >= _DRAWN_BITS
    )


def respelt(text: str) -> tuple[str, ...]:
    """Return what a text says in a coding of this family: texts that chance does not make."""
    return _respelt(text) if _TOKEN <= len(text) <= LIMIT else ()


@bounded_cache(256)
def _respelt(text: str) -> tuple[str, ...]:
    found: dict[str, None] = {} if text.isascii() else dict.fromkeys(unseen(text))
    groups = list(islice(ungrouped(text), TRIED))
    found |= dict.fromkeys((*groups, *_numbered(text, shifted=False)))
    for word in (*_drawn_words(text), *groups, *_lines(text)):
        if len(word) <= LENGTH:
            found |= dict.fromkeys(spelt for data in _raw(word) for spelt in _texts(data))
    return tuple(found)


def _lines(text: str) -> Iterable[str]:
    """Return the lines of a text that are as long as their first letter says (uuencode)."""
    lines = text.split("\n") if "\n" in text else ()
    said = (line for line in lines if line and 0 < (ord(line[0]) - 32) & 63 == len(line) * 3 // 4)
    return islice(said, TRIED)
