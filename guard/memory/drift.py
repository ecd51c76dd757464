"""A sequential test on what a principal's committed items say.  Pure: no I/O.

Each item may be harmless, and ten of them together push a vendor.  For every subject (a word, a
domain) that items *endorse*, a one-sided CUSUM of the log-likelihood ratio of two rates is kept:
how often an ordinary principal's items endorse one subject (``base_rate``), and how often a pushed
one's do (``pushed_rate``).  Items that do not endorse the subject take evidence away, never below
zero, so nobody can earn credit in advance.  State is bounded; what falls out is what has least
evidence.  The arithmetic is in ``guard/store/scripts/drift.lua``.
"""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.provenance.actions import word_pattern
from guard.values.finding import find_destinations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.mappings import DriftSettings

SUBJECTS: Final = 64
"""Subjects with evidence that are kept for one principal."""
LEAST_LETTERS: Final = 3
"""Length of the shortest word that may be a name."""
_WORDS: Final = tomllib.loads(
    Path(__file__).with_name("drift_words.toml").read_text(encoding="utf-8")
)
_ENDORSING, _ACTING, _FUNCTION = (
    word_pattern({language: words.split() for language, words in _WORDS[role].items()})
    for role in ("endorsing", "acting", "function")
)
_TOKEN: Final = re.compile(r"[^\W_]+(?:[.&'\u2019+-][^\W_]+)*")
_GENITIVE: Final = re.compile(r"['\u2019]s$")
_SENTENCE: Final = re.compile(r"[.!?]\s+|\n+")


def endorsed(texts: Iterable[str]) -> frozenset[str]:
    """Return the subjects that an item endorses: words and domains of its endorsing sentences.

    Names are read in any spelling: capital letters do not tell a name in every language.  The one
    who recommends, prefers or uses something is not endorsed by doing so.
    """
    found: set[str] = set()
    for text in texts:
        for sentence in _SENTENCE.split(text):
            folded = sentence.casefold()
            if not _ENDORSING.search(folded):
                continue
            found.update(d.host or d.canonical for d in find_destinations(sentence))
            found.update(_names(folded))
    return frozenset(found)


def _names(sentence: str) -> Iterator[str]:
    """Yield the words of a casefolded sentence that may name something."""
    for match in _TOKEN.finditer(sentence):
        word = _GENITIVE.sub("", match[0])
        acts = _ACTING.match(sentence, match.end() + 1)
        plain = _ENDORSING.fullmatch(word) or _FUNCTION.fullmatch(word)
        if len(word) >= LEAST_LETTERS and not acts and not plain:
            yield word


def steps(settings: DriftSettings) -> tuple[float, float]:
    """Return what an endorsing item adds, and what any other takes away."""
    gain = math.log(settings.pushed_rate / settings.base_rate)
    return gain, math.log((1 - settings.base_rate) / (1 - settings.pushed_rate))
