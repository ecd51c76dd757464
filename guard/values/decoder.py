r"""The one decoder: a text in every form that a service decodes, with one budget.

A pattern over characters misses a secret or an address that is encoded. Patterns therefore read the
*readings* of a text: its letters folded, its escapes undone, its encoded words decoded, and the
same again for each reading, to a depth. The decoder understands

- escapes: percent, forms, XML and HTML entities, tags inside an address, JSON escapes,
  quoted-printable, folded header lines;
- words: base64 (padded or not, URL-safe, in lines) and hex, of text in UTF-8 or UTF-16, plain or
  compressed by gzip, zlib, zstd or brotli;
- letters: Unicode compatibility forms, confusables, invisible characters.

JSON in JSON, MIME parts and encoded words of headers consist of these. Every expression is linear.
A reading can taint or betray a value and never attest one. Pure: no I/O.
"""

from __future__ import annotations

import binascii
import html
import io
import json
import re
import unicodedata
import zlib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import filterfalse, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import brotli
import re2
import zstandard

from guard.core.bounded_cache import bounded_cache
from guard.core.work import spend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEPTH: Final = 4
"""Maximum number of nested codings that are undone."""
SIZE: Final = 256 * 1024
"""Maximum characters of readings per text of content, and of an unpacked word."""
SIZE_RATIO: Final = 8
"""Additional characters of readings for each character of the text."""
WORDS: Final = 2000
"""Maximum number of encoded words of one kind that are decoded per text."""
SURROUNDING: Final = 80
"""Characters kept before and after an escape; an address or a line of MIME fits in."""
LONG_WORD: Final = 2048
"""Further characters kept before and after it, of a word that goes on."""
OVERFLOW: Final = "too_large_to_inspect"
"""Reason code of a text whose readings exceed the budget."""
_WIDE: Final = 3
"""Text in UTF-16 has at least one zero in this many bytes."""
_STEP: Final = 16
"""Bytes of brotli unpacked at once where its library cannot limit the output, as before 1.2: the
end of one block and the header of another, of at most 16 MiB each."""
_LIMITS_OUTPUT: Final = hasattr(brotli.Decompressor, "can_accept_more_data")
ZSTD_WINDOW: Final = 8 * 1024 * 1024
"""Largest window of zstd, in bytes (RFC 9659): the decoder allocates it at once."""
_PACKED: Final = (b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda", b"x^")
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Search:
    """Limits of the readings that one kind of search needs."""

    printable: float
    """Minimum share of printable characters in decoded text."""
    shortest: int
    """Minimum length of decoded text, in characters."""
    token: int
    """Minimum length of an encoded word, in characters."""
    whole: bool
    """Undo escapes in the whole text, not only in their surroundings."""


DESTINATIONS: Final = Search(printable=0.85, shortest=1, token=10, whole=False)
"""Search for addresses, which are short."""
CONTENT: Final = Search(printable=0.95, shortest=5, token=12, whole=True)
"""Search for secrets and private text, which may be long."""


@dataclass(slots=True)
class Budget:
    """Characters of readings that may still be made; the excess is cut off and reported."""

    room: int
    exceeded: bool = False

    def take(self, reading: str) -> str:
        """Return the part of a reading that fits into the budget."""
        if len(reading) > self.room:
            self.exceeded = True
            reading = reading[: max(self.room, 0)]
        self.room -= len(reading)
        spend(len(reading))
        return reading


class Readings(NamedTuple):
    """Readings of a text, itself first."""

    texts: tuple[str, ...]
    complete: bool
    """The budget sufficed for all readings."""


# --- letters ----------------------------------------------------------------------------------

_TAGS: Final = range(0xE0020, 0xE007F)
"""Invisible copies of ASCII in Unicode, which models read."""
_TAG_OFFSET: Final = 0xE0000
_FILLERS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols that show as nothing."""
_DROPPED: Final = frozenset({"Cf", "Mn", "Me"})
"""Categories of invisible characters and of marks on letters."""
_SIGNS: Final = frozenset("-.@/:%_")
"""ASCII signs of an address whose look-alikes are folded."""


@cache
def _confusables() -> dict[str, str]:
    """Return the characters that Unicode lists as similar to one ASCII letter or sign.

    A character whose compatibility form begins with ASCII is left to that form.
    """
    table = json.loads(
        files("confusable_homoglyphs").joinpath("confusables.json").read_text("utf-8")
    )
    found: dict[str, str] = {}
    for char, similar in table.items():
        if len(char) > 1 or unicodedata.normalize("NFKD", char)[0].isascii():
            continue
        plain = [one["c"] for one in similar if len(one["c"]) == 1 and one["c"].isascii()]
        letters = [one for one in plain if one.isalpha() and one.islower() == char.islower()]
        signs = [one for one in plain if one in _SIGNS]
        if letters or signs:
            found[char] = (letters or signs)[0]
    return found


@lru_cache(maxsize=8192)
def _folded(char: str) -> str:
    """Return the ASCII letter or sign that a character looks like, or its compatibility form."""
    if char in _FILLERS:
        return ""
    if ord(char) in _TAGS:
        return chr(ord(char) - _TAG_OFFSET)
    similar = _confusables()
    parts = unicodedata.normalize("NFKD", similar.get(char, char))
    kept = [part for part in parts if unicodedata.category(part) not in _DROPPED]
    return "".join(_plain(part, similar) for part in kept)


def _plain(char: str, similar: dict[str, str]) -> str:
    if char.isascii():
        return char
    digit = unicodedata.decimal(char, None)
    if digit is not None:
        return str(digit)
    # Some letters look like ASCII letters only as capitals, such as Cyrillic EN (U+043D).
    return similar.get(char) or similar.get(char.upper(), char).lower()


def fold(text: str) -> str:
    """Return a text in compatibility form, confusables as ASCII, without invisible characters."""
    if text.isascii():
        return text
    different = {char: _folded(char) for char in set(text) if not char.isascii()}
    changed = {ord(char): plain for char, plain in different.items() if plain != char}
    return unicodedata.normalize("NFC", text.translate(changed)) if changed else text


def skeleton(text: str) -> str:
    """Return the folded text in lower case, for comparison."""
    return text.lower() if text.isascii() else fold(text.lower()).lower()


# --- escapes ----------------------------------------------------------------------------------

_ENTITY: Final = re.compile(r"&(?:#|[A-Za-z]{2,8};)")
_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_FORM: Final = re.compile(r"(?<![\w.\[\]-])[\w.\[\]-]{1,64}=[^&=+\s]*+\+")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|([nrt])|([^\w\s]))")
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t"}
_PRINTABLE: Final = re.compile(r"=(?:[24]0|2[Ee]|3[Dd]|0[ADad]|\r?\n)|(?:=[0-9A-F]{2}){2}")
_PRINTED: Final = re.compile(r"(?:=[0-9A-Fa-f]{2})+")
_SOFT_BREAK: Final = re.compile(r"=\r?\n")
_TAG: Final = r"(?:<[^<>]{0,80}>){1,4}"
_TAGGED: Final = re.compile(
    rf"[\w.+-]{_TAG}[\w.+-]{{0,40}}@|@[\w.-]{{0,40}}{_TAG}[\w.-]|{_TAG}@|@{_TAG}"
)
_ANY_TAG: Final = re.compile(r"<[^<>]{0,80}>")
_FOLDED_LINE: Final = re.compile(r"\r\n[ \t](?=\S)")
_ATTRIBUTE: Final = rb"""[^\s/>][^\s/>=]*(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>"'][^\s>]*)?)?"""
_MARKUP: Final = re2.compile(
    rb"<!--(?:-?>|[\s\S]*?--!?>)|</?[A-Za-z][^\s/>]*(?:[\s/]|%b)*>|<[!?/][^>]*>" % _ATTRIBUTE
)
"""Tag or comment, as a browser parses them (WHATWG HTML, section 13.2.5)."""


def _unescaped(found: re.Match[str]) -> str:
    wide, byte, control, sign = found.groups()
    if control:
        return _CONTROLS[control]
    if sign:
        return str(sign)
    return chr(int(wide or byte, 16))


def _without_json_escapes(run: str) -> str:
    # Two escapes may be one character of UTF-16.
    plain = _ESCAPE.sub(_unescaped, run)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")


def _printed(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("=", "")).decode("utf-8", "replace")


_ESCAPES: Final[tuple[tuple[str, re.Pattern[str], Callable[[str], str]], ...]] = (
    ("&", _ENTITY, html.unescape),
    ("%", _PERCENT, unquote),
    ("=+", _FORM, lambda run: run.replace("+", " ")),
    ("\\", _ESCAPE, _without_json_escapes),
    ("=", _PRINTABLE, lambda run: _PRINTED.sub(_printed, _SOFT_BREAK.sub("", run))),
    ("=\n", _SOFT_BREAK, lambda run: _SOFT_BREAK.sub("", run)),
    ("<@", _TAGGED, lambda run: _ANY_TAG.sub("", run)),
    ("\r\n", _FOLDED_LINE, lambda run: _FOLDED_LINE.sub("", run)),
)
"""Characters that every escape of a kind contains, the escape, and the function that undoes it."""
_ESCAPE_SIGN: Final = re.compile("[&%\\\\=+<]|\r\n")
"""A character without which a text has no escape."""


def _without_escapes(text: str, search: Search) -> Iterator[str]:
    """Yield the text with each kind of escape undone, in its surroundings or everywhere."""
    for signs, pattern, undo in _ESCAPES:
        if not all(sign in text for sign in signs):
            continue
        if not search.whole:
            found = _places(text, pattern)
            if found:
                yield undo(found)
        elif pattern.search(text) is not None:
            yield undo(text)


def without_markup(text: str) -> tuple[str, ...]:
    """Return a text without its tags and comments: joined where they were, and with spaces there.

    Not by the parser of the standard library, which takes minutes for 64 KiB of open tags.
    """
    data = text.encode("utf-8", "replace")
    tags = [found.span() for found in _MARKUP.finditer(data)] if b"<" in data else []
    if not tags:
        return ()
    spend(len(data))
    starts, ends = [0, *(end for _, end in tags)], [*(start for start, _ in tags), len(data)]
    parts = [data[start:end].decode() for start, end in zip(starts, ends, strict=True)]
    return "".join(parts), " ".join(parts)


def _places(text: str, pattern: re.Pattern[str]) -> str:
    """Return the surroundings of each match on a line of its own, to the ends of long words.

    Overlapping ones are merged.
    """
    spans: list[tuple[int, int]] = []
    for found in pattern.finditer(text):
        start, end = max(found.start() - SURROUNDING, 0), found.end() + SURROUNDING
        first = max(start - LONG_WORD, 0)
        start = max(first, text.rfind(" ", first, start) + 1)
        blank = text.find(" ", end, end + LONG_WORD)
        if spans and start < spans[-1][1]:
            start = spans.pop()[0]
        spans.append((start, blank if blank >= 0 else end + LONG_WORD))
    return "\n".join(text[start:end] for start, end in spans)


# --- encoded words ----------------------------------------------------------------------------

_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{10,}={0,6}")
_HEX: Final = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){5,}")
_LINES: Final = re2.compile(rb"(?:[A-Za-z0-9+/]{16,}[ \t\r\n]+)+[A-Za-z0-9+/]{2,}={0,2}")
_ODD: Final = re.compile(r"[\d@/#:]|\..|[^\x00-\x7f]", re.DOTALL)
_PUNCTUATION: Final = ".,;:!?()[]{}\"'*_\u2018\u2019\u201c\u201d\u2026"
BARREN_KEPT: Final = 16 * 1024
"""Maximum number of remembered words that are not base64 of a text."""
_BARREN: Final[dict[int, set[int]]] = {search.token: set() for search in (DESTINATIONS, CONTENT)}
"""Hashes of such words, by search; Python keys them per process, so nobody can craft a clash."""


@lru_cache(maxsize=8)
def words_of(text: str) -> list[str]:
    """Return the words of a text, each once; do not change the list."""
    return list(dict.fromkeys(text.split()))


@lru_cache(maxsize=8)
def odd_words(text: str) -> list[str]:
    """Return the words of a text that are more than letters with punctuation around them.

    They have a digit, one of ``@/#:``, an inner dot or a character outside ASCII. A pattern that
    crosses no space and needs one of these finds the same in these words as in the text, in the
    same order. Do not change the list.
    """
    longer = filterfalse(str.isalpha, words_of(text))
    found: list[str] = []
    for word in longer:
        if not word.strip(_PUNCTUATION).isalpha() and _ODD.search(word) is not None:
            found.append(word)
    return found


def words_with(sign: str, words: list[str]) -> str:
    """Return the words that contain a sign, for patterns that cross no space."""
    return " ".join([word for word in words if sign in word])


def _base64(token: str) -> bytes:
    bare = token.rstrip("=").replace("-", "+").replace("_", "/")
    if len(bare) % 4 == 1:
        return b""
    return binascii.a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)


