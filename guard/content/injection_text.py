"""Text that instructs a model, told by what it asks for.  Pure: no I/O.

No single word makes an attack: a page about attacks has all of them.  So signals are weighed.  Some
need no company (give up your instructions, hide this from the user, read that key file and send
it); others count only together.  A phrase that stands in quotation marks in a text that discusses
such phrases is a mention and counts nothing.
"""

from __future__ import annotations

import codecs
import html
import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final

import re2

from guard.content.decoder import content_readings, decoded, fold
from guard.content.injection_signals import CLASSES, FRAMES, MODEL, SECRETS, SENDS, SIGNALS, WHERE
from guard.content.prefilter import is_in, spans_in
from guard.content.quoted_orders import is_spoken_of
from guard.content.sentence_frames import Frames
from guard.content.steering_reader import HONEST_PAGE, STEERS_PAGE, discusses, page_score
from guard.core.bounded_cache import bounded_cache

if TYPE_CHECKING:
    from collections.abc import Iterator

ENOUGH: Final = 3
"""Weight from which a text counts as one that instructs a model."""
LIMIT: Final = 1024 * 1024
"""Characters looked through per text."""
WINDOW: Final = 16 * 1024
OVERLAP: Final = 1024
"""Characters; no signal is longer than the overlap."""
LONG_TOKENS: Final = 32
"""Tokens that are decoded where a text is not looked through deeply."""
MATCHES: Final = 20
"""Places of one signal that are looked at, to find one that is no mention."""

_FRAMES: Final = Frames(CLASSES, FRAMES)


@cache
def _signals() -> tuple[tuple[str, int, re2._Regexp], ...]:
    """Return group, weight and expression of each signal; many guards never ask for them."""
    return tuple(
        (group, weight, re2.compile(f"(?is){source}")) for group, weight, source in SIGNALS
    )


@cache
def _signal_set() -> re2.Set:
    """Return the expressions as one; likewise."""
    options = re2.Options()
    options.max_mem = 64 * 1024 * 1024
    signals = re2.Set.SearchSet(options)
    for _, _, source in SIGNALS:
        signals.Add(f"(?is){source}")
    signals.Compile()
    return signals


_LONG_TOKEN: Final = re2.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}")
_HIDDEN: Final = re2.compile(
    r"(?is)<!--(.*?)-->|<[^>]{0,300}(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*[01](?:px|pt|em)?\b"
    r"|opacity\s*:\s*0\b|\shidden\b|aria-hidden)[^>]{0,300}>([^<]*)"
)
_SPOKEN_TO: Final = re2.compile(
    rf"(?is)\b{MODEL}\s*[:,]|\b{MODEL}\s+(?:must|should|please|will)\b"
    rf"|\b{SENDS}\b.{{0,100}}{WHERE}.{{0,60}}{SECRETS}"
)
_QUOTES: Final = re.compile(r"(?i)</?(?:q|code|samp|kbd|blockquote|em|cite|pre)>")
"""Tags that quote; with attributes they may be hidden."""
_TAG: Final = re.compile(r"(?s)<!--|-->|</?[A-Za-z][^<>]{0,500}>")
_TAGS: Final = re.compile("[\U000e0020-\U000e007e]+")
_SPACED: Final = re2.compile(r"\b(?:[A-Za-z][ .\-_*]){5,}[A-Za-z]\b")
_APART: Final = re2.compile(r"\b(?:[A-Za-z][ .\-_*])+[A-Za-z]\b")
"""Every word of such a text, short ones as well."""
_TURNED: Final = re2.compile(r"(?i)\brot-?13\b|\bcaesar\b|\b(?:backwards?|reversed|mirrored)\b")
_SIGNS: Final = re.compile(r"[013457@$!|]+")
_NUMBERS: Final = re.compile(
    r"(?i)\b[0-9a-f]{2}(?::[0-9a-f]{2}){5,}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b[0-9a-f]{16,}\b|</?h[1-6]\b"
)
"""Fingerprints, ids and digests, in whose digits nobody disguises letters."""
_LEET: Final = str.maketrans("013457@$!|", "oieastasil")


