"""Attacks on the selections of one memory, with every defence, and their intervals."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.replay import replay, standing
from guard.extensions.graph_memory.selectors.base import CommunitySelector, centre_of
from lab.selection.attacks import (
    BUDGET,
    DEPTH,
    WRONG,
    Target,
    Writes,
    agnostic,
    arms,
    attacked,
    oracle,
    shuffled,
    towards,
)
from lab.selection.defences import DEFENCES, Case, graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from guard.core.model import Json
    from guard.extensions.graph_memory.selectors import Selector
    from lab.selection.corpora import Memory, Question

SEEDS: Final = (0, 1, 2)
RESAMPLES: Final = 2000
RECALL: Final = 0.6
"""Share of an attack's edges whose writer is known to be untrusted."""
MANY: Final = 99
"""Edges of the attack on selectors that six do not move."""
Interval = tuple[float, float]


@dataclass(slots=True)
class Tally:
    """The outcomes of one arm by question, as means over the seeds."""

    harm: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """By defence and question, 1 where the item acted on is not evidence."""
    blind: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    visible: list[float] = field(default_factory=list)
    """Result of attacks that a defence against structure lets through: 1 where the added text is
    returned."""
    n: int = 0

    def rate(self, defence: str) -> float | None:
        """Return the share of questions, each weighing alike, that end wrong."""
        rows = self.harm[defence].values()
        return float(np.mean([np.mean(row) for row in rows])) if rows else None

    def add(self, case: Case) -> None:
        """Count one selection under every defence."""
        question, evidence = case.question.id, case.question.evidence
        served = case.served
        wrong = not served or served[0] not in evidence
        self.n += 1
        hidden = all(map(case.is_authentic, served))
        self.blind[question].append(float(wrong and hidden))
        for name, defence in DEFENCES.items():
            chosen = defence(case)
            harmed = chosen is not None and chosen not in evidence
            self.harm[name][question].append(float(harmed))
            if name == "ours" and harmed:
                self.visible.append(float(not hidden))

    def table(self) -> dict[str, Json]:
        """Return the figures of the arm."""
        return {
            "n": self.n,
            "harm": {name: self.rate(name) for name in DEFENCES},
            "blind": sum(map(sum, self.blind.values())),
        }


def clean_correct(memory: Memory, selector: Selector) -> Iterator[tuple[Question, tuple[int, ...]]]:
    """Yield the questions whose first item is evidence, with the clean order to ``DEPTH``."""
    for question in memory.questions:
        recall = question.recall
        deep = Recall(recall.seeds, recall.lists, recall.without, DEPTH)
        ranked = selector.rank(memory.graph, deep).items
        if ranked and ranked[0] in question.evidence:
            yield question, ranked


def judged(memory: Memory, question: Question, selector: Selector, writes: Writes) -> Case:
    """Return a selection after some writes, replayed."""
    full, authentic = graphs(memory, writes)
    found = replay(selector, full, authentic, question.recall)
    return Case(memory, question, writes, found)


class Trials:
    """The arms on any number of memories, one selector.

    Args:
        selector: attacked.
        further: whether to run the arms beside the primary one.
    """

    def __init__(self, selector: Selector, *, further: bool) -> None:
        self._selector, self._further = selector, further
        self.tallies: dict[str, Tally] = defaultdict(Tally)
        self.part_known: dict[str, list[float]] = defaultdict(list)
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
        self.over_block.append(float(DEFENCES["ours"](case) is None))

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
                if name == "oracle":
                    self._partly_known(case, rng)

    def _partly_known(self, case: Case, rng: np.random.Generator) -> None:
        """Judge the attack with some of its edges taken for authenticated."""
        graph, edges = case.memory.graph, case.writes.edges
        evidence, asked = case.question.evidence, case.question
        drawn = rng.random(len(edges))
        missed = [edge for edge, at in zip(edges, drawn, strict=True) if at >= RECALL]
        alone = self._selector.rank(attacked(graph, Writes(missed)), asked.recall)
        acts = standing(tuple(map(alone.place, case.served)))[0]
        self.part_known[asked.id].append(float(acts and case.served[0] not in evidence))

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


