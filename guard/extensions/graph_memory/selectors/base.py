"""Base of the selectors: an order of items from a graph and a recall.  Pure: no I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from guard.extensions.graph_memory.graph import Graph, Ranking, Recall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np


class Selector(ABC):
    """Ranks the items of a memory for a recall.  One file in this folder is one selector."""

    name: ClassVar[str]
    """Name that policies use."""
    reads_structure: ClassVar[bool] = True
    """False where no edge can change what it returns."""
    needs: ClassVar[tuple[str, ...]] = ("scipy",)
    """Packages of the extra ``graph`` that it imports."""
    parameters: ClassVar[Mapping[str, tuple[float | str | bool, ...]]] = {}
    """Arguments of the constructor that a policy may give, with the values that a fit tries."""

    @abstractmethod
    def rank(self, graph: Graph, recall: Recall) -> Ranking:
        """Return the best ``recall.top`` items, best first.

        Raises:
            ValueError: the graph or the recall cannot be ranked: nothing to start from, or a
                weight that is not a positive number.
        """
        ...


def first(items: Iterable[int], recall: Recall) -> Ranking:
    """Return the first items of an order without those that are not ranked."""
    found: list[int] = []
    for item in items:
        if item not in recall.without:
            found.append(item)
            if len(found) == recall.top:
                break
    return Ranking(tuple(found))


def centre_of(recall: Recall) -> int:
    """Return the seed of the greatest weight, the first of equal ones.

    Raises:
        ValueError: there is none.
    """
    if not recall.seeds:
        raise ValueError("a recall has nothing to start from")
    return max(recall.seeds, key=lambda node: (recall.seeds[node], -node))


class CommunitySelector(Selector):
    """Returns the items of the community of the first seed, in the content's order.

    To find communities takes long, and holds the interpreter: the guard does it in another process.
    """

    @abstractmethod
    def membership(self, graph: Graph) -> np.ndarray:
        """Return the number of each node's community, int64 of shape (nodes,)."""
        ...

    def rank(self, graph: Graph, recall: Recall) -> Ranking:
        """Return the items of the community, those that content ranks first, then by number.

        Without the content's rankings they are equal: a community says who belongs to it.
        """
        community = self.communities(graph)
        own = community[centre_of(recall)]
        if not recall.lists:
            # How content orders them nobody can say: they are in it or not.
            items = graph.items[community[graph.items] == own].tolist()
            items = [item for item in items if item not in recall.without]
            top = items[: recall.top]
            return Ranking(tuple(top), (0,) * len(top), frozenset(items[recall.top :]))
        inside = dict.fromkeys(
            i for ranking in recall.lists for i in ranking if community[i] == own
        )
        inside |= dict.fromkeys(graph.items[community[graph.items] == own].tolist())
        return first(inside, recall)

    def communities(self, graph: Graph) -> np.ndarray:
        """Return the membership, computed once for a graph."""
        found = graph.kept_results.get(self.key)
        if found is None:
            found = graph.kept_results[self.key] = self.membership(graph)
        return found

    @property
    def key(self) -> tuple[object, ...]:
        """Key of a membership among the kept parts of a graph."""
        return type(self), *vars(self).values()
