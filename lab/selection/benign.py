"""The cost of the defence without an attack: untrusted structure that is correct."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.core.jsonpath import compile_path
from guard.core.mappings import RankedMapping
from guard.extensions.graph_memory.answers import annotated, read_ranked, reordered
from guard.extensions.graph_memory.comparison import Comparison, note_on
from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.replay import SelectionReplay, replay
from lab.selection.attacks import Target, attacked, oracle, towards
from lab.selection.trials import SEEDS

if TYPE_CHECKING:
    from guard.core.model import Json
    from guard.extensions.graph_memory.selectors import Selector
    from lab.selection.corpora import Memory

ANSWER: Final = RankedMapping(
    lambda _: True, compile_path("$.found[*]"), compile_path("$.id"), seeds=None
)
"""Mapping of the items of an answer."""
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
    through_untrusted: dict[str, list[float]] = field(default_factory=dict)
    """Result of questions that are right only through untrusted facts: 1 where an annotated read
    is."""
    advisory_harm: dict[str, list[float]] = field(default_factory=dict)
    """Result of the same questions: 1 where an annotated read is wrong once an attack is in."""

    def run(self, memory: Memory, selector: Selector) -> None:
        """Ask every question of a memory, with some of its facts untrusted."""
        asked: dict[str, list[float]] = {}
        for seed in SEEDS if memory.questions else ():
            authentic = without_facts(memory, UNTRUSTED, seed)
            for question in memory.questions:
                found = replay(selector, memory.graph, authentic, question.recall)
                asks = float(not found.vouches(0))
                asked.setdefault(question.id, []).append(asks)
                if not found.served or found.served[0] not in question.evidence:
                    continue
                if asks:
                    target = Target(
                        memory, question, self._deep(selector, memory, question.recall), selector
                    )
                    self._advisory(target, authentic, found)
        self.asked += [float(np.mean(rows)) for rows in asked.values()]

    def table(self) -> dict[str, Json]:
        """Return the figures; ``n`` is of questions where one has several draws."""
        return {
            name: {"mean": float(np.mean(by_question(rows))), "n": len(rows)}
            for name, rows in ((one.name, getattr(self, one.name)) for one in fields(self))
            if rows
        }

    @staticmethod
    def _deep(selector: Selector, memory: Memory, recall: Recall) -> tuple[int, ...]:
        deep = Recall(recall.seeds, recall.lists, recall.without, 12)
        return selector.rank(memory.graph, deep).items

    def _advisory(self, target: Target, authentic: Graph, clean: SelectionReplay) -> None:
        """Judge a question that is right, and only through structure that is untrusted."""
        question = target.question
        writes = oracle(target, lambda item: towards(target, item))
        full = attacked(target.memory.graph, writes)
        found = replay(target.selector, full, authentic, question.recall)
        wrong = released(found, substituted=False) not in question.evidence
        judged = (
            (self.through_untrusted, released(clean, substituted=False) in question.evidence),
            (self.advisory_harm, wrong),
        )
        for rows, hit in judged:
            rows.setdefault(question.id, []).append(float(hit))


def by_question(rows: list[float] | dict[str, list[float]]) -> list[float]:
    """Return one figure a question: the mean of its draws."""
    return [float(np.mean(row)) for row in rows.values()] if isinstance(rows, dict) else rows


def released(found: SelectionReplay, *, substituted: bool) -> int | None:
    """Return the first item of an answer as an agent reads it: annotated, or put into order.

    The answer is a result of MCP, and is changed as the guard changes one.
    """
    items = [{"id": str(item)} for item in found.served]
    content: Json = {"content": [{"type": "text", "text": json.dumps({"found": items})}]}
    compared = Comparison(
        tuple(map(str, found.served)), tuple(map(str, found.authentic)), found.places
    )
    if substituted and compared.order:
        content = reordered(content, ANSWER, compared.order)
    told = compared.document()
    noted = annotated(content, note_on(told, substituted=substituted), told)
    if substituted and not compared.order:
        return None
    answer, *_ = noted["content"]
    return int(read_ranked(ANSWER, answer["text"]).names[0])
