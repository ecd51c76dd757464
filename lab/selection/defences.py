"""The item that an agent acts on under each defence, one function per defence.

A defence returns the item that is acted on, or None where it asks or refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.graph_memory.graph import Graph
from lab.selection.attacks import attacked
from lab.selection.corpora import shared_entities

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.graph_memory.replay import SelectionReplay
    from guard.graph_memory.selectors import Selector
    from lab.selection.attacks import Writes
    from lab.selection.corpora import Memory, Question

UNUSUAL: Final = 1.0
"""Weight beyond which an edge is an anomaly: no clean edge is heavier."""
PEER_TRUST: Final = 0.5
"""Trust in a writer of whom nothing is known (a Beta(1, 1) prior); in the others 1."""


@dataclass(frozen=True, slots=True)
class Case:
    """One selection after an attack, or without one."""

    memory: Memory
    question: Question
    selector: Selector
    writes: Writes
    full: Graph
    authentic: Graph
    found: SelectionReplay
    clean: tuple[int, ...]
    """The order before any attack."""

    @property
    def served(self) -> tuple[int, ...]:
        """What the memory returned."""
        return self.found.served

    def is_authentic(self, item: int) -> bool:
        """Return whether an item's own text is authenticated: everything but what was added."""
        return item < self.memory.graph.size

    def content(self) -> dict[int, float]:
        """Return how near the content of each served item is to the question."""
        spread = np.zeros(self.full.size)
        spread[: len(self.memory.spread)] = self.memory.spread
        scores = shared_entities(self.full, spread, self.question.recall.seeds)
        places = {item: at for at, item in enumerate(self.full.items.tolist())}
        return {item: float(scores[places[item]]) for item in self.served}

    def first_of(self, graph: Graph) -> int | None:
        """Return what the selector puts first on another graph."""
        if graph is self.full:
            return none(self)
        if graph is self.memory.graph:
            return next(iter(self.clean), None)
        ranking = self.selector.rank(graph, self.question.recall)
        return ranking.items[0] if ranking.items else None


def none(case: Case) -> int | None:
    """Act on the first item."""
    return case.served[0] if case.served else None


def justification(case: Case) -> int | None:
    """Information flow of what is used: the first item must be authenticated."""
    first = none(case)
    return first if first is not None and case.is_authentic(first) else None


def context(case: Case) -> int | None:
    """Information flow of what is read: every returned item must be authenticated."""
    return none(case) if all(map(case.is_authentic, case.served)) else None


def rank_aware(case: Case) -> int | None:
    """Information flow of the order: what the authenticated part puts first (the paper's)."""
    return case.found.authentic[0] if case.found.authentic else None


def trust(case: Case) -> int | None:
    """Bayesian trust in the writer of each record (B-SLM): the first by place and trust."""
    trusted = [1.0 if case.is_authentic(item) else PEER_TRUST for item in case.served]
    scores = [score / (1 + place) for place, score in enumerate(trusted)]
    return case.served[int(np.argmax(scores))] if scores else None


def consensus(case: Case) -> int | None:
    """Consensus (B-AMemGuard): a first item that shares nothing with the others is left out."""
    around = [set(case.full.neighbours(item).tolist()) for item in case.served]
    shared = [any(mine & other for other in around if other is not mine) for mine in around]
    agreeing = [item for item, has in zip(case.served, shared, strict=True) if has]
    return agreeing[0] if agreeing else none(case)


def rerank(case: Case) -> int | None:
    """Provenance rerank (B-Rerank): authenticated items first, then by content."""
    near = case.content()
    order = sorted(case.served, key=lambda item: (not case.is_authentic(item), -near[item]))
    return order[0] if order else None


def rebuild(case: Case) -> int | None:
    """Make the graph again from the stored texts: structure that no text carries is gone."""
    writes = case.writes
    return case.first_of(case.full if writes.has_text else case.memory.graph)


def weight_anomaly(case: Case) -> int | None:
    """Leave out edges heavier than any clean one."""
    usual = case.full.weight <= UNUSUAL
    return none(case) if usual.all() else case.first_of(case.full.kept(usual))


def labels_min(case: Case) -> int | None:
    """Node labels, the least of all writers: edges of a node that a stranger touched do not count.

    What it then puts first must be what was served, else it asks.
    """
    touched = {node for one, two, _ in case.writes.edges for node in (one, two)}
    touched |= {node for pair in case.writes.merges for node in pair}
    if not touched:
        return none(case)
    mask = np.zeros(case.full.size, dtype=bool)
    mask[list(touched)] = True
    near = mask[case.full.source] | mask[case.full.target]
    try:
        first = case.first_of(case.full.kept(~near))
    except ValueError:
        return None
    return first if first == none(case) else None


def labels_max(case: Case) -> int | None:
    """Node labels, the greatest of all writers: an edge between authenticated nodes counts."""
    fresh = (case.full.source >= case.memory.graph.size) | (
        case.full.target >= case.memory.graph.size
    )
    return case.first_of(case.full.kept(~fresh)) if fresh.any() else none(case)


def ours(case: Case) -> int | None:
    """The guard: the first item, if the replay vouches for its place and its label for its text."""
    first = none(case)
    if first is None or not case.is_authentic(first) or not case.found.vouches(0):
        return None
    return first


DEFENCES: Final[dict[str, Callable[[Case], int | None]]] = {
    "none": none,
    "justification_ifc": justification,
    "context_ifc": context,
    "rank_aware_ifc": rank_aware,
    "trust": trust,
    "consensus": consensus,
    "rerank": rerank,
    "rebuild": rebuild,
    "weight_anomaly": weight_anomaly,
    "node_labels_min": labels_min,
    "node_labels_max": labels_max,
    "ours": ours,
}


def graphs(memory: Memory, writes: Writes) -> tuple[Graph, Graph]:
    """Return the whole graph after some writes and its authenticated part, numbered alike."""
    full = attacked(memory.graph, writes)
    if writes.forged:
        return full, full
    graph = memory.graph
    if full.size == graph.size:
        return full, graph
    # Text of strangers is there to be recalled, and is no part of the authenticated graph.
    return full, Graph(full.size, graph.items, graph.source, graph.target, graph.weight)
