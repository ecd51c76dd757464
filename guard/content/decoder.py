r"""The one decoder: a text in every form that a reader could give it, with one budget.

Whoever hides a secret or an address encodes it, and a pattern that looks at the characters sees
nothing.  So patterns look at *readings*: the text with its letters folded, its escapes undone, and
what encoded words in it decode to, each read again in the same way, to a depth.  Understood are

- escapes: percent, XML and HTML entities, those of JSON, scripts, shells, CSS and Markdown,
  quoted-printable, UTF-7, tags inside words, folded header lines;
- words: base 16, 32, 45, 58, 64 and 85, padded or not, URL-safe, wrapped or in groups; character
  codes and bits; of text in UTF-8 or UTF-16, compressed by gzip, zlib, zstd or brotli or not;
- letters: look-alikes, hidden and spelt-out ones (:mod:`guard.content.letters`), backwards, rot13.

JSON in JSON, MIME parts and encoded words of headers are made of these.  Every expression is
linear.  What is searched decides how a text is cut (:class:`Search`); what is understood is the
same for all.  A reading can taint or betray a value and never attest one.  Pure: no I/O.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import io
import re
import zlib
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import filterfalse, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

import brotli
import re2
import zstandard

from guard.content.letters import fold, places, respaced, skeleton
from guard.content.prefilter import Prefiltered, Present
from guard.core.bounded_cache import bounded_cache
from guard.core.work import spend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEPTH: Final = 4
"""How many codings inside one another are followed."""
SIZE: Final = 256 * 1024
"""Characters of readings per text of content, and of what a compressed word unpacks to."""
SIZE_RATIO: Final = 8
"""Characters of readings besides, for each character of the text."""
_FEWEST: Final = 5
"""Characters of the shortest text that a word decodes to where content is searched."""
_WIDE: Final = 3
"""One zero in so many bytes is text of two bytes for each letter."""
_STEP: Final = 16
"""Bytes of brotli that are unpacked at once, as its library cannot limit what comes out."""
_PACKED: Final = (b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda", b"x^")
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_HALVES: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for in the readings of a text, and so which are worth making."""

    words: int
    """Encoded words of one kind that are decoded per text."""
    length: int
    """Characters of one of them that are decoded."""
    printable: float
    """Share of printable characters from which decoded bytes are a text."""
    shortest: int
    """Characters of the shortest text that a word decodes to."""
    token: int
    """Characters of the shortest word that is decoded."""
    follows_letters: bool
    """Whether readings are made of a reading with its letters folded."""


DESTINATIONS: Final = Search(
    words=2000,
    length=SIZE,
    printable=0.85,
    shortest=1,
    token=10,
    follows_letters=False,
)
"""An address is short: escapes are undone around the signs only."""
CONTENT: Final = Search(
    words=2000,
    length=SIZE,
    printable=0.95,
    shortest=_FEWEST,
    token=12,
    follows_letters=True,
)
"""A secret or an instruction may be long: escapes are undone in the whole text."""


@dataclass(slots=True)
class Budget:
    """Characters of readings that may still be made; what exceeds it is cut off, and said."""

    room: int
    exceeded: bool = False

    def take(self, reading: str) -> str:
        """Return what the budget has room for of a reading."""
        if len(reading) > self.room:
            self.exceeded = True
            reading = reading[: max(self.room, 0)]
        self.room -= len(reading)
        spend(len(reading))
        return reading


class Readings(NamedTuple):
    """The readings of a text, itself first, and whether the budget sufficed for all of them."""

    texts: tuple[str, ...]
    complete: bool


# --- escapes ----------------------------------------------------------------------------------