def _words(text: str, search: Search, tried: set[str]) -> Iterator[str]:
    """Yield the texts that encoded words decode to; each word is tried once."""
    long = [word for word in words_of(text) if len(word) >= search.token and word not in tried]
    tried.update(long)
    if long:
        joined = " ".join(long)
        yield from _base64_words(joined, search)
        for token in islice(map(itemgetter(0), _HEX.finditer(joined)), WORDS):
            yield from _decoded_by(bytes.fromhex, token, search)
    for found in islice(_LINES.finditer(text.encode("ascii", "replace")), WORDS):
        lines = found[0].decode("ascii").split()
        # The word behind the last line may look like one.
        for count in (len(lines), len(lines) - 1):
            yield from _decoded_by(_base64, "".join(lines[:count]), search)


def _base64_words(joined: str, search: Search) -> Iterator[str]:
    """Yield the texts that words decode to as base64, without the words that are known not to."""
    barren = _BARREN[search.token]
    if len(barren) > BARREN_KEPT:
        barren.clear()
    tokens = map(itemgetter(0), _BASE64.finditer(joined))
    for token in islice((one for one in tokens if hash(one) not in barren), WORDS):
        texts = [*_decoded_by(_base64, token, search)]
        if not texts and "/" in token:
            # A slash is a letter of base64, and in a path it parts words.
            parts = [part for part in token.split("/") if len(part) >= search.token]
            texts = [text for part in parts[:WORDS] for text in _decoded_by(_base64, part, search)]
        yield from texts
        if not texts:
            barren.add(hash(token))