@bounded_cache(64)
def instructs(text: str, *, deep: bool) -> bool:
    """Return whether a text instructs a model.

    Args:
        text: of any length.
        deep: whether every reading is looked at; else the text without disguise of its letters,
            and what its first long tokens are a coding of.
    """
    readings = model_readings(text[:LIMIT]) if deep else _plain_readings(text[:LIMIT])
    return any(map(_orders, readings))


def _orders(text: str) -> bool:
    """Return whether a reading orders a model about.

    What speaks of models, and is read as honest around each such word, may speak of what orders
    speak of; signals count there as well.
    """
    score = page_score(text)
    if (score is not None and score > STEERS_PAGE) or _weight(text) >= ENOUGH:
        return True
    doubtful = score is None or score > HONEST_PAGE
    return doubtful and any(True for _ in _FRAMES.found(text))


def signal_weight(text: str) -> int:
    """Return the weight of the signals in a text as it stands, to be added to other evidence."""
    return _weight(text[:LIMIT])


def _plain_readings(text: str) -> Iterator[str]:
    folded = fold(text)
    yield folded
    yield from _tagged(text)
    for match in islice(_LONG_TOKEN.finditer(folded), LONG_TOKENS):
        yield from decoded(match.group())


def _tagged(text: str) -> Iterator[str]:
    """Yield what Unicode's tags in a text say, apart from what they stand behind."""
    runs = [] if text.isascii() else _TAGS.findall(text)
    if runs:
        yield fold(" ".join(runs))


def model_readings(text: str) -> Iterator[str]:
    """Yield the text as a model could read it: as it is, decoded, without markup, unmasked."""
    if "<" in text:
        text = _QUOTES.sub('"', text)
    for view in content_readings(text).texts:
        yield view
        bare = html.unescape(view) if "&" in view else view
        if "<" in bare:
            bare = _TAG.sub("", bare)
        if bare != view:
            yield bare
    yield from _tagged(text)
    folded = fold(text)
    if is_in(_SPACED, folded):
        yield _APART.sub(lambda match: "".join(filter(str.isalpha, match.group())), folded)
    plain = _SIGNS.sub(_letters, _NUMBERS.sub("-", folded))
    if plain != folded:
        yield plain
    # A text that says how it is turned is read so.
    if is_in(_TURNED, folded):
        yield codecs.encode(folded, "rot13")
        yield folded[::-1]


def _letters(match: re.Match[str]) -> str:
    """Return letters for signs beside letters, or for one by itself; a number is no word."""
    signs, text = match.group(), match.string
    before, after = (
        text[max(0, match.start() - 1) : match.start()],
        text[match.end() : match.end() + 1],
    )
    if before.isalpha() or after.isalpha():
        return signs.translate(_LEET)
    alone = len(signs) == 1 and not (before.isalnum() or after.isalnum())
    return signs.translate(_LEET) if alone else signs


def _weight(text: str) -> int:
    """Return the sum of the groups of signals in a text; where they are hidden, it is enough."""
    if "<" in text and any(_hidden(text)):
        return ENOUGH
    discussed = discusses(text)
    found: dict[str, int] = {}
    for index in _present(text):
        group, weight, signal = _signals()[index]
        if weight > found.get(group, 0) and _stands(signal, text, discussed=discussed):
            found[group] = weight
    return sum(found.values())


def _present(text: str) -> set[int]:
    """Return which signals are in a text.

    One pass finds all, in windows: the automaton of so many patterns must not outgrow its memory,
    whatever the text is.
    """
    return {
        index
        for start in range(0, max(1, len(text)), WINDOW)
        for index in _signal_set().Match(text[start : start + WINDOW + OVERLAP]) or ()
    }


def _hidden(text: str) -> Iterator[bool]:
    """Yield whether each part of a page that is not shown speaks to a model."""
    for first, second in _HIDDEN.findall(text):
        part = first or second
        yield bool(_SPOKEN_TO.search(part)) or any(SIGNALS[i][1] > 1 for i in _present(part))


def _stands(signal: re2._Regexp, text: str, *, discussed: bool) -> bool:
    """Return whether a signal is in a text other than as a mention."""
    for number, (start, end) in enumerate(spans_in(signal, text)):
        if number >= MATCHES or not is_spoken_of(text, start, end, discussed=discussed):
            return True
    return False
