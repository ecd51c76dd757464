"""The surroundings of signs in a text, so that a guess costs little.  Pure: no I/O."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import re

PLACE_LIMIT: Final = 100
"""Places of one kind that are read another way, per text."""
SURROUNDING: Final = 72
"""Characters before and after such a place; an address and its spacing fit in."""


def places(text: str, pattern: re.Pattern[str]) -> str:
    """Return the surroundings of what a pattern finds, each on a line of its own."""
    pieces: list[str] = []
    end = 0
    for found in islice(pattern.finditer(text), PLACE_LIMIT):
        start = max(found.start() - SURROUNDING, 0)
        if start < end and pieces:
            pieces[-1] += text[end : found.end() + SURROUNDING]
        else:
            pieces.append(text[start : found.end() + SURROUNDING])
        end = max(end, min(found.end() + SURROUNDING, len(text)))
    return "\n".join(pieces)