_ENTITY: Final = re.compile(r"&(?:#|[A-Za-z]{2,8};)")
_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_ESCAPE: Final = re.compile(
    r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})"
    r"|([0-3][0-7]{2})|(40|2[Ee]) ?|([nrt])|([^\w\s\\]))"
)
_PRINTABLE: Final = re.compile(r"=(?:40|2[Ee])|(?:=[0-9A-F]{2}){3}")
_PRINTED: Final = re.compile(r"=([0-9A-Fa-f]{2})|=\r?\n")
_UTF7: Final = re.compile(r"\+([A-Za-z0-9/]{3,200})-")
_TAG: Final = r"(?:<[^<>]{0,80}>){1,4}"
_TAGGED: Final = re.compile(
    rf"[\w.+-]{_TAG}[\w.+-]{{0,40}}@|@[\w.-]{{0,40}}{_TAG}[\w.-]|{_TAG}@|@{_TAG}"
)
_HIDDEN_TAG: Final = re.compile(
    r"<([a-z]{1,8})[^<>]{0,60}(?:display: ?none|font-size: ?0|visibility: ?hidden| hidden)"
    r"[^<>]{0,20}>[^<>]{0,80}</\1>"
)
_ANY_TAG: Final = re.compile(r"<[^<>]{0,80}>")
_FOLDED_LINE: Final = re.compile(r"\r\n[ \t](?=\S)")
_LAST: Final = 0x10FFFF
_HOST_CUT: Final = re.compile(
    r"://(?:[^\s/@]{1,64}@)?([\w-]{1,63}(?:\.[\w-]{1,63}){1,8})(?=[^\s/?#:\"'<>)\]\w.,;!*_|}@-])"
)
"""A host in a URL that something follows which no URL has: an escape, mostly."""
_PARAMETER: Final = re2.compile(r"(?:^|[^\w.-])[\w.-]{1,64}=([^&=\s#]*%[0-9A-Fa-f]{2}[^&=\s#]*)")
"""A value of a query or a form: a word of its own, whatever its escapes stand for."""
_COLUMN: Final = (
    r"(?i:pass(?:word|wd|phrase)?|pwd|secret|token|api[_ -]?key|secret[_ -]?key|private[_ -]?key)"
)
_SECRET_NAME: Final = re2.compile(_COLUMN)
_SECRET_COLUMN: Final = re2.compile(
    rf"(?m)^(?:[^\n]{{0,300}}[,;\t|=])?[ \"']*{_COLUMN}[ \"']*(?:[,;\t|][^\n]{{0,300}})?\r?\n"
)
"""The head of a table with such a column."""
_ROWS: Final = 200
"""Lines of one that are read."""
_SHELL_SIGN: Final = re.compile(r"""[\\'"`^$]""")
_SHELL: Final = re2.compile(r"""\\\r?\n|[\\'"`^]|\$\{?IFS\}?|\$@|\$\*""")


def _unescaped(found: re.Match[str]) -> str:
    *codes, octal, css, space, sign = found.groups()
    if space:
        return " " if space == "t" else "\n"
    if sign:
        return str(sign)
    point = int(octal, 8) if octal else int(next(filter(None, codes), css), 16)
    return chr(point) if point <= _LAST and not 0xD800 <= point <= 0xDFFF else ""  # noqa: PLR2004  (surrogates)


