"""Attacks of an unauthenticated writer on a memory's structure, one function per attack.

An attack returns what it writes; a writer knows the graph and asks the memory as anybody may.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.extensions.graph_memory.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
    """Between nodes that exist, or with those that ``passages`` adds."""
    passages: int = 0
    """New items, numbered from the graph's size on: text that can be recalled, and is untrusted."""
    merges: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of entities made one."""
    forged: bool = False
    """True if the writes bear the label of an authenticated channel."""
    has_text: bool = False
    """True if the structure follows from a text that was stored: a rebuild makes it again."""


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
        spread = self.memory.spread
        seeds = np.fromiter(self.question.recall.seeds, np.int64)
        entities: list[int] = seeds[~np.isin(seeds, self.memory.graph.items)].tolist()
        return sorted(entities, key=lambda node: (spread[node], node))

    def entities(self, item: int) -> list[int]:
        """Return the entities of an item, rarest first."""
        spread = self.memory.spread
        return sorted(self.memory.entities(item), key=lambda node: (spread[node], node))


def attacked(graph: Graph, writes: Writes) -> Graph:
    """Return a graph after some writes."""
    if writes.passages:
        fresh = np.arange(graph.size, graph.size + writes.passages, dtype=np.int64)
        items = np.concatenate([graph.items, fresh])
        graph = Graph(graph.size + writes.passages, items, graph.source, graph.target, graph.weight)
    if writes.merges:
        graph = merged(graph, writes.merges)
    if not writes.edges:
        return graph
    one, two, weight = zip(*writes.edges, strict=True)
    return graph.joined(one, two, weight)


def merged(graph: Graph, pairs: Sequence[tuple[int, int]]) -> Graph:
    """Return a graph in which the edges of the second of each pair are the first's too."""
    source, target = graph.source.copy(), graph.target.copy()
    for kept, gone in pairs:
        source[source == gone] = kept
        target[target == gone] = kept
    real = source != target
    return Graph(graph.size, graph.items, source[real], target[real], graph.weight[real])


