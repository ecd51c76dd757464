"""Shingles and pieces by which a private text is recognised where it is sent.  Pure: no I/O.

A *passage* is a shingle: a run of words, in folded case; a number or code is one by itself. Some
passages of a read text are kept (winnowing: the least of each window, so any run that is long
enough keeps one; Schleimer, Wilkerson and Aiken, "Winnowing", 2003). All passages of a sent text
are looked up.

A *piece* is less than a passage: one word of a sentence, some characters of a code. A recipient
that gets all pieces of one sentence or code has it, in any order and number of calls. So each piece
is kept with its *unit* and its position there.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.bounded_cache import bounded_cache
from guard.values.decoder import CONTENT, content_readings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WORDS: Final = 5
"""Words of a passage."""
WINDOW: Final = 4
"""Passages in a row of which one is kept: a run of ``WORDS + WINDOW - 1`` words is known."""
KEPT: Final = 4096
"""Passages, and as many pieces, of one result that are kept."""
ASKED: Final = 2048
"""Passages, and as many pieces, of one call that are looked up."""
SENT_LIMIT: Final = 256 * 1024
"""Characters of one call that are looked through; a larger one is not searched to its end."""
UNIT_WORDS: Final = 24
FEWEST_WORDS: Final = 5
"""Words of a unit at most and at least: a shorter sentence has too little that is its own."""
UNIT_CODE: Final = 64
FEWEST_CHARACTERS: Final = 6
"""Likewise characters of a code."""
PART_LENGTHS: Final = range(3, 9)
"""Characters of a part of a code."""
_WORD: Final = re.compile(r"\w+(?:[-.@+/]\w+)*")
_DIGIT: Final = re.compile(r"\d")
_DRAWN: Final = re.compile(r"[\d_-]|[a-z][A-Z]|[A-Z]{4}")
"""Sign that a part belongs to a code, not to a word: a digit, a sign or capitals inside."""
_ONE_WORD: Final = re.compile(r"[A-Za-z]*[.!?]?")
"""One word: no passage, no code and, where it is short, under no coding."""
_SENTENCE: Final = re.compile(r"[.!?;:]\s+|\n+")
_BARE: Final = re.compile(r"[\W_]+")
_JOINS: Final = re.compile(r"[+/&=?_]")
"""Characters between the words of a URL."""
_CODE_LENGTH: Final = 5
_LONG_WORD: Final = 4


class SentShingles(NamedTuple):
    """The shingles and pieces of a call that are looked up."""

    passages: tuple[str, ...]
    pieces: tuple[str, ...]
    """Empty where pieces are not asked for."""
    complete: bool
    """True if nothing was left out."""


class Piece(NamedTuple):
    """Some of a unit of private text."""

    text: str
    unit: str
    size: int
    """Places of the unit: its words, or the characters of a code."""
    start: int
    length: int
    """Number of the places that it covers."""


def shingles_kept(text: str) -> Iterator[str]:
    """Yield the passages by which a private text is remembered."""
    words = _words(text)
    yield from _codes(words)
    yield from _winnowed(_runs(words))


def pieces_kept(text: str) -> Iterator[Piece]:
    """Yield the pieces of the sentences and codes of a private text."""
    for sentence in _SENTENCE.split(text):
        words = _words(sentence)
        telling = [word for word in words if _tells(word)]
        for begin in range(0, len(telling), UNIT_WORDS):
            some = telling[begin : begin + UNIT_WORDS]
            if len(some) >= FEWEST_WORDS:
                unit = " ".join(some)
                for place, word in enumerate(some):
                    yield Piece(f"word:{word}", unit, len(some), place, 1)
        for word in words:
            code = _BARE.sub("", word)
            if FEWEST_CHARACTERS <= len(code) <= UNIT_CODE and _DIGIT.search(code):
                yield from _parts(code)


def parts_kept(secret: str) -> Iterator[Piece]:
    """Yield the pieces of a key or password; a long one is of several units."""
    code = _BARE.sub("", secret).casefold()
    for begin in range(0, len(code), UNIT_CODE):
        yield from pieces_kept(code[begin : begin + UNIT_CODE])


class _TextShingles(NamedTuple):
    """Codes, runs of words and pieces of one text, decoded in every way."""

    codes: list[str]
    runs: list[list[str]]
    """Runs of words, by reading."""
    pieces: list[str]
    complete: bool


_EMPTY: Final = _TextShingles([], [], [], complete=True)


def sent_shingles(texts: Iterable[str], *, pieces: bool) -> SentShingles:
    """Return the passages of what is sent, in any coding, and its pieces if they are asked for."""
    passages: dict[str, None] = {}
    runs: list[list[str]] = []
    parts: dict[str, None] = {}
    complete, room = True, SENT_LIMIT
    for text in texts:
        room -= len(text)
        if room < 0:
            return SentShingles((), (), complete=False)
        if not pieces and len(text) < CONTENT.token and _ONE_WORD.fullmatch(text) is not None:
            continue
        found = _shingles_of(text, pieces=pieces)
        if found is not _EMPTY:
            passages.update(dict.fromkeys(found.codes))
            runs += found.runs
            parts.update(dict.fromkeys(found.pieces))
            complete = complete and found.complete
    if not (passages or runs or parts):
        return SentShingles((), (), complete)
    if len(passages) + sum(map(len, runs)) > ASKED:
        # A run that is long enough shares what is kept of it, whatever stands around it.
        runs = [list(_winnowed(some)) for some in runs]
    for some in runs:
        passages.update(dict.fromkeys(some))
    complete = complete and max(len(passages), len(parts)) <= ASKED
    return SentShingles(tuple(passages)[:ASKED], tuple(parts)[:ASKED], complete)


@bounded_cache(64)
def _shingles_of(text: str, *, pieces: bool) -> _TextShingles:
    """Return what a text says, with its pieces if they are asked for; not to be changed."""
    codes: list[str] = []
    runs: list[list[str]] = []
    parts: list[str] = []
    readings = content_readings(text)
    for reading in readings.texts:
        joined = "+" in reading or "://" in reading
        for view in (reading, _JOINS.sub(" ", reading)) if joined else (reading,):
            words = _WORD.findall(view.casefold())
            if _DIGIT.search(view) is not None:
                codes += _codes(words)
            if len(words) >= WORDS:
                runs.append(_runs(words))
            if pieces:
                parts += _pieces(_WORD.findall(view))
    found = _TextShingles(codes, runs, parts, readings.complete)
    return _EMPTY if found == _EMPTY else found


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _runs(words: list[str]) -> list[str]:
    runs: list[str] = []
    for start in range(len(words) - WORDS + 1):
        runs.append("passage:" + " ".join(words[start : start + WORDS]))
    return runs


def _winnowed(runs: list[str]) -> Iterator[str]:
    """Yield the least of each window; all of so few that there is no window."""
    if len(runs) <= WINDOW:
        yield from runs
        return
    weights = [zlib.crc32(run.encode("utf-8", "surrogatepass")) for run in runs]
    before = -1
    for start in range(len(runs) - WINDOW + 1):
        least = min(range(start, start + WINDOW), key=weights.__getitem__)
        if least != before:
            yield runs[least]
            before = least


def _codes(words: list[str]) -> list[str]:
    """Return the words that are not of a language: those with a digit that are not short."""
    return [f"code:{word}" for word in words if len(word) >= _CODE_LENGTH and _DIGIT.search(word)]


def _tells(word: str) -> bool:
    return len(word) >= _LONG_WORD or _DIGIT.search(word) is not None


def _parts(code: str) -> Iterator[Piece]:
    for length in PART_LENGTHS:
        for start in range(len(code) - length + 1):
            yield Piece(f"part:{code[start : start + length]}", code, len(code), start, length)


def _pieces(words: list[str]) -> Iterator[str]:
    """Yield what in some words may be a piece; a long code is cut into parts."""
    longest = PART_LENGTHS[-1]
    for written in words:
        word = written.casefold()
        if _tells(word):
            yield f"word:{word}"
        code = _BARE.sub("", word)
        if len(code) >= PART_LENGTHS[0] and _DRAWN.search(written):
            for start in range(0, len(code), longest):
                yield f"part:{code[max(0, min(start, len(code) - longest)) :][:longest]}"