def _printed(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else ""


def _utf7(found: re.Match[str]) -> str:
    bare = found[1] + "=" * (-len(found[1]) % 4)
    try:
        return base64.b64decode(bare).decode("utf-16-be", "ignore")
    except (binascii.Error, ValueError):
        return found[0]


_ESCAPES: Final[tuple[tuple[str, re.Pattern[str], Callable[[str], str]], ...]] = (
    ("&", _ENTITY, html.unescape),
    ("%", _PERCENT, lambda run: unquote(unquote(run))),
    ("\\", _ESCAPE, lambda run: _ESCAPE.sub(_unescaped, run)),
    ("=", _PRINTABLE, lambda run: _PRINTED.sub(_printed, run)),
    ("+", _UTF7, lambda run: _UTF7.sub(_utf7, run)),
    ("<@", _TAGGED, lambda run: _ANY_TAG.sub("", _HIDDEN_TAG.sub("", run))),
    # Text of two bytes for each letter that was read byte by byte.
    ("\0", re.compile("\0"), lambda run: run.replace("\0", "")),
    ("\ufffd", re.compile("\ufffd"), lambda run: run.replace("\ufffd", "")),
    ("\r\n", _FOLDED_LINE, lambda run: _FOLDED_LINE.sub("", run)),
)
"""Characters without which there is none, where they are, and how they are undone."""
_ESCAPED: Final = re.compile("[&%\\\\=+<\0\ufffd]|\r\n")
"""Any of the signs."""
_SIGN: Final = re.compile("[&%\\\\=+<>\0\ufffd'\"`^$]|\r\n")
"""Any of these, and what a shell takes away."""
_SPELT: Final = re.compile(r"[\s\[({<\"'`,;*|_~&+\\-]")
"""What is in a text with an address that is spelt, spaced or bracketed."""


def _without_escapes(text: str, search: Search) -> Iterator[str]:
    """Yield the text with each kind of escape undone, around the signs or everywhere."""
    for signs, pattern, undo in _ESCAPES:
        if not all(sign in text for sign in signs):
            continue
        if search is DESTINATIONS:
            found = places(text, pattern)
            if found:
                yield undo(found)
        elif pattern.search(text) is not None:
            yield undo(text)


# --- words of a coding ------------------------------------------------------------------------

_TOKEN64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{10,}={0,6}")
_WRAPPED64: Final = Prefiltered(
    re.compile(
        r"(?<![\w+/])(?:(?:[A-Za-z0-9+/]{8,76}[\r\n]{1,2}[ \t]{0,8}){1,60}"
        r"|(?:[A-Za-z0-9+/]{4} ){3,60})[A-Za-z0-9+/]{2,76}={0,2}"
    ),
    r"A-Za-z0-9+/\r\n\t =",
    r"[A-Za-z0-9+/]{8}[\r\n]{1,2}[ \t]{0,8}[A-Za-z0-9+/]{2}"
    r"|(?:\b[A-Za-z0-9]|[+/])[A-Za-z0-9+/]{3} (?:[A-Za-z0-9+/]{4} ){2}[A-Za-z0-9+/]{2}",
)
_TOKEN16: Final = Prefiltered(
    re.compile(r"(?<![0-9A-Fa-f])(?:(?:0x|\\x|%)?[0-9A-Fa-f]{2}[ :,;-]{0,4}){6,}"),
    r"0-9A-Fa-fx\\% :,;-",
    r"(?:(?:0x|\\x|%)?[0-9A-Fa-f]{2}[ :,;-]{0,4}){6}",
)
_NOT_HEX: Final = re.compile(r"0x|\\x|[^0-9A-Fa-f]")
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2}){5,}")
_TOKEN32: Final = re.compile(r"(?<![A-Za-z2-7])[A-Za-z2-7]{16,}={0,6}")
_NUMBERS: Final = Prefiltered(
    re.compile(r"(?<!\d)(?:1?\d{2}[ ,;-]{1,4}){6,}1?\d{2}(?!\d)"),
    "0-9? ,;-",
    "(?:[0-9?]{2}[ ,;-]{1,4}1?){6}[0-9?]",
)
_BITS: Final = Prefiltered(
    re.compile(r"(?<!\d)(?:[01]{8}[ ,]?){5,}(?!\d)"), "01 ,", "(?:[01]{8}[ ,]?){5}"
)
_CLASS45: Final = "0-9A-Z $%*+./:-"
_TOKEN45: Final = Prefiltered(
    re.compile(rf"(?<![0-9A-Z$%*+./:-])[0-9A-Z$%*+./:-][{_CLASS45}]{{14,}}"),
    _CLASS45,
    "|".join(f"[{_CLASS45}]{{{at}}}[A-Z][{_CLASS45}]{{{14 - at}}}" for at in range(15)),
)
"""Digits alone are no base 45 of a text."""
_TOKEN58: Final = re.compile(r"(?<![A-Za-z0-9])[1-9A-HJ-NP-Za-km-z]{14,256}(?![A-Za-z0-9])")
_ASCII85: Final = re.compile(r"<~[!-uz]{15,}~>|(?<!\S)(?:<~)?[!-uz]{15,}(?:~>)?(?!\S)")
_BASE85: Final = re.compile(r"(?<!\S)[0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]{15,}(?!\S)")
_LINES: Final = re2.compile(rb"(?:[A-Za-z0-9+/]{16,}[ \t\r\n]+)+[A-Za-z0-9+/]{2,}={0,2}")
_MARKED: Final = re.compile(r"(?:[!-+;-?\[-^`{-~][^\s!-+;-?\[-^`{-~]*){3}")
"""What base 85 has in every longer word and other codings have not: marks."""
_ODD: Final = re.compile(r"[\d@/#:]|\..|[^\x00-\x7f]", re.DOTALL)
_PUNCTUATION: Final = ".,;:!?()[]{}\"'*_\u2018\u2019\u201c\u201d\u2026"
_LINE: Final = 16
"""Letters of the shortest word of base 32."""
BARREN_KEPT: Final = 16 * 1024
"""Words whose hashes are remembered, of those that are no base64 of a text."""
_BARREN: Final[dict[int, set[int]]] = {search.token: set() for search in (DESTINATIONS, CONTENT)}
"""Their hashes, by what is searched."""
_LONG85: Final = 18
_LONG: Final = 14
"""Letters of the shortest word of a rarer base."""
_ALPHABET45: Final = {c: n for n, c in enumerate("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:")}
_ALPHABET58: Final = {
    c: n for n, c in enumerate("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")
}