def _decoded_by(decode: Callable[[str], bytes], token: str, search: Search) -> Iterator[str]:
    """Yield the text that a word is a coding of, if it is one."""
    try:
        text = _as_text(decode(token[:SIZE]), search)
    except ValueError:  # binascii.Error is a ValueError
        return
    if text is not None:
        yield text


def decoded(token: str) -> Iterator[str]:
    """Yield the texts that one word is a coding of."""
    if _HEX.fullmatch(token) is not None:
        yield from _decoded_by(bytes.fromhex, token, CONTENT)
    yield from _decoded_by(_base64, token, CONTENT)


def _as_text(raw: bytes, search: Search) -> str | None:
    """Return the text that bytes are, compressed or not; None for other bytes."""
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
    visible = fold(text)
    shown = sum(char.isprintable() or char.isspace() for char in visible)
    return text if visible and shown >= search.printable * len(visible) else None


def _unpacked(raw: bytes) -> bytes:
    """Return decompressed bytes, at most as many as a text may have."""
    try:
        if raw.startswith(_PACKED):
            return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(raw, SIZE)
        if raw.startswith(_ZSTD):
            # One each time: it may not be shared by threads.
            reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
            return reader.stream_reader(io.BytesIO(raw)).read(SIZE)
    except (zlib.error, zstandard.ZstdError):
        pass
    return raw


