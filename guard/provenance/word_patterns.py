"""Patterns of word lists in several languages, for casefolded text.  Pure: no I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_UNSPACED: Final = frozenset({"ja", "zh"})
"""Languages without spaces between words: their entries match inside a word."""


def word_pattern(languages: Mapping[str, Iterable[str]]) -> re.Pattern[str]:
    """Return the pattern of all words of a list.

    Args:
        languages: words by language; ``~`` stands for the rest of a word, ``_`` for a space.
    """
    spaced: list[str] = []
    unspaced: list[str] = []
    for language, words in languages.items():
        escaped = (re.escape(word.casefold()) for word in words)
        patterns = [w.replace(r"\~", "~").replace("~", r"\w*") for w in escaped]
        (unspaced if language in _UNSPACED else spaced).extend(patterns)
    whole = "|".join(spaced).replace("_", r"\s+")
    bounded = [rf"(?<!\w)(?:{whole})(?!\w)"] if spaced else []
    return re.compile("|".join([*bounded, *unspaced]))
