"""Folds: differences between two recipients that a policy declares to be none.  Pure: no I/O.

Two spellings that a receiver may tell apart are two receivers.  An operator who knows better says
so under ``identity``: values are then looked up, and stored, with the difference taken out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.values.canonical import REST_SIGN, untagged

if TYPE_CHECKING:
    from collections.abc import Iterable

PLUS_TAGS: Final = "plus_tags"
SCHEME: Final = "scheme"
_PARAMETER: Final = re.compile(r"query:([A-Za-z0-9_.~-]{1,64})")
FORMS: Final = "`plus_tags`, `scheme` or `query:PARAMETER`"


@dataclass(frozen=True, slots=True)
class Folds:
    """The declared folds; called with a value, it returns the value that stands for all alike."""

    plus_tags: bool = False
    """``user+tag@host`` is ``user@host``."""
    scheme: bool = False
    """``http`` is ``https``."""
    parameters: frozenset[str] = frozenset()
    """Parameters of a query that choose no receiver (a page, a language)."""

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Folds:
        """Return the folds that some texts name.

        Raises:
            ValueError: one of them is not a fold.
        """
        names = set(texts)
        found = {text: _PARAMETER.fullmatch(text) for text in names - {PLUS_TAGS, SCHEME}}
        for text, match in found.items():
            if match is None:
                raise ValueError(f"`{text}` is no fold; write {FORMS}")
        parameters = frozenset(match[1] for match in found.values() if match)
        return cls(PLUS_TAGS in names, SCHEME in names, parameters)

    def __call__(self, value: str) -> str:
        """Return a value of :mod:`guard.values.finding`, folded."""
        if self.plus_tags and value.startswith("mail:"):
            return untagged(value)
        if value.startswith("url:"):
            return self._url(value)
        return value

    def _url(self, value: str) -> str:
        if self.scheme and value.startswith("url:http://"):
            value = value.replace("http", "https", 1)
        whole, sign, rest = value.partition(REST_SIGN)
        bare, mark, query = whole.partition("?")
        if not mark or not self.parameters:
            return value
        kept = [p for p in query.split("&") if p.partition("=")[0] not in self.parameters]
        return (f"{bare}?{'&'.join(kept)}" if kept else bare) + sign + rest