def _without_brotli(raw: bytes) -> bytes | None:
    """Return decompressed brotli, which has no magic number; None for other bytes."""
    decoder = brotli.Decompressor()
    try:
        data = unpacked_brotli(decoder, raw, SIZE + 1)
        if len(data) > SIZE:
            return data[:SIZE].decode("utf-8", "ignore").encode()
        return data if decoder.is_finished() and data.decode() else None
    except (brotli.error, UnicodeDecodeError):
        return None


def unpacked_brotli(decoder: Any, raw: bytes, limit: int) -> bytes:
    """Return what bytes decompress to, or its beginning: ``limit`` bytes or slightly more.

    Args:
        decoder: ``brotli.Decompressor``; of no further use where the limit is reached.
        raw: more of its input.
        limit: bytes that are enough.

    Raises:
        brotli.error: damaged data, or data after their end.
    """
    data, step = bytearray(), len(raw) if _LIMITS_OUTPUT else _STEP
    most = {"output_buffer_limit": limit} if _LIMITS_OUTPUT else {}
    for start in range(0, len(raw), step or 1):
        if decoder.is_finished():
            raise brotli.error
        data += decoder.process(raw[start : start + step], **most)
        if len(data) >= limit:
            break
    while _LIMITS_OUTPUT and len(data) < limit and not decoder.can_accept_more_data():
        data += decoder.process(b"", **most)
    return bytes(data)


