"""What the defence costs who attacks nothing: structure that is untrusted, and right."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from guard.graph_memory.graph import Recall
from guard.graph_memory.replay import replay
from guard.lab.selection.attacks import Target, attacked, oracle, towards
from guard.lab.selection.trials import SEEDS

if TYPE_CHECKING:
    from guard.core.model import Json
    from guard.graph_memory.graph import Graph
    from guard.graph_memory.selectors import Selector
    from guard.lab.selection.corpora import Memory

UNTRUSTED: float = 0.3
"""Share of the facts that nobody authenticated has written."""


def without_facts(memory: Memory, share: float, seed: int) -> Graph:
    """Return the graph without a random share of its facts."""
    drawn = np.random.default_rng([seed, memory.facts]).random(memory.facts) < share
    of_fact = memory.fact >= 0
    return memory.graph.kept(~(of_fact & drawn[np.maximum(memory.fact, 0)]))


@dataclass(slots=True)
class Benign:
    """Recalls over a graph some of whose facts are untrusted, by question."""

    asked: list[float] = field(default_factory=list)
    asked_right: list[float] = field(default_factory=list)
    """Of the questions whose first item is evidence alone."""
    sets_differ: list[float] = field(default_factory=list)
    through_untrusted: list[float] = field(default_factory=list)
    """Of questions that are right only through untrusted facts: 1 where an advisory read is."""
    removed: list[float] = field(default_factory=list)
    """Of the same, 1 where a blanket removal of untrusted structure is right."""
    advisory_harm: list[float] = field(default_factory=list)
    """Of the same, 1 where an advisory read is wrong once an attack is in."""
    sent_harm: list[float] = field(default_factory=list)
    """Of the same, 1 where a send would follow the attack unasked."""

    def run(self, memory: Memory, selector: Selector) -> None:
        """Ask every question of a memory, with some of its facts untrusted."""
        asked: dict[str, list[float]] = {}
        for seed in SEEDS:
            authentic = without_facts(memory, UNTRUSTED, seed)
            for question in memory.questions:
                found = replay(selector, memory.graph, authentic, question.recall)
                asks = float(not found.vouches(0))
                asked.setdefault(question.id, []).append(asks)
                self.sets_differ.append(float(set(found.served) != set(found.authentic)))
                if not found.served or found.served[0] not in question.evidence:
                    continue
                self.asked_right.append(asks)
                if asks:
                    target = Target(
                        memory, question, self._deep(selector, memory, question.recall), selector
                    )
                    self._advisory(target, authentic, found.authentic)
        self.asked += [float(np.mean(rows)) for rows in asked.values()]

    def table(self) -> dict[str, Json]:
        """Return the figures."""
        return {
            name: {"mean": float(np.mean(rows)), "n": len(rows)}
            for name, rows in asdict(self).items()
            if rows
        }

    @staticmethod
    def _deep(selector: Selector, memory: Memory, recall: Recall) -> tuple[int, ...]:
        deep = Recall(recall.seeds, recall.lists, recall.without, 12)
        return selector.rank(memory.graph, deep).items

    def _advisory(self, target: Target, authentic: Graph, alone: tuple[int, ...]) -> None:
        """Judge a question that is right, and only through structure that is untrusted."""
        evidence = target.question.evidence
        writes = oracle(target, lambda item: towards(target, item))
        full = attacked(target.memory.graph, writes)
        found = replay(target.selector, full, authentic, target.question.recall)
        wrong = found.served[0] not in evidence
        # An advisory read is served as the memory ranks it, with a note.
        self.through_untrusted.append(float(target.ranked[0] in evidence))
        self.removed.append(float(bool(alone) and alone[0] in evidence))
        self.advisory_harm.append(float(wrong))
        self.sent_harm.append(float(wrong and found.vouches(0)))
