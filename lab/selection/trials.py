"""Attacks on the selections of one memory, with every defence, and their intervals.

A defence returns the item that is acted on, or None where it asks or refuses.  Other defences of
the literature were compared once (docs/evidence/history.md).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.core.jsonpath import compile_path
from guard.core.mappings import RankedMapping
from guard.extensions.graph_memory.answers import annotated, read_ranked
from guard.extensions.graph_memory.comparison import Comparison, note_on
from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.replay import SelectionReplay, replay, standing
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
        for name, defence in DEFENCES.items():
            chosen = defence(case)
            harmed = chosen is not None and chosen not in evidence
            self.harm[name][question].append(float(harmed))
            if name == "ours" and harmed:
                self.visible.append(float(not hidden))


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

    def paired(self, arm: str) -> list[float]:
        """Return by question the blind rate of an arm less that of its shuffled twin."""
        with_, without = self.tallies[arm].blind, self.tallies[f"shuffled_{arm}"].blind
        return [float(np.mean(with_[q]) - np.mean(without[q])) for q in with_]


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


def partings(
    memory: Memory, make: Callable[[int], CommunitySelector], limit: int
) -> Iterator[float]:
    """Attack communities; yield by question how much oftener an attack parts it than chance does.

    An attack parts a question where its evidence and its rarest entity end in two communities.

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
            found = list(_parted(memory, question, make, rows))
        except ValueError:
            # A graph on which the selector does not end; such an answer is not replayed.
            rows += 1
            continue
        if found:
            rows += 1
            yield float(np.mean(found))


def _parted(
    memory: Memory, question: Question, make: Callable[[int], CommunitySelector], row: int
) -> Iterator[float]:
    rarest = centre_of(_centred(memory, question).recall)

    def together(selector: CommunitySelector, graph: Graph) -> bool:
        community = selector.communities(graph)
        return any(community[item] == community[rarest] for item in question.evidence)

    others = memory.all_entities[memory.all_entities != rarest]
    for seed in SEEDS:
        selector = make(seed)
        if not together(selector, memory.graph):
            if seed == SEEDS[0]:
                return
            continue
        attacks = _other_communities(memory, selector, rarest)
        parts = any(not together(selector, attacked(memory.graph, one)) for one in attacks)
        drawn = np.random.default_rng([seed, row]).choice(others, 6, replace=False)
        random = Writes([(rarest, int(node), 1.0) for node in drawn])
        # Both or neither: on some graphs a selector does not end.
        yield float(parts) - (not together(selector, attacked(memory.graph, random)))


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


def pooled(memory: Memory, selector: Selector) -> Iterator[tuple[float, int]]:
    """Attack a selector whose candidates come from content: its centre is joined to each of them.

    Yields by clean-correct question whether it is harmed, and the items from outside the pool.
    """
    centred = replace(memory, questions=[_centred(memory, one) for one in memory.questions])
    for question, ranked in clean_correct(centred, selector):
        pool = {item for ranking in question.recall.lists for item in ranking}
        wrong = [item for item in ranked if item not in question.evidence][:WRONG]
        attacks = [[(centre_of(question.recall), item, 1.0)] * BUDGET for item in wrong]
        # Then 99 from the query's entities to all: what the paper wrote where it found no harm.
        pairs = [(seed, item, 1.0) for item in wrong for seed in question.recall.seeds]
        attacks += [(pairs * (1 + MANY // len(pairs)))[:MANY]] if pairs else []
        served = judged(memory, question, selector, Writes()).served
        for edges in attacks:
            served = judged(memory, question, selector, Writes(edges)).served
            if served[0] not in question.evidence:
                break
        yield float(served[0] not in question.evidence), sum(item not in pool for item in served)


# --- structure that is untrusted and right -------------------------------------------------------

ANSWER: Final = RankedMapping(
    lambda _: True, compile_path("$.found[*]"), compile_path("$.id"), seeds=None
)
"""Mapping of the items of an answer."""
UNTRUSTED: Final = 0.3
"""Share of the facts that nobody authenticated has written."""
Rows = dict[str, list[float]]
"""Figures by question, one for each draw."""


@dataclass(slots=True)
class Benign:
    """Recalls over a graph some of whose facts are untrusted."""

    asked: Rows = field(default_factory=lambda: defaultdict(list))
    useful: Rows = field(default_factory=lambda: defaultdict(list))
    """Result of questions that are right only through untrusted facts: 1 where an annotated read
    is."""
    harmed: Rows = field(default_factory=lambda: defaultdict(list))
    """Result of the same questions: 1 where an annotated read is wrong once an attack is in."""

    def run(self, memory: Memory, selector: Selector) -> None:
        """Ask every question of a memory, with some of its facts untrusted."""
        for seed in SEEDS if memory.questions else ():
            drawn = np.random.default_rng([seed, memory.facts]).random(memory.facts) < UNTRUSTED
            untrusted = (memory.fact >= 0) & drawn[np.maximum(memory.fact, 0)]
            authentic = memory.graph.kept(~untrusted)
            for question in memory.questions:
                found = replay(selector, memory.graph, authentic, question.recall)
                asks = not found.vouches(0)
                self.asked[question.id].append(float(asks))
                if asks and found.served and found.served[0] in question.evidence:
                    attack = self._attacked(memory, question, selector, authentic)
                    self.useful[question.id].append(float(_first(found) in question.evidence))
                    self.harmed[question.id].append(float(_first(attack) not in question.evidence))

    @staticmethod
    def _attacked(
        memory: Memory, question: Question, selector: Selector, authentic: Graph
    ) -> SelectionReplay:
        recall = question.recall
        deep = Recall(recall.seeds, recall.lists, recall.without, DEPTH)
        ranked = selector.rank(memory.graph, deep).items
        target = Target(memory, question, ranked, selector)
        writes = oracle(target, lambda item: towards(target, item))
        return replay(selector, attacked(memory.graph, writes), authentic, recall)


def by_question(rows: Rows) -> list[float]:
    """Return one figure a question: the mean of its draws."""
    return [float(np.mean(row)) for row in rows.values()]


def _first(found: SelectionReplay) -> int:
    """Return the first item of an answer as an agent reads it: annotated as the guard does it."""
    items = [{"id": str(item)} for item in found.served]
    content: Json = {"content": [{"type": "text", "text": json.dumps({"found": items})}]}
    served, authentic = tuple(map(str, found.served)), tuple(map(str, found.authentic))
    told = Comparison(served, authentic, found.places).document()
    answer, *_ = annotated(content, note_on(told, substituted=False), told)["content"]
    return int(read_ranked(ANSWER, answer["text"]).names[0])
