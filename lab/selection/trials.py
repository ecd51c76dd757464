"""Attacks on the selections of one memory, with every defence, and their intervals.

A defence returns the item that is acted on, or None where it asks or refuses.  Other defences of
the literature were compared once (docs/evidence/history.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from guard.extensions.graph_memory.graph import Graph
from guard.extensions.graph_memory.replay import SelectionReplay, replay, standing
from guard.extensions.graph_memory.selectors.base import CommunitySelector, centre_of
from lab.selection.attacks import (
    ARMS,
    BUDGET,
    DEPTH,
    PRIMARY,
    WRONG,
    Target,
    Writes,
    attacked,
    made,
    oracle,
    shuffled,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guard.extensions.graph_memory.selectors import Selector
    from lab.selection.corpora import Memory, Question

SEEDS: Final = (0, 1, 2)
RECALL: Final = 0.6
"""Share of an attack's edges whose writer is known to be untrusted."""
MANY: Final = 99
"""Edges of the attack on selectors that six do not move."""
Rows = dict[str, list[float]]
"""Figures by question, one for each draw."""


class Case(NamedTuple):
    """One selection after an attack, or without one."""

    question: Question
    found: SelectionReplay
    size: int
    """Nodes before the attack: the text of what is below this is authenticated."""

    @property
    def hides(self) -> bool:
        """True if no added text is returned."""
        return all(item < self.size for item in self.found.served)

    def chosen(self) -> dict[str, int | None]:
        """Return the item that each defence acts on.

        Information flow of what is used needs an authenticated first item; of what is read, every
        item.  The guard needs a vouched place besides.
        """
        first = self.found.served[0] if self.found.served else None
        used = first if first is not None and first < self.size else None
        return {
            "none": first,
            "justification_ifc": used,
            "context_ifc": first if self.hides else None,
            "ours": used if self.found.vouches(0) else None,
        }


@dataclass(slots=True)
class Tally:
    """The outcomes of one arm by question."""

    harm: dict[str, Rows] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    """By defence and question, 1 where the item acted on is not evidence."""
    blind: Rows = field(default_factory=lambda: defaultdict(list))
    visible: list[float] = field(default_factory=list)
    """Result of attacks that the guard lets through: 1 where the added text is returned."""

    def add(self, case: Case) -> None:
        """Count one selection under every defence."""
        question, evidence, served = case.question.id, case.question.evidence, case.found.served
        wrong = not served or served[0] not in evidence
        self.blind[question].append(float(wrong and case.hides))
        for name, item in case.chosen().items():
            harmed = item is not None and item not in evidence
            self.harm[name][question].append(float(harmed))
            if name == "ours" and harmed:
                self.visible.append(float(not case.hides))


def clean_correct(memory: Memory, selector: Selector) -> Iterator[tuple[Question, tuple[int, ...]]]:
    """Yield the questions whose first item is evidence, with the clean order to ``DEPTH``."""
    for question in memory.questions:
        ranked = selector.rank(memory.graph, replace(question.recall, top=DEPTH)).items
        if ranked and ranked[0] in question.evidence:
            yield question, ranked


def judged(memory: Memory, question: Question, selector: Selector, writes: Writes) -> Case:
    """Return a selection after some writes, replayed on the authenticated part of the graph."""
    graph = memory.graph
    full = attacked(graph, writes)
    authentic = full
    if not writes.forged:
        # Text of strangers is there to be recalled, and is no part of the authenticated graph.
        authentic = Graph(full.size, graph.items, graph.source, graph.target, graph.weight)
    found = replay(selector, full, authentic, question.recall)
    return Case(question, found, graph.size)


class Trials:
    """The arms on any number of memories, one selector.

    Args:
        selector: attacked.
    """

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self.tallies: dict[str, Tally] = defaultdict(Tally)
        self.part_known: Rows = defaultdict(list)
        self.over_block: list[float] = []
        self.rows = 0

    def run(self, memory: Memory) -> None:
        """Attack every clean-correct question of a memory."""
        for question, ranked in clean_correct(memory, self._selector):
            target = Target(memory, question, ranked, self._selector)
            self.rows += 1
            clean = self._add("clean", target, Writes())
            self.over_block.append(float(clean.chosen()["ours"] is None))
            self._primary(target)
            for name, arm in ARMS.items():
                self._add(name, target, oracle(target, made(arm)))

    def _add(self, name: str, target: Target, writes: Writes) -> Case:
        case = judged(target.memory, target.question, self._selector, writes)
        self.tallies[name].add(case)
        return case

    def _primary(self, target: Target) -> None:
        make = made(PRIMARY)
        # The agnostic attacker takes the item that is now second; the evidence is never read.
        chosen = {
            "oracle": oracle(target, make),
            "agnostic": make(target, target.ranked[1]) if target.ranked[1:] else Writes(),
        }
        for name, writes in chosen.items():
            case = self._add(name, target, writes)
            for seed in SEEDS:
                rng = np.random.default_rng([seed, self.rows])
                self._add(f"shuffled_{name}", target, shuffled(target, writes, rng))
                if name == "oracle":
                    self._partly_known(target.memory, case, writes, rng)

    def _partly_known(
        self, memory: Memory, case: Case, writes: Writes, rng: np.random.Generator
    ) -> None:
        """Judge the attack with some of its edges taken for authenticated."""
        asked, served = case.question, case.found.served
        drawn = rng.random(len(writes.edges))
        missed = [edge for edge, at in zip(writes.edges, drawn, strict=True) if at >= RECALL]
        alone = self._selector.rank(attacked(memory.graph, Writes(missed)), asked.recall)
        acts = standing(tuple(map(alone.place, served)))[0]
        self.part_known[asked.id].append(float(acts and served[0] not in asked.evidence))

    def paired(self, arm: str) -> list[float]:
        """Return by question the blind rate of an arm less that of its shuffled twin."""
        with_, without = self.tallies[arm].blind, self.tallies[f"shuffled_{arm}"].blind
        return [float(np.mean(with_[q]) - np.mean(without[q])) for q in with_]


