"""Passages by which a private text is known again where a part of it is sent.  Pure: no I/O.

A passage is a run of words, in folded case.  Of what is read some are kept (winnowing: the least
of each window, so any run that is long enough keeps one), of what is sent all are looked up.  A
number or code is a passage by itself.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

from guard.content.decoder import content_readings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WORDS: Final = 5
"""Words of a passage."""
WINDOW: Final = 4
"""Of this many passages in a row one is kept: a run of ``WORDS + WINDOW - 1`` words is known."""
KEPT: Final = 512
"""Passages of one result that are kept."""
ASKED: Final = 192
"""Passages of one body that are looked up."""
TEXT_LIMIT: Final = 64 * 1024
_WORD: Final = re.compile(r"\w+(?:[-.@+/]\w+)*")
_DIGIT: Final = re.compile(r"\d")
_CODE_LENGTH: Final = 5


def passages_kept(text: str) -> Iterator[str]:
    """Yield the passages by which a private text is remembered."""
    words = _words(text)
    yield from _codes(words)
    runs = _runs(words)
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


def passages_sent(texts: Iterable[str]) -> list[str]:
    """Return the passages of what is sent, in any coding, at most ``ASKED``."""
    found: dict[str, None] = {}
    for text in texts:
        for view in content_readings(text[:TEXT_LIMIT]).texts:
            words = _words(view)
            if _DIGIT.search(view) is not None:
                found.update(dict.fromkeys(_codes(words)))
            if len(words) >= WORDS:
                found.update(dict.fromkeys(_runs(words)))
            if len(found) > ASKED:
                return list(found)[:ASKED]
    return list(found)


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:TEXT_LIMIT].casefold())


def _runs(words: list[str]) -> list[str]:
    return [
        "passage:" + " ".join(words[start : start + WORDS])
        for start in range(len(words) - WORDS + 1)
    ]


def _codes(words: list[str]) -> list[str]:
    """Return what is no word of a language: it has a digit and is not short."""
    return [f"code:{word}" for word in words if len(word) >= _CODE_LENGTH and _DIGIT.search(word)]
