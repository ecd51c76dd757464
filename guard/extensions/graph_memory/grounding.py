"""Grounding of a query: the nodes that a text names.  Pure: no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.extensions.graph_memory.graph import Recall

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.extensions.graph_memory.ledger import Ledger

LONGEST: Final = 8
"""Words of the longest name that is looked for."""
_WORD: Final = re.compile(r"\w+(?:['.-]\w+)*")


def folded(name: str) -> str:
    """Return a name as it is compared: its words in lower case."""
    return " ".join(_WORD.findall(name.lower()))


def mentioned(
    ledger: Ledger, text: str, known: Callable[[int], bool] = lambda _: True
) -> list[int]:
    """Return the numbers of the nodes whose names stand in a text, the longest at each word.

    Args:
        ledger: whose nodes.
        text: searched.
        known: whether there is a node; a name that is nobody's hides no shorter one.
    """
    names, longest = ledger.folded_names(folded)
    words = _WORD.findall(text.lower())
    found: dict[int, None] = {}
    at = 0
    while at < len(words):
        for length in range(min(LONGEST, len(words) - at, longest.get(words[at], 0)), 0, -1):
            numbers = names.get(" ".join(words[at : at + length]))
            if numbers and (there := [node for node in numbers if known(node)]):
                found.update(dict.fromkeys(there))
                at += length
                break
        else:
            at += 1
    return list(found)


@dataclass(frozen=True, slots=True)
class Grounding:
    """Query of a recall in words; the nodes of the graph decide its seeds.

    A stranger who names a node like a part of the question moves where the walk begins, so each
    graph has seeds of its own.
    """

    ledger: Ledger
    texts: tuple[str, ...]
    in_text: bool = False
    """True if names occur in a text, and are not the texts themselves."""

    def seeds(self, known: Callable[[int], bool] = lambda _: True) -> list[int]:
        """Return the nodes that are meant, as they were before any merge, of those there are."""
        if self.in_text:
            return [node for text in self.texts for node in mentioned(self.ledger, text, known)]
        named = map(self.ledger.number, self.texts)
        return [node for node in named if node is not None and known(node)]

    def recall(
        self,
        top: int,
        root: Callable[[int], int],
        known: Callable[[int], bool] = lambda _: True,
    ) -> Recall:
        """Return the recall of some items in the graph that has merged each node into a root.

        Raises:
            ValueError: it has none of the nodes.
        """
        seeds = self.seeds(known)
        if not seeds:
            raise ValueError("a recall has nothing to start from")
        return Recall(dict.fromkeys(map(root, seeds), 1.0), top=top)
