"""Attacks on the selections of one memory, without a defence and with the guard's, and intervals.

Other defences, communities and pools were measured once (docs/evidence/history.md).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.replay import replay
from lab.selection.attacks import (
    DEPTH,
    Target,
    Writes,
    agnostic,
    arms,
    attacked,
    oracle,
    shuffled,
    towards,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.model import Json
    from guard.extensions.graph_memory.replay import SelectionReplay
    from guard.extensions.graph_memory.selectors import Selector
    from lab.selection.corpora import Memory, Question

SEEDS: Final = (0, 1, 2)
DEFENCES: Final = {"none": False, "ours": True}
"""True where the guard judges."""
RESAMPLES: Final = 2000
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Case:
    """One selection after an attack, or without one."""

    memory: Memory
    question: Question
    found: SelectionReplay

    @property
    def served(self) -> tuple[int, ...]:
        """Items that the memory returned, best first."""
        return self.found.served

    def is_authentic(self, item: int) -> bool:
        """Return whether an item's own text is authenticated: everything but what was added."""
        return item < self.memory.graph.size

    def chosen(self, *, guarded: bool) -> int | None:
        """Return the item that is acted on: the first; guarded, one that place and text vouch for.

        None where the guard asks or refuses.
        """
        first = self.served[0] if self.served else None
        if first is None or not guarded:
            return first
        return first if self.found.vouches(0) and self.is_authentic(first) else None


@dataclass(slots=True)
class Tally:
    """The outcomes of one arm by question, as means over the seeds."""

    harm: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {name: defaultdict(list) for name in DEFENCES}
    )
    """By defence and question, 1 where the item acted on is no evidence."""
    blind: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    visible: list[float] = field(default_factory=list)
    """Of what the guard lets through: 1 where the added text is returned."""

    def rate(self, defence: str) -> float | None:
        """Return the share of questions, each weighing alike, that end wrong."""
        rows = self.harm[defence].values()
        return float(np.mean([np.mean(row) for row in rows])) if rows else None

    def add(self, case: Case) -> None:
        """Count one selection under every defence."""
        question, evidence = case.question.id, case.question.evidence
        served = case.served
        wrong = not served or served[0] not in evidence
        hidden = all(map(case.is_authentic, served))
        self.blind[question].append(float(wrong and hidden))
        for name, guarded in DEFENCES.items():
            chosen = case.chosen(guarded=guarded)
            harmed = chosen is not None and chosen not in evidence
            self.harm[name][question].append(float(harmed))
            if guarded and harmed:
                self.visible.append(float(not hidden))

    def table(self) -> dict[str, Json]:
        """Return the figures of the arm."""
        return {
            "harm": {name: self.rate(name) for name in DEFENCES},
            "blind": sum(map(sum, self.blind.values())),
        }


def clean_correct(memory: Memory, selector: Selector) -> Iterator[tuple[Question, tuple[int, ...]]]:
    """Yield the questions whose first item is evidence, with the clean order to ``DEPTH``."""
    for question in memory.questions:
        recall = question.recall
        deep = Recall(recall.seeds, recall.without, DEPTH)
        ranked = selector.rank(memory.graph, deep).items
        if ranked and ranked[0] in question.evidence:
            yield question, ranked


def judged(memory: Memory, question: Question, selector: Selector, writes: Writes) -> Case:
    """Return a selection after some writes, replayed."""
    full = authentic = attacked(memory.graph, writes)
    if not writes.forged:
        # Text of strangers is there to be recalled, and is no part of the authenticated graph.
        old = memory.graph
        authentic = Graph(full.size, old.items, old.source, old.target, old.weight)
        authentic = authentic if full.size > old.size else old
    return Case(memory, question, replay(selector, full, authentic, question.recall))


class Trials:
    """The arms on any number of memories, one selector.

    Args:
        selector: attacked.
        further: whether to run the arms beside the primary one.
    """

    def __init__(self, selector: Selector, *, further: bool) -> None:
        self._selector, self._further = selector, further
        self.tallies: dict[str, Tally] = defaultdict(Tally)
        self.over_block: list[float] = []
        self.rows = 0

    def run(self, memory: Memory) -> None:
        """Attack every clean-correct question of a memory."""
        for question, ranked in clean_correct(memory, self._selector):
            target = Target(memory, question, ranked, self._selector)
            self.rows += 1
            self._clean(target)
            self._primary(target)
            if self._further:
                for name, make in arms().items():
                    case = self._judged(target, oracle(target, partial(make, target)))
                    self.tallies[name].add(case)

    def _judged(self, target: Target, writes: Writes) -> Case:
        return judged(target.memory, target.question, self._selector, writes)

    def _clean(self, target: Target) -> None:
        case = self._judged(target, Writes())
        self.tallies["clean"].add(case)
        self.over_block.append(float(case.chosen(guarded=True) is None))

    def _primary(self, target: Target) -> None:
        chosen = {
            "oracle": oracle(target, lambda item: towards(target, item)),
            "agnostic": agnostic(target, lambda item: towards(target, item)),
        }
        for name, writes in chosen.items():
            case = self._judged(target, writes)
            self.tallies[name].add(case)
            for seed in SEEDS:
                rng = np.random.default_rng([seed, self.rows])
                self.tallies[f"shuffled_{name}"].add(
                    self._judged(target, shuffled(target, writes, rng))
                )

    def paired(self, arm: str) -> tuple[float, Interval]:
        """Return the blind rate of an arm less that of its shuffled twin, with its interval."""
        with_, without = self.tallies[arm].blind, self.tallies[f"shuffled_{arm}"].blind
        return clustered([float(np.mean(with_[q]) - np.mean(without[q])) for q in with_])


def clustered(rows: Sequence[float]) -> tuple[float, Interval]:
    """Return the mean of one figure per question and its 95 % percentile bootstrap interval."""
    values = np.asarray(rows, dtype=np.float64)
    if not len(values):
        return 0.0, (0.0, 0.0)
    rng = np.random.default_rng(0)
    means = [values[rng.integers(0, len(values), len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(values.mean()), (float(low), float(high))
