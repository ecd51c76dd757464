"""Replay of a selection on the authenticated part of a memory graph.  Pure: no I/O.

After "Selection Integrity for LLM Graph Memory": structure that no authenticated channel wrote must
not decide which record comes first.  The store's selector is run twice, on the whole graph to show
that the replica is faithful, and on the authenticated part.  An item that was served at place i
vouches for anything only if the second run puts it at place i or before.  An item that no
authenticated structure leads to stands behind all others in the second run.  The exception is an
item that no structure leads to in the first run either: equal scores of zero do not make an order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.extensions.graph_memory.graph import Graph, Ranking, Recall
    from guard.extensions.graph_memory.selectors.base import Selector


class UnreplayedError(GuardError):
    """A selection cannot be replayed; its text is the reason, from a closed set."""


@dataclass(frozen=True, slots=True)
class SelectionReplay:
    """One selection, as it was served and as authenticated structure alone would have made it."""

    served: tuple[int, ...]
    authentic: tuple[int, ...]
    faithful: bool
    """True if the replica's order on the whole graph is the served one."""
    places: tuple[int | None, ...]
    """For each served item its authenticated place, from 0; None where it is not returned."""

    def vouches(self, place: int = 0) -> bool:
        """Return whether the item at a served place may vouch for a later call."""
        stands = standing(self.places)
        return self.faithful and place < len(stands) and stands[place]


def replay(
    selector: Selector,
    full: Graph,
    authentic: Graph,
    recall: Recall,
    served: Sequence[int] | None = None,
    *,
    unmerged: tuple[Recall, Sequence[int]] | None = None,
) -> SelectionReplay:
    """Run a selector on both graphs and compare the order of what was served.

    Args:
        selector: of the store.
        full: the whole graph.
        authentic: its authenticated part, with the same numbers of nodes.
        recall: what was asked.
        served: the store's answer, best first; None where the replica's own stands for it.
        unmerged: the recall and the answer by the nodes of the authenticated graph, where merges
            that do not count have made other nodes of them.

    Raises:
        ValueError: the selector cannot rank one of the graphs.
    """
    whole = selector.rank(full, recall)
    given = whole.items if served is None else tuple(served)
    asked, own = unmerged or (recall, given)
    alone = whole if full is authentic else selector.rank(authentic, asked)
    places = tuple(map(partial(_place, whole, alone), count(), given, own))
    return SelectionReplay(given, alone.items, is_order(given, whole), places)


def _place(whole: Ranking, alone: Ranking, at: int, item: int, own: int) -> int | None:
    """Return the authenticated place of the item that was served at a place."""
    found = alone.place(own)
    if found is None or alone.selects(own) or not whole.selects(item):
        return found
    # Only structure that does not count leads to it: behind all others, as they were served.
    return len(alone.items) + at


def is_order(served: Sequence[int], ranking: Ranking) -> bool:
    """Return whether an answer is what a selector returned; equal scores may change places."""
    if len(served) != len(ranking.items) or len(set(served)) != len(served):
        return False
    ties = ranking.ties or tuple(range(len(ranking.items)))
    return all(ranking.place(item) == ties[place] for place, item in enumerate(served))


def standing(places: Sequence[int | None]) -> tuple[bool, ...]:
    """Return True for each served item whose authenticated place is at least as good."""
    return tuple(found is not None and found <= at for at, found in enumerate(places))
