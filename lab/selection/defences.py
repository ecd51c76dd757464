"""The item that an agent acts on: without a defence, with label checks, with the guard.

A defence returns the item that is acted on, or None where it asks or refuses.  Other defences of
the literature were compared once (docs/evidence/history.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.extensions.graph_memory.graph import Graph
from lab.selection.attacks import Writes, attacked

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.extensions.graph_memory.replay import SelectionReplay
    from lab.selection.corpora import Memory, Question


@dataclass(frozen=True, slots=True)
class Case:
    """One selection after an attack, or without one."""

    memory: Memory
    question: Question
    writes: Writes
    found: SelectionReplay

    @property
    def served(self) -> tuple[int, ...]:
        """Items that the memory returned, best first."""
        return self.found.served

    def is_authentic(self, item: int) -> bool:
        """Return whether an item's own text is authenticated: everything but what was added."""
        return item < self.memory.graph.size


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


def ours(case: Case) -> int | None:
    """The guard: the first item, if the replay vouches for its place and its label for its text."""
    return justification(case) if case.found.vouches(0) else None


DEFENCES: Final[dict[str, Callable[[Case], int | None]]] = {
    "none": none,
    "justification_ifc": justification,
    "context_ifc": context,
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
