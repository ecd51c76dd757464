"""Attacks of an unauthenticated writer on a memory's structure: a table of what each writes.

A writer knows the graph and asks the memory as anybody may.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from guard.extensions.graph_memory.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.extensions.graph_memory.selectors import Selector
    from lab.selection.corpora import Memory, Question

BUDGET: Final = 6
"""Edges of the primary attack."""
WRONG: Final = 4
"""Wrong items of which the oracle takes the best."""
DEPTH: Final = 12
"""Items that an attacker looks at."""
Edge = tuple[int, int, float]


@dataclass(slots=True)
class Writes:
    """The nodes and edges that an attack writes."""

    edges: list[Edge] = field(default_factory=list)
    """Between nodes that exist, or with the one that ``passages`` adds."""
    passages: int = 0
    """New items, numbered from the graph's size on: text that can be recalled, and is untrusted."""
    merges: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of entities made one."""
    forged: bool = False
    """True if the writes bear the label of an authenticated channel."""


@dataclass(frozen=True, slots=True)
class Target:
    """Knowledge of an attacker about one recall."""

    memory: Memory
    question: Question
    ranked: tuple[int, ...]
    """The clean order, more than is served."""
    selector: Selector

    @property
    def seeds(self) -> list[int]:
        """The query's entities, rarest first."""
        items = set(self.memory.graph.items.tolist())
        return self._by_rarity([seed for seed in self.question.recall.seeds if seed not in items])

    def entities(self, item: int) -> list[int]:
        """Return the entities of an item, rarest first."""
        return self._by_rarity(self.memory.entities(item))

    def _by_rarity(self, nodes: list[int]) -> list[int]:
        return sorted(nodes, key=lambda node: (self.memory.spread[node], node))


def attacked(graph: Graph, writes: Writes) -> Graph:
    """Return a graph after some writes."""
    if writes.passages:
        fresh = np.arange(graph.size, graph.size + writes.passages, dtype=np.int64)
        items = np.concatenate([graph.items, fresh])
        graph = Graph(graph.size + writes.passages, items, graph.source, graph.target, graph.weight)
    if writes.merges:
        source, target = graph.source.copy(), graph.target.copy()
        for kept, gone in writes.merges:
            source[source == gone] = kept
            target[target == gone] = kept
        real = source != target
        graph = Graph(graph.size, graph.items, source[real], target[real], graph.weight[real])
    if not writes.edges:
        return graph
    one, two, weight = zip(*writes.edges, strict=True)
    return graph.joined(one, two, weight)


def oracle(target: Target, make: Callable[[Target, int], Writes]) -> Writes:
    """Return what harms most of the attacks on four wrong items: it has read the evidence."""
    evidence = target.question.evidence
    wrong = [item for item in target.ranked if item not in evidence][:WRONG]
    tried = [make(target, item) for item in wrong]
    for writes in tried:
        graph = attacked(target.memory.graph, writes)
        ranking = target.selector.rank(graph, target.question.recall)
        if ranking.items and ranking.items[0] not in evidence:
            return writes
    return tried[0] if tried else Writes()


def shuffled(target: Target, writes: Writes, rng: np.random.Generator) -> Writes:
    """Return an attack's edges with their far ends at entities that have nothing to do with it."""
    near = {two for _, two, _ in writes.edges} | target.question.recall.seeds.keys()
    others = [node for node in target.memory.all_entities.tolist() if node not in near]
    if not others:
        return Writes()
    drawn = rng.choice(others, len(writes.edges))
    edges = [(e[0], int(two), e[2]) for e, two in zip(writes.edges, drawn, strict=True)]
    return Writes(edges)


class Arm(NamedTuple):
    """The things that one attack writes towards a wrong item."""

    edges: int = 0
    """Edges from the query's entities to the item's, its rarest entity first."""
    weight: float = 1.0
    times: int = 1
    """Number of times that the edges are written, over many sessions."""
    straight: int = 0
    """Edges from the query's entities to the item itself."""
    passage: bool = False
    """True if a text names the query's entities and the item's."""
    synonyms: bool = False
    """True if that text has aliases of the query's entities, which the store joins."""
    merge: bool = False
    """True if the rarest entity of the item is made one with the query's rarest."""
    forged: bool = False
    """True if the label of an authenticated channel is forged."""


PRIMARY: Final = Arm(edges=BUDGET)
BUDGETS: Final = (1, 2, 4, 8, 16, 32)
ARMS: Final = {
    "passages": Arm(straight=BUDGET),
    "weight_5": Arm(edges=BUDGET, weight=5.0),
    "weight_100": Arm(edges=BUDGET, weight=100.0),
    **{f"budget_{budget}": Arm(edges=budget) for budget in BUDGETS},
    **{f"accumulated_{budget}": Arm(edges=1, times=budget) for budget in BUDGETS},
    "merge_link": Arm(merge=True),
    "inject_only": Arm(passage=True),
    "seed_alias": Arm(passage=True, synonyms=True),
    "content_only": Arm(passage=True, edges=BUDGET),
    "adaptive_forged": Arm(passage=True, edges=BUDGET, forged=True),
    "launder_text": Arm(passage=True, merge=True),
    "launder_adaptive": Arm(edges=3, weight=0.8),
}
"""Attacks beside the primary one; the best of four wrong items is taken."""


def made(arm: Arm) -> Callable[[Target, int], Writes]:
    """Return the function that makes an arm's writes towards an item."""
    return partial(_make, arm)


def _make(arm: Arm, target: Target, item: int) -> Writes:
    seeds, entities = target.seeds, target.entities(item)
    edges = [(one, two, arm.weight) for one, two in _pairs(seeds, entities, arm.edges)] * arm.times
    edges += [(seeds[at % len(seeds)], item, 1.0) for at in range(arm.straight)]
    if arm.passage:
        number = target.memory.graph.size
        named = dict.fromkeys([*seeds, *entities[:BUDGET]])
        edges += [(number, node, 1.0) for node in named]
        edges += [(number, seed, 1.0) for seed in seeds * 2 if arm.synonyms]
    merges = _pairs(seeds[:1], entities, 1) if arm.merge else []
    return Writes(edges, int(arm.passage), merges, arm.forged)


def _pairs(seeds: list[int], entities: Sequence[int], budget: int) -> list[tuple[int, int]]:
    found = [(seed, one) for one in entities for seed in seeds if seed != one]
    return (found * (1 + budget // max(1, len(found))))[:budget]
