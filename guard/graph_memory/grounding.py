"""Which nodes a text names: the plainest grounding of a query.  Pure: no I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from guard.graph_memory.ledger import Ledger

LONGEST: Final = 8
"""Words of the longest name that is looked for."""
_WORD: Final = re.compile(r"\w+(?:['.-]\w+)*")


def folded(name: str) -> str:
    """Return a name as it is compared: its words in lower case."""
    return " ".join(_WORD.findall(name.lower()))


def mentioned(ledger: Ledger, text: str) -> list[int]:
    """Return the numbers of the nodes whose names stand in a text, the longest at each word."""
    names = ledger.folded_names(folded)
    words = _WORD.findall(text.lower())
    found: dict[int, None] = {}
    at = 0
    while at < len(words):
        for length in range(min(LONGEST, len(words) - at), 0, -1):
            numbers = names.get(" ".join(words[at : at + length]))
            if numbers:
                found.update(dict.fromkeys(numbers))
                at += length
                break
        else:
            at += 1
    return list(found)