def _tokens(pattern: re.Pattern[str] | Prefiltered, text: str) -> Iterator[str]:
    return map(itemgetter(0), pattern.finditer(text))


def _base64(token: str) -> bytes:
    bare = token.rstrip("=").replace("-", "+").replace("_", "/")
    if len(bare) % 4 == 1:
        return b""
    return binascii.a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)


def _wrapped(token: str) -> bytes:
    """Return the bytes of base64 in lines or groups, all of one length but the last."""
    *groups, last = token.split()
    even = len({len(group) for group in groups}) == 1 and len(groups[0]) % 4 == 0
    return _base64("".join((*groups, last))) if even and len(last) <= len(groups[0]) else b""


def _lines(token: str) -> bytes:
    return _base64("".join(token.split()))


def _hex(token: str) -> bytes:
    digits = _NOT_HEX.sub("", token)
    return bytes.fromhex(digits[: len(digits) & ~1])


def _base32(token: str) -> bytes:
    bare = token.rstrip("=")
    return base64.b32decode(bare.upper() + "=" * (-len(bare) % 8))


def _codes(token: str) -> bytes:
    numbers = [int(part) for part in re.findall(r"\d+", token)]
    return bytes(number for number in numbers if number < 256)  # noqa: PLR2004 - a byte


def _bits(token: str) -> bytes:
    return bytes(int(byte, 2) for byte in re.findall(r"[01]{8}", token))


def _base45(token: str) -> bytes:
    """RFC 9285: three digits, the least first, are two bytes; two are one."""
    if not token.isupper():
        return b""
    digits = [_ALPHABET45[char] for char in token.rstrip(" ")]
    pairs = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    return b"".join(
        sum(digit * 45**place for place, digit in enumerate(pair)).to_bytes(len(pair) - 1, "big")
        for pair in pairs
    )


def _lines_in(text: str) -> Iterator[str]:
    found = _LINES.finditer(text.encode("ascii", "replace"))
    return (lines[0].decode("ascii") for lines in found)