def pairs(seeds: Iterable[int], entities: Sequence[int], budget: int) -> list[tuple[int, int]]:
    """Return edges from the query's entities to an item's, its rarest entity first."""
    seeds = list(seeds)
    found = [(seed, one) for one in entities for seed in seeds if seed != one]
    return (found * (1 + budget // max(1, len(found))))[:budget] if found else []


def towards(target: Target, item: int, budget: int = BUDGET, weight: float = 1.0) -> Writes:
    """Return edges from the query's entities to the rarest of one item."""
    found = pairs(target.seeds, target.entities(item), budget)
    return Writes([(one, two, weight) for one, two in found])


def oracle(target: Target, make: Callable[[int], Writes]) -> Writes:
    """Return what harms most of the attacks on four wrong items: it has read the evidence."""
    evidence = target.question.evidence
    wrong = [item for item in target.ranked if item not in evidence][:WRONG]
    tried = [make(item) for item in wrong]
    for writes in tried:
        graph = attacked(target.memory.graph, writes)
        ranking = target.selector.rank(graph, target.question.recall)
        if ranking.items and ranking.items[0] not in evidence:
            return writes
    return tried[0] if tried else Writes()


def agnostic(target: Target, make: Callable[[int], Writes]) -> Writes:
    """Return the attack on the item that is now second; the evidence is never read."""
    return make(target.ranked[1]) if len(target.ranked) > 1 else Writes()


def shuffled(target: Target, writes: Writes, rng: np.random.Generator) -> Writes:
    """Return an attack's edges with their far ends at entities that have nothing to do with it."""
    near = {two for _, two, _ in writes.edges} | target.question.recall.seeds.keys()
    others = [node for node in target.memory.all_entities.tolist() if node not in near]
    if not others:
        return Writes()
    drawn = rng.choice(others, len(writes.edges))
    edges = [(e[0], int(two), e[2]) for e, two in zip(writes.edges, drawn, strict=True)]
    return Writes(edges)


# --- the arms -----------------------------------------------------------------------------------


def _passage(target: Target, item: int) -> tuple[int, list[Edge]]:
    """Return the number of a new passage on the query and a wrong item, and its own edges."""
    number = target.memory.graph.size
    mentioned = dict.fromkeys([*target.seeds, *target.entities(item)[:BUDGET]])
    return number, [(number, node, 1.0) for node in mentioned]


def to_passages(target: Target, item: int) -> Writes:
    """Edges from the query's entities straight to a wrong item."""
    seeds = target.seeds
    return Writes([(seeds[at % len(seeds)], item, 1.0) for at in range(BUDGET)])


def merge_link(target: Target, item: int) -> Writes:
    """The rarest entity of a wrong item is made one with the query's rarest."""
    found = pairs(target.seeds[:1], target.entities(item), 1)
    return Writes(merges=found)


def edge_write(target: Target, item: int) -> Writes:
    """Two edges: what a careless write may bring."""
    return towards(target, item, 2)


def inject(target: Target, item: int) -> Writes:
    """A passage that names the query's entities and those of a wrong item; nothing else."""
    _, edges = _passage(target, item)
    return Writes(edges, passages=1, has_text=True)


def content_only(target: Target, item: int) -> Writes:
    """A passage, and the facts that extraction makes of it."""
    _, edges = _passage(target, item)
    return Writes([*edges, *towards(target, item).edges], passages=1, has_text=True)


def seed_alias(target: Target, item: int) -> Writes:
    """A passage with aliases of the query's entities: the store joins them as synonyms."""
    number, edges = _passage(target, item)
    synonyms = [(number, seed, 1.0) for seed in target.seeds]
    return Writes([*edges, *synonyms, *synonyms], passages=1, has_text=True)


def tool_import(target: Target, item: int) -> Writes:
    """A tool result's words become relations between neighbouring entities; no text is kept."""
    words = [
        word for pair in zip(target.seeds, target.entities(item), strict=False) for word in pair
    ]
    joined = [(one, two) for one, two in pairwise(words) if one != two]
    return Writes([(one, two, 1.0) for one, two in joined[:BUDGET]])


def forge(target: Target, item: int) -> Writes:
    """A passage that carries the six edges, with the label of an authenticated channel forged."""
    _, edges = _passage(target, item)
    return Writes([*edges, *towards(target, item).edges], 1, forged=True, has_text=True)


def launder_text(target: Target, item: int) -> Writes:
    """A passage spells a wrong item's entity like the query's: the store merges the two."""
    _, edges = _passage(target, item)
    return Writes(edges, 1, merges=pairs(target.seeds[:1], target.entities(item), 1), has_text=True)


def launder_adaptive(target: Target, item: int) -> Writes:
    """Synonym edges between authenticated entities at the weight of a similarity."""
    return towards(target, item, 3, 0.8)


def by_peers(target: Target, _: int) -> Writes:
    """Three writers, two edges each, each towards another wrong item."""
    wrong = target.ranked[1:WRONG]
    return Writes([edge for item in wrong for edge in towards(target, item, 2).edges])


BUDGETS: Final = (1, 2, 4, 8, 16, 32)
WEIGHTS: Final = (5.0, 100.0)


def arms() -> dict[str, Callable[[Target, int], Writes]]:
    """Return the arms beside the primary one, by name; the best of four wrong items is taken."""
    found: dict[str, Callable[[Target, int], Writes]] = {"passages": to_passages}
    for weight in WEIGHTS:
        found[f"weight_{weight:.0f}"] = _sized(BUDGET, weight)
    for budget in BUDGETS:
        found[f"budget_{budget}"] = _sized(budget, 1.0)
        found[f"accumulated_{budget}"] = _repeated(budget)
    found |= {
        "merge_link": merge_link,
        "edge_write": edge_write,
        "collusion": by_peers,
        "inject_only": inject,
        "seed_alias": seed_alias,
        "tool_import": tool_import,
        "content_only": content_only,
        "adaptive_endpoints": _sized(BUDGET, 1.0),
        "adaptive_low_volume": _sized(1, 1.0),
        "adaptive_forged": forge,
        "launder_text": launder_text,
        "launder_structure": merge_link,
        "launder_adaptive": launder_adaptive,
    }
    return found


def _sized(budget: int, weight: float) -> Callable[[Target, int], Writes]:
    return lambda target, item: towards(target, item, budget, weight)


def _repeated(times: int) -> Callable[[Target, int], Writes]:
    """Return an attack that writes one edge again and again, over many sessions."""
    return lambda target, item: Writes(towards(target, item, 1).edges * times)