# --- communities ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Parted:
    """Attacks on communities: whether the evidence and the query's rarest entity part."""

    blind: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    ours: list[float] = field(default_factory=list)
    unended: int = 0
    """Graphs on which the selector did not end: such an answer is not replayed."""

    def run(
        self,
        memory: Memory,
        make: Callable[[int], CommunitySelector],
        limit: int,
    ) -> None:
        """Attack some questions of a memory.

        Args:
            memory: attacked.
            make: returns the selector for a seed.
            limit: the greatest number of questions.
        """
        rows = 0
        for question in memory.questions:
            if rows >= limit:
                return
            try:
                rows += self._one(memory, question, make, rows)
            except ValueError:
                self.unended += 1
                rows += 1

    def _one(
        self, memory: Memory, question: Question, make: Callable[[int], CommunitySelector], row: int
    ) -> bool:
        recall = _centred(memory, question).recall
        rarest = centre_of(recall)
        if not self._together(make(SEEDS[0]), memory.graph, rarest, question):
            return False
        for seed in SEEDS:
            selector = make(seed)
            if not self._together(selector, memory.graph, rarest, question):
                continue
            parting = None
            for writes in _other_communities(memory, selector, rarest):
                full = attacked(memory.graph, writes)
                if not self._together(selector, full, rarest, question):
                    parting = full
                    break
            rng = np.random.default_rng([seed, row])
            random = self._random(memory, rarest, rng)
            shuffle = attacked(memory.graph, random)
            # Both or neither: on some graphs a selector does not end.
            parted = not self._together(selector, shuffle, rarest, question)
            self.blind["attack"][question.id].append(float(parting is not None))
            self.blind["shuffled"][question.id].append(float(parted))
            if parting is not None:
                found = replay(selector, parting, memory.graph, recall)
                self.ours.append(float(found.faithful and not found.diverged))
        return True

    @staticmethod
    def _together(
        selector: CommunitySelector, graph: Graph, rarest: int, question: Question
    ) -> bool:
        community = selector.communities(graph)
        return any(community[item] == community[rarest] for item in question.evidence)

    @staticmethod
    def _random(memory: Memory, rarest: int, rng: np.random.Generator) -> Writes:
        others = memory.all_entities
        drawn = rng.choice(others[others != rarest], 6, replace=False)
        return Writes([(rarest, int(node), 1.0) for node in drawn])

    def table(self) -> dict[str, Json]:
        """Return the figures; those without a row are None."""
        rates = {
            name: [float(np.mean(row)) for row in self.blind[name].values()]
            for name in ("attack", "shuffled")
        }
        rows = len(rates["attack"])
        value, interval = self.paired() if rows else (None, None)
        return {
            "n": rows,
            "unended": self.unended,
            "harm": float(np.mean(rates["attack"])) if rows else None,
            "shuffled": float(np.mean(rates["shuffled"])) if rows else None,
            "paired": value,
            "interval": interval,
            "ours_harm": float(np.mean(self.ours)) if self.ours else None,
        }

    def paired(self) -> tuple[float, Interval]:
        """Return the rate less that of shuffled edges, with its interval."""
        with_, without = self.blind["attack"], self.blind["shuffled"]
        return clustered([float(np.mean(with_[q]) - np.mean(without[q])) for q in with_])


def _centred(memory: Memory, question: Question) -> Question:
    """Return a question whose first seed is its rarest entity: the centre of its search."""
    rarest = min(question.recall.seeds, key=lambda node: (memory.spread[node], node))
    weights = {node: 1.0 + (node == rarest) for node in question.recall.seeds}
    return replace(question, recall=replace(question.recall, seeds=weights))


def _other_communities(
    memory: Memory, selector: CommunitySelector, rarest: int
) -> Iterator[Writes]:
    """Yield six edges each from an entity to the strongest entities of another community."""
    community = selector.communities(memory.graph)
    entities = memory.all_entities
    sizes = Counter(community[entities].tolist())
    del sizes[community[rarest]]
    strength = memory.graph.strength
    for other, _ in sizes.most_common(WRONG):
        members = entities[community[entities] == other]
        best = members[np.argsort(-strength[members], kind="stable")][:6]
        yield Writes([(rarest, int(node), 1.0) for node in best])


# --- selectors over a pool that content fixes ----------------------------------------------------


@dataclass(slots=True)
class Pooled:
    """Attacks on a selector whose candidates come from content: edges from its centre to them."""

    harmed: list[float] = field(default_factory=list)
    outsiders: list[int] = field(default_factory=list)
    """By attacked answer, its items from outside what content finds."""
    ours: list[float] = field(default_factory=list)

    def table(self) -> dict[str, Json]:
        """Return the figures."""
        return {
            "n": len(self.harmed),
            "harm": sum(self.harmed),
            "outsiders": sum(self.outsiders),
            "ours_harm": sum(self.ours),
        }

    def run(self, memory: Memory, selector: Selector) -> None:
        """Attack every clean-correct question: every seed is joined to every candidate in turn."""
        centred = replace(memory, questions=[_centred(memory, one) for one in memory.questions])
        for question, ranked in clean_correct(centred, selector):
            centre = centre_of(question.recall)
            pool = {item for ranking in question.recall.lists for item in ranking}
            best = self._worst(memory, question, selector, ranked, centre)
            served = best.served
            wrong = served[0] not in question.evidence
            self.harmed.append(float(wrong))
            self.outsiders.append(sum(item not in pool for item in served))
            self.ours.append(float(wrong and best.found.vouches(0)))

    @staticmethod
    def _worst(
        memory: Memory, question: Question, selector: Selector, ranked: Iterable[int], centre: int
    ) -> Case:
        """Return the first harmful of the attacks on four wrong candidates, else the last.

        Six edges from the centre to one of them, then 99 from the query's entities to all: what the
        paper wrote where it found no harm.
        """
        wrong = [item for item in ranked if item not in question.evidence][:WRONG]
        attacks = [[(centre, item, 1.0)] * BUDGET for item in wrong]
        pairs = [(seed, item, 1.0) for item in wrong for seed in question.recall.seeds]
        if pairs:
            attacks.append((pairs * (1 + MANY // len(pairs)))[:MANY])
        case = judged(memory, question, selector, Writes())
        for edges in attacks:
            case = judged(memory, question, selector, Writes(edges))
            if case.served[0] not in question.evidence:
                break
        return case