_ACROSS_WORDS: Final[
    tuple[tuple[str, Callable[[str], Iterator[str]], Callable[[str], bytes]], ...]
] = (
    *(
        (pattern.maybe, partial(_tokens, pattern), decode)
        for pattern, decode in (
            (_WRAPPED64, _wrapped),
            (_TOKEN16, _hex),
            (_NUMBERS, _codes),
            (_BITS, _bits),
            (_TOKEN45, _base45),
        )
    ),
    (r"[A-Za-z0-9+/]{16}[ \t\r\n]+[A-Za-z0-9+/]{2}", _lines_in, _lines),
)
"""Codings that spaces may stand in: where they may be, their words, and how these are decoded."""
_CODED: Final = Present(*(maybe for maybe, _, _ in _ACROSS_WORDS))


def _base58(token: str) -> bytes:
    if token.islower() or token.isupper():
        return b""
    number = 0
    for char in token:
        number = number * 58 + _ALPHABET58[char]
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _ascii85(token: str) -> bytes:
    return base64.a85decode(token.removeprefix("<~").removesuffix("~>"))


def _words(text: str, search: Search, tried: set[str]) -> Iterator[str]:
    """Yield what the encoded words of a text decode to, where that is text; each word once."""
    shortest = search.token
    long = [word for word in words_of(text) if len(word) >= shortest]
    if tried:
        long = list(filterfalse(tried.__contains__, long))
    tried.update(long)
    if long:
        yield from _base64_words(" ".join(long), search)
    for coding in _CODED.of(text):
        _, tokens, decode = _ACROSS_WORDS[coding]
        yield from _each(tokens(text), decode, search)
    longer = [word for word in long if len(word) >= _LINE]
    if longer:
        yield from _each(_tokens(_TOKEN32, " ".join(longer)), _base32, search)
    rare: list[str] = []
    for word in long:
        if len(word) >= _LONG and not word.isalpha():
            rare.append(word)
    if rare:
        yield from _rare_words(rare, search)


def _base64_words(joined: str, search: Search) -> Iterator[str]:
    """Yield what words decode to as base64.

    Most are words of a language, which come again and again and decode to nothing.  The hashes of
    those are remembered; Python keys them for each process, so nobody outside can make two alike.
    """
    barren = _BARREN[search.token]
    if len(barren) > BARREN_KEPT:
        barren.clear()
    tokens = (found[0] for found in _TOKEN64.finditer(joined))
    for token in islice((one for one in tokens if hash(one) not in barren), search.words):
        texts = _texts_of(token, _base64, search)
        yield from texts
        if not texts:
            barren.add(hash(token))


def _rare_words(words: list[str], search: Search) -> Iterator[str]:
    """Yield what words decode to that are long enough for a rarer base."""
    yield from _each(_tokens(_TOKEN58, " ".join(words)), _base58, search)
    marked = " ".join([w for w in words if len(w) >= _LONG85 and _MARKED.search(w) is not None])
    if marked:
        yield from _each(_tokens(_ASCII85, marked), _ascii85, search)
        yield from _each(_tokens(_BASE85, marked), base64.b85decode, search)


def _each(tokens: Iterator[str], decode: Callable[[str], bytes], search: Search) -> Iterator[str]:
    """Yield what some tokens decode to, as many of them as are decoded per text."""
    for found in islice(tokens, search.words):
        yield from _texts_of(found, decode, search)


def _texts_of(token: str, decode: Callable[[str], bytes], search: Search) -> list[str]:
    """Return what one token decodes to, as a whole or else in parts."""
    whole = _decoded_by(decode, token[: search.length], search)
    if whole is not None:
        return [whole]
    pieces = [piece for piece in _parts(token, decode) if len(piece) >= search.token]
    texts = [_decoded_by(decode, one[: search.length], search) for one in pieces[: search.words]]
    return [text for text in texts if text is not None]


