"""Evidence that a text was made from another: values and passages.  Pure.

A text is remembered by its evident values (mailboxes, URLs, hosts, account numbers) and by some of
its five-word passages (winnowing, Schleimer et al. 2003: the least of every four in a row is kept),
each with marks of the eight-word runs that it was kept for.  Two texts that share eight words in a
row have kept the same passage for them, so looking up what is kept finds every such run.
A text with a share of the passages alone resembles the other.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.model import Destination, DestinationStatus
from guard.values.canonical import read_url
from guard.values.decoder import FILE_ENDINGS, content_readings
from guard.values.finding import Found, find_values, suspected_destinations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

WORDS: Final = 5
WINDOW: Final = 4
RUN: Final = WORDS + WINDOW - 1
"""Words in a row that two texts must share to be told as one the copy of the other."""
RUNS_KEPT: Final = 64
"""Passages by which one text is remembered."""
RUNS_ASKED: Final = 192
"""Passages of one text that are looked up."""
VALUES: Final = 32
"""Evident values of one text that count."""
IDS: Final = 32
"""Words of one text that may be the id of an item."""
WHOLE_WORDS: Final = 4
"""Words of the shortest text that is known again as a whole."""
WHOLES: Final = 8
"""Texts of one save that are known again as wholes."""
TEXT_LIMIT: Final = 64 * 1024
_WORD: Final = re.compile(r"\w+(?:[-.@+/]\w+)*")
_ID: Final = re.compile(r"[A-Za-z0-9][\w:./-]{4,120}[A-Za-z0-9]")


class Tier(IntEnum):
    """Certainty of an edge, the highest first."""

    CONFIRMED = 1
    """A value, a citation or a run of the one stands in the other."""
    LIKELY = 2
    """They resemble each other, and the session had recalled from that memory."""
    EXPOSED = 3
    """The session had recalled the one before; nothing in the other says that it used it."""


class Kind(IntEnum):
    """Evidence of an edge."""

    VALUE = 1
    CITATION = 2
    RUN = 3
    RESEMBLANCE = 4
    DILUTED = 6
    """One of the others that leaves an item which was repaired or cleared; it is never stored."""

    @property
    def tier(self) -> Tier:
        """The tier of an edge that rests on it."""
        return Tier.LIKELY if self in {Kind.RESEMBLANCE, Kind.DILUTED} else Tier.CONFIRMED


@dataclass(slots=True)
class Marks:
    """Keys under which texts that belong together are stored and looked up."""

    values: dict[str, None] = field(default_factory=dict)
    runs: dict[str, list[str]] = field(default_factory=dict)
    """Passages, each with the eight-word runs of which it is the least."""
    wholes: dict[str, None] = field(default_factory=dict)
    ids: dict[str, None] = field(default_factory=dict)
    """Words that may be the id of an item."""
    cut: bool = False
    """True if a bound left something out."""

    @property
    def kept(self) -> dict[str, list[str]]:
        """The passages by which the text is remembered."""
        return dict(islice(self.runs.items(), RUNS_KEPT))


def marks_of(texts: Iterable[str], is_evident: Callable[[Destination], bool]) -> Marks:
    """Return the marks of some texts that are saved, sent or recalled together.

    Args:
        texts: each a whole string of the call or result.
        is_evident: whether a destination says where a text came from; what is internal does not.
    """
    marks = Marks()
    for text in texts:
        marks.cut |= len(text) > TEXT_LIMIT
        _add(marks, text[:TEXT_LIMIT], is_evident)
    for room, found in (
        (RUNS_ASKED, marks.runs),
        (VALUES, marks.values),
        (IDS, marks.ids),
        (WHOLES, marks.wholes),
    ):
        marks.cut |= len(found) > room
        for name in list(islice(found, room, None)):
            del found[name]
    return marks


def _add(marks: Marks, text: str, is_evident: Callable[[Destination], bool]) -> None:
    marks.values.update(dict.fromkeys(evident_values(text, is_evident)))
    for reading in content_readings(text).texts:
        _add_runs(marks, reading)
    marks.ids.update(dict.fromkeys(ids_in(text)))


def _add_runs(marks: Marks, text: str) -> None:
    words = _WORD.findall(text.casefold())
    passages = [" ".join(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)]
    weights = [zlib.crc32(passage.encode("utf-8", "surrogatepass")) for passage in passages]
    for start in range(len(passages) - WINDOW + 1):
        least = min(range(start, start + WINDOW), key=weights.__getitem__)
        marks.runs.setdefault(passages[least], []).append(" ".join(words[start : start + RUN]))
    if len(passages) < WINDOW:
        for passage in passages:
            marks.runs.setdefault(passage, [])
    if len(words) >= WHOLE_WORDS:
        marks.wholes["whole:" + " ".join(words)] = None


def ids_in(text: str) -> Iterator[str]:
    """Yield the words of a text that may be ids of items: with a digit, or joined by marks."""
    for match in _ID.finditer(text):
        word = match[0]
        if "@" not in word and any(char.isdigit() or char in "_:" for char in word):
            yield word.casefold()


DISGUISED: Final = "~"
"""Before a value that only another reading of a text shows."""


def evident_values(text: str, is_evident: Callable[[Destination], bool]) -> Iterator[str]:
    """Yield the values of a text that say where it may have come from.

    Those that only decoding shows have ``DISGUISED`` before them.
    """
    found = find_values(text)
    for value in _evident(found.plain, is_evident):
        yield value
    for value in _evident(found.disguised, is_evident):
        yield DISGUISED + value


def _evident(values: dict[str, None], test: Callable[[Destination], bool]) -> Iterator[str]:
    for value in values:
        kind, _, canonical = value.partition(":")
        if kind in {"mail", "url"}:
            host = canonical.rpartition("@")[2]
            place = read_url(canonical) if kind == "url" else Destination(kind, canonical, host)
            if test(place):
                yield value
    for destination in suspected_destinations(Found(plain=values)):
        named = destination.kind in {"host", "ip", "handle"}
        if named and not destination.canonical.endswith(FILE_ENDINGS) and test(destination):
            kind = "handle" if destination.kind == "handle" else "host"
            yield f"{kind}:{destination.canonical}"


def values_asked(values: Iterable[str]) -> dict[str, None]:
    """Return the names under which the values of a text are looked for in others.

    What stands in clear in one of two texts joins them; two that only decoding shows do not, since
    decoding turns what is internal into something else in both.
    """
    asked: dict[str, None] = {}
    for value in values:
        if value.startswith(DISGUISED):
            asked[value.removeprefix(DISGUISED)] = None
        else:
            asked[value] = asked[DISGUISED + value] = None
    return asked


def outside(status_of: Callable[[Destination], DestinationStatus]) -> Callable[[Destination], bool]:
    """Return the test for destinations that are neither internal nor on a list."""
    known = {DestinationStatus.INTERNAL, DestinationStatus.ALLOWED, DestinationStatus.MALFORMED}
    return lambda destination: status_of(destination) not in known