def by_question(rows: Rows) -> list[float]:
    """Return one figure a question: the mean of its draws."""
    return [float(np.mean(row)) for row in rows.values()]


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

    def together(selector: CommunitySelector, writes: Writes) -> bool:
        community = selector.communities(attacked(memory.graph, writes))
        return any(community[item] == community[rarest] for item in question.evidence)

    others = memory.all_entities[memory.all_entities != rarest]
    for seed in SEEDS:
        selector = make(seed)
        if not together(selector, Writes()):
            if seed == SEEDS[0]:
                return
            continue
        attacks = _other_communities(memory, selector, rarest)
        parts = any(not together(selector, writes) for writes in attacks)
        drawn = np.random.default_rng([seed, row]).choice(others, BUDGET, replace=False)
        # Both or neither: on some graphs a selector does not end.
        yield float(parts) - (not together(selector, _star(rarest, drawn)))


def _centred(memory: Memory, question: Question) -> Question:
    """Return a question whose first seed is its rarest entity: the centre of its search."""
    rarest = min(question.recall.seeds, key=lambda node: (memory.spread[node], node))
    weights = {node: 1.0 + (node == rarest) for node in question.recall.seeds}
    return question._replace(recall=replace(question.recall, seeds=weights))


def _other_communities(
    memory: Memory, selector: CommunitySelector, rarest: int
) -> Iterator[Writes]:
    """Yield six edges each from an entity to the strongest entities of another community."""
    community = selector.communities(memory.graph)
    entities = memory.all_entities
    sizes = Counter(community[entities].tolist())
    del sizes[community[rarest]]
    for other, _ in sizes.most_common(WRONG):
        members = entities[community[entities] == other]
        strongest = np.argsort(-memory.graph.strength[members], kind="stable")[:BUDGET]
        yield _star(rarest, members[strongest])


def _star(centre: int, nodes: np.ndarray) -> Writes:
    return Writes([(centre, int(node), 1.0) for node in nodes])


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
        for edges in ([], *attacks):
            served = judged(memory, question, selector, Writes(edges)).found.served
            if served[0] not in question.evidence:
                break
        yield float(served[0] not in question.evidence), sum(item not in pool for item in served)


# --- structure that is untrusted and right -------------------------------------------------------

UNTRUSTED: Final = 0.3
"""Share of the facts that nobody authenticated has written."""


@dataclass(slots=True)
class Benign:
    """Recalls over a graph some of whose facts are untrusted.

    An annotated answer keeps its order, so an agent that reads it acts on the first item served.
    """

    asked: Rows = field(default_factory=lambda: defaultdict(list))
    useful: Rows = field(default_factory=lambda: defaultdict(list))
    """Result of questions that are right only through untrusted facts: 1 where an annotated read
    is."""
    harmed: Rows = field(default_factory=lambda: defaultdict(list))
    """Result of the same questions: 1 where an annotated read is wrong once an attack is in."""

    def run(self, memory: Memory, selector: Selector) -> None:
        """Ask every question of a memory, with some of its facts untrusted."""
        facts = int(memory.fact.max(initial=-1)) + 1
        for seed in SEEDS if memory.questions else ():
            drawn = np.random.default_rng([seed, facts]).random(max(facts, 1)) < UNTRUSTED
            untrusted = (memory.fact >= 0) & drawn[np.maximum(memory.fact, 0)]
            authentic = memory.graph.kept(~untrusted)
            for question in memory.questions:
                found = replay(selector, memory.graph, authentic, question.recall)
                asks = not found.vouches(0)
                self.asked[question.id].append(float(asks))
                if asks and found.served and found.served[0] in question.evidence:
                    recall = replace(question.recall, top=DEPTH)
                    ranked = selector.rank(memory.graph, recall).items
                    target = Target(memory, question, ranked, selector)
                    graph = attacked(memory.graph, oracle(target, made(PRIMARY)))
                    served = replay(selector, graph, authentic, question.recall).served
                    self.useful[question.id].append(1.0)
                    self.harmed[question.id].append(float(served[0] not in question.evidence))