def _parts(token: str, decode: Callable[[str], bytes]) -> list[str]:
    """Return what else may be one encoded word in something that looks like one as a whole."""
    if decode is _base64 and "/" in token:
        # A slash is a letter of base64, and in a path it is none.
        return token.split("/")
    if decode is _hex and " " in token:
        # The last letters of the word before may be hexadecimal digits.
        return [*token.split(), token.partition(" ")[2]]
    return []


def _decoded_by(decode: Callable[[str], bytes], token: str, search: Search) -> str | None:
    """Return the text that a word is a coding of, or None."""
    try:
        return _as_text(decode(token), search)
    except (ValueError, OverflowError):  # binascii.Error is a ValueError
        return None


def decoded(token: str) -> Iterator[str]:
    """Yield the texts that one word is a coding of."""
    yield from _caseless(token)
    marked = len(token) >= _LONG85 and _MARKED.search(token) is not None
    for decode in (_ascii85, base64.b85decode) if marked else (_base64,):
        yield from filter(None, [_decoded_by(decode, token, CONTENT)])


def decoded_label(label: str) -> bool:
    """Return whether a part of a host name is text in a coding that survives lower case."""
    return any(_caseless(label))


def _caseless(token: str) -> Iterator[str]:
    for pattern, decode in ((_HEX, _hex), (_TOKEN32, _base32)):
        if pattern.fullmatch(token) is not None:
            yield from filter(None, [_decoded_by(decode, token, CONTENT)])


def _as_text(raw: bytes, search: Search) -> str | None:
    """Return the text that bytes are, or are compressed; None where they are none."""
    if not raw:
        return None
    data = _unpacked(raw)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        coding = "utf-16"
    elif data.count(0) * _WIDE >= len(data):
        coding = "utf-16-be" if data[:1] == b"\0" else "utf-16-le"
    else:
        coding = "utf-8"
    try:
        text = data.decode(coding)
    except UnicodeDecodeError:
        packed = _without_brotli(raw)
        return None if packed is None else _as_text(packed, search)
    if len(text) < search.shortest:
        return None
    if text.isprintable():
        return text
    shown = sum(char.isprintable() or char.isspace() for char in text)
    return text if shown >= search.printable * len(text) else None


def _unpacked(raw: bytes) -> bytes:
    """Return bytes without their compression, no more of them than a text may have."""
    try:
        if raw.startswith(_PACKED):
            return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(raw, SIZE)
        if raw.startswith(_ZSTD):
            return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw)).read(SIZE)
    except (zlib.error, zstandard.ZstdError):
        pass
    return raw


def _without_brotli(raw: bytes) -> bytes | None:
    """Return what bytes are in brotli, which has no sign of its own; None where they are not."""
    decoder = brotli.Decompressor()
    data: bytes = b""
    try:
        for start in range(0, len(raw), _STEP):
            data += decoder.process(raw[start : start + _STEP])
            if len(data) > SIZE:
                return bytes(data[:SIZE]).decode("utf-8", "ignore").encode()
        return bytes(data) if decoder.is_finished() and data.decode() else None
    except (brotli.error, UnicodeDecodeError):
        return None


# --- backwards and rotated --------------------------------------------------------------------