# --- the reader -------------------------------------------------------------------------------


def destination_readings(text: str, budget: Budget) -> Iterator[str]:
    """Yield the readings of a text in which destinations are looked for, without the text itself.

    Most consist of the surroundings of escapes, so they are far shorter than the text.
    """
    for reading in _recursive(text, DESTINATIONS):
        if budget.room <= 0:
            budget.exceeded = True
            return
        yield budget.take(reading)


@bounded_cache(64)
def content_readings(text: str) -> Readings:
    """Return the readings of a text in which secrets, accounts and private text are looked for."""
    # The pattern engines refuse half a character of UTF-16.
    text = _SURROGATE.sub("\ufffd", text)
    if len(text) < CONTENT.token and text.isascii() and _ESCAPE_SIGN.search(text) is None:
        return Readings((text,), complete=True)
    spend(2 * len(text))
    budget = Budget(SIZE + SIZE_RATIO * len(text))
    found: dict[str, None] = {text: None}
    for reading in _recursive(text, CONTENT):
        if len(reading) > budget.room:
            budget.exceeded = True
            break
        found[budget.take(reading)] = None
    return Readings(tuple(found), not budget.exceeded)


def _recursive(text: str, search: Search) -> Iterator[str]:
    """Yield every reading of a text once, those of fewer codings first."""
    seen, tried, level = {text}, set[str](), [text]
    for depth in range(DEPTH + 1):
        following: list[str] = []
        for item in level:
            for reading in _step(item, search, None if depth == DEPTH else tried):
                if reading and reading not in seen:
                    seen.add(reading)
                    yield reading
                    following.append(reading)
        level = following


def _step(text: str, search: Search, tried: set[str] | None) -> Iterator[str]:
    """Yield the text with one coding less; letters only, without a set of tried words."""
    yield fold(text)
    if tried is not None:
        if _ESCAPE_SIGN.search(text) is not None:
            yield from _without_escapes(text, search)
        if len(text) >= search.token:
            yield from _words(text, search, tried)


FILE_ENDINGS: Final = (
    *(".csv", ".doc", ".docx", ".eml", ".htm", ".html", ".md", ".pdf", ".ppt", ".pptx", ".txt"),
    *(".xls", ".xlsx", ".zip", ".ics", ".json", ".yaml", ".yml", ".xml", ".toml", ".ini", ".cfg"),
    *(".log", ".py", ".js", ".ts", ".sh", ".sql", ".c", ".h", ".go", ".rs", ".java", ".exe"),
    *(".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".mp3", ".mp4", ".wav", ".gz", ".tar"),
)
"""Endings of file names, whose last part otherwise looks like that of a host."""