_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,100}")
_LIAM: Final = re.compile(r"(?<![\w.-])[\w-]{2,63}\.[\w.-]{1,100}@[\w.+-]{1,64}")
_LRU: Final = re.compile(r"\S{4,400}//:s?ptth(?!\w)")
_HEEY: Final = re.compile(r"(?<!\w)uggcf?://\S{4,400}")
_KNAB: Final = Prefiltered(
    re.compile(r"(?<!\w)[0-9a-z]{4,28}\d{6}[0-9a-z]{0,4}\d{2}[a-z]{2}(?!\w)"),
    "0-9a-z?",
    "[0-9?]{6}[0-9a-z]{0,4}[0-9?]{2}[a-z]{2}",
)
FILE_ENDINGS: Final = (
    *(".csv", ".doc", ".docx", ".eml", ".htm", ".html", ".md", ".pdf", ".ppt", ".pptx", ".txt"),
    *(".xls", ".xlsx", ".zip", ".ics", ".json", ".yaml", ".yml", ".xml", ".toml", ".ini", ".cfg"),
    *(".log", ".py", ".js", ".ts", ".sh", ".sql", ".c", ".h", ".go", ".rs", ".java", ".exe"),
    *(".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".mp3", ".mp4", ".wav", ".gz", ".tar"),
)
"""How names of files end, whose last part else looks like that of a host."""


@lru_cache(maxsize=8)
def words_of(text: str) -> list[str]:
    """Return the words of a text, each once; the list is not to be changed."""
    return list(dict.fromkeys(text.split()))


@lru_cache(maxsize=8)
def odd_words(text: str) -> list[str]:
    """Return the words of a text that are more than letters with punctuation around them.

    They have a digit, one of ``@/#:``, a dot inside or a character that is not ASCII.  What a
    pattern finds that crosses no space and needs one of these, it finds in these words, each once,
    in the same order: around a word there is a space, here as there.  The list is not to be
    changed.
    """
    longer = filterfalse(str.isalpha, words_of(text))
    found: list[str] = []
    for word in longer:
        if not word.strip(_PUNCTUATION).isalpha() and _ODD.search(word) is not None:
            found.append(word)
    return found


def words_with(sign: str, words: list[str]) -> str:
    """Return those of some words that have a sign in them, for patterns that cross no space."""
    found: list[str] = []
    for word in words:
        if sign in word:
            found.append(word)
    return " ".join(found)


def _turned(words: list[str]) -> Iterator[str]:
    """Yield what may be written backwards or rotated by 13 letters, and addresses of files.

    Args:
        words: of a text in lower case, those that are odd.
    """
    text = " ".join(words)
    if "@" in text:
        mails = words_with("@", words)
        rotated = _all(_MAIL, mails)
        if rotated:
            yield codecs.encode(rotated, "rot13")
        turned = _all(_LIAM, mails)
        yield turned[::-1]
        for domain, _, local in (mail.partition("@") for mail in turned.split()):
            if "." not in local:
                # No host has a name without a dot: ``test.evil@drop`` is read part by part.
                yield f"{local}@{'.'.join(reversed(domain.split('.')))}"
        for name in rotated.split():
            if name.endswith(FILE_ENDINGS):
                local, _, domain = name.rpartition(".")[0].partition("@")
                yield f"{local}@{domain} {local.rpartition('_')[2]}@{domain}"
    if "uggc" in text:
        yield codecs.encode(_all(_HEEY, text), "rot13")
    if "//:" in text:
        yield _all(_LRU, text)[::-1]
    yield _all(_KNAB, text)[::-1]


def _all(pattern: re.Pattern[str] | Prefiltered, text: str) -> str:
    return " ".join(map(itemgetter(0), islice(pattern.finditer(text), DESTINATIONS.words)))


# --- the reader -------------------------------------------------------------------------------


def destination_readings(text: str, budget: Budget) -> Iterator[str]:
    """Yield the readings of a text in which destinations are looked for, without the text itself.

    Most are made of the places where a disguise may be, so they are far shorter than the text.
    """
    for reading in _recursive(text, DESTINATIONS, _for_destinations):
        if budget.room <= 0:
            budget.exceeded = True
            return
        yield budget.take(reading)


@bounded_cache(64)
def content_readings(text: str, *, shell: bool = True) -> Readings:
    """Return the readings of a text in which secrets, accounts and instructions are looked for.

    Args:
        text: of any length; the readings are bounded.
        shell: whether one reading is the text as a shell reads it, without quotes.
    """
    # Half a letter of UTF-16 is no text for the engines that look for patterns.
    text = _HALVES.sub("\ufffd", text)
    if len(text) < CONTENT.token and text.isascii() and _SIGN.search(text) is None:
        return Readings((text,), complete=True)
    spend(2 * len(text))
    budget = Budget(SIZE + SIZE_RATIO * len(text))
    found: dict[str, None] = {text: None}
    for reading in _recursive(text, CONTENT, _for_shells if shell else _for_content):
        if len(reading) > budget.room:
            budget.exceeded = True
            break
        found[budget.take(reading)] = None
    return Readings(tuple(found), not budget.exceeded)


def _recursive(text: str, search: Search, letters: Callable[[str], Iterator[str]]) -> Iterator[str]:
    """Yield every reading of a text once, those of fewer codings first.

    Args:
        text: to be read.
        search: what for.
        letters: gives the readings that no reading is made of again.
    """
    seen, tried, level = {text}, set[str](), [text]
    for depth in range(DEPTH + 1):
        following: list[str] = []
        for item in level:
            for reading, followed in _step(
                item, search, letters, None if depth == DEPTH else tried
            ):
                if reading and reading not in seen:
                    seen.add(reading)
                    yield reading
                    if followed:
                        following.append(reading)
        level = following


def _step(
    text: str, search: Search, letters: Callable[[str], Iterator[str]], tried: set[str] | None
) -> Iterator[tuple[str, bool]]:
    """Yield what one coding less makes of a text, and whether it is read again."""
    for reading in letters(text):
        yield reading, search.follows_letters
    if tried is not None:
        if _ESCAPED.search(text) is not None:
            for reading in _without_escapes(text, search):
                yield reading, True
        if len(text) >= search.token:
            for reading in _words(text, search, tried):
                yield reading, True


def _for_destinations(text: str) -> Iterator[str]:
    """Yield the readings that are not decoded further, as one text with empty lines between."""
    readings: list[str] = []
    words = odd_words(text)
    lower = plain = text.lower()
    if not text.isascii():
        plain = skeleton(text)
        if plain != lower:
            readings.append(plain)
    if _SPELT.search(plain) is not None:
        readings += respaced(plain)
    readings += _turned([word.lower() for word in words] if plain == lower else odd_words(plain))
    if "://" in text:
        readings.append(" ".join(_HOST_CUT.findall(words_with("://", words))))
    yield "\n\n".join(filter(None, readings))


def _for_content(text: str) -> Iterator[str]:
    yield fold(text)
    if "=" in text and "%" in text:
        yield "\n".join(map(unquote, _PARAMETER.findall(text)))
    heads = _SECRET_COLUMN.finditer(text) if "\n" in text else ()
    yield "\n".join(line for head in heads for line in _secret_cells(text, head.start()))


def _secret_cells(text: str, begin: int) -> Iterator[str]:
    """Yield the cells of a table's columns that are called a secret, each behind its column's name.

    Args:
        text: with a table of separated values in it.
        begin: where its head stands.
    """
    lines = text[begin : begin + SIZE].split("\n", _ROWS)[:_ROWS]
    sign = next((sign for sign in ",;\t|" if sign in lines[0]), "")
    if not sign:
        return
    head, *rows = [
        [cell.strip(" \t\r\"'") for cell in line.split(sign)] for line in lines if line.strip()
    ]
    secret = [at for at, cell in enumerate(head) if _SECRET_NAME.fullmatch(cell.rpartition("=")[2])]
    for row in rows:
        yield from (f"{head[at].rpartition('=')[2]}={row[at]}" for at in secret if at < len(row))


def _for_shells(text: str) -> Iterator[str]:
    yield from _for_content(text)
    if _SHELL_SIGN.search(text) is not None:
        yield _SHELL.sub(lambda match: " " if "IFS" in match.group() else "", text)
