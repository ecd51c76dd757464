"""Detectors of poisoned memories on one draw of the surrogate: ours, and those of its Table 1.

Each is fitted on some scenarios and then scores any world, so that what disturbs a world after
training can be measured.  None sees the truth of what it scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.propagation.credibility import (
    RECENT,
    TASKS,
    Reading,
    Weights,
    attended,
    credibility,
    inherited,
    poison_probability,
)
from guard.propagation.hashed_text import HASHED
from lab.propagation.encoder import (
    Settings,
    linear,
    logistic,
    projection,
    train,
)
from lab.propagation.world import ACTIONS, AGENTS, SCENARIOS, Flags, Floats, Ints

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.propagation.encoder import Encoder
    from lab.propagation.world import World

    Scorer = Callable[[World, "Signals"], Floats]

WITNESSES: Final = 16
"""Memories of others that an item is compared with."""
RETRIEVED: Final = 5
"""Memories that one task acts on."""
ROUNDS: Final = 2
"""Times that agreement is weighed by the agreement of who agrees."""
TRAINED: Final = 1500
"""Items that the detectors with grids are fitted on, and as many that choose among the grid."""
DOUBTFUL: Final = 0.1
"""Share of what is learnt from, the least credible, that the encoder has as negatives."""
HALF: Final = 0.5
"""Agreement below which most of an item's witnesses contradict it."""


@dataclass(slots=True)
class Signals:
    """The signals of each memory that need no ground truth."""

    similarity: Floats
    stability: Floats
    agreement: Floats
    witnesses: Ints
    """n x 16: the evidence graph; memories of other agents that the same trigger brings up."""
    likeness: Floats
    """Of each witness; 0 where there are too few others."""
    agrees: Flags
    """Whether each witness holds the same action."""
    retrieved: Ints
    """n x 5: what a task in that state would act on, from its own scenario."""
    nearness: Floats


def signals(world: World, groups: Ints | None = None) -> Signals:
    """Return the terms of equation 1 and the evidence graph.

    Args:
        world: of the memories.
        groups: by which memories vouch for each other; left out, the domain of a task: a few
            agents of one scenario are too few to tell what is right in a state.
    """
    similarity, stability = _history(world)
    witnesses, likeness = _nearest(world, world.domains if groups is None else groups, WITNESSES)
    retrieved, nearness = _nearest(world, world.scenarios, RETRIEVED)
    agrees = world.actions[witnesses] == world.actions[:, None]
    trust = stability
    for _ in range(ROUNDS):
        weight = likeness * trust[witnesses]
        agreement = (weight * agrees).sum(axis=1) / (weight.sum(axis=1) + 1e-9)
        trust = stability * agreement
    return Signals(
        similarity, stability, agreement, witnesses, likeness, agrees, retrieved, nearness
    )


def _history(world: World) -> tuple[Floats, Floats]:
    """Return likeness with an agent's last 200 items, and how its last 100 tasks went."""
    rows = world.embeddings
    similarity, stability = np.zeros(len(rows)), np.zeros(len(rows))
    for agent in range(AGENTS):
        mine = np.flatnonzero(world.agents == agent)
        sums = np.vstack((np.zeros(HASHED), np.cumsum(rows[mine], axis=0)))
        good = np.concatenate(([0], np.cumsum(world.outcomes[mine])))
        place = np.arange(len(mine))
        begin = np.maximum(0, place - RECENT)
        known = place - begin
        means = (sums[place] - sums[begin]) / np.maximum(known, 1)[:, None]
        similarity[mine] = np.where(known > 0, (rows[mine] * means).sum(axis=1), 0.5)
        start = np.maximum(0, place + 1 - TASKS)
        stability[mine] = (good[place + 1] - good[start]) / (place + 1 - start)
    return np.clip(similarity * 2, 0, 1), stability


def _nearest(world: World, groups: Ints, count: int) -> tuple[Ints, Floats]:
    """Return the memories of other agents in the same group whose trigger is nearest.

    Who made a memory, and memories of the same agent, are no independent witnesses.
    """
    from scipy.spatial import cKDTree

    found = np.zeros((len(groups), count), dtype=np.int64)
    likeness = np.zeros((len(groups), count))
    for group in np.unique(groups):
        mine = np.flatnonzero(groups == group)
        goals = world.goals[mine]
        # Of a single neighbour the library returns no second axis.
        places = [*range(1, 1 + min(4 * count, len(mine)))]
        distance, near = cKDTree(goals).query(goals, k=places)
        other = world.agents[mine][near] != world.agents[mine][:, None]
        order = np.argsort(~other, axis=1, kind="stable")[:, :count]
        usable = np.take_along_axis(other, order, axis=1)
        away = np.take_along_axis(distance, order, axis=1) ** 2
        scale = 2 * float(np.median(away[usable])) if usable.any() else 0.0
        wide = order.shape[1]
        found[mine, :wide] = mine[np.take_along_axis(near, order, axis=1)]
        likeness[mine, :wide] = np.exp(-away / (scale + 1e-9)) * usable
    return found, likeness


def told(world: World, found: Signals) -> Floats:
    """Return the structured fields of each memory that its vector does not carry (n x 9).

    Outcome, the terms of equation 1, the same of what it was made from, and whether it repeats
    the action of that.
    """
    own = np.column_stack(
        (world.outcomes, found.stability, found.agreement, found.similarity)
    ).astype(np.float64)
    made = (world.parents >= 0)[:, None]
    before = np.where(made, own[world.parents], 0.5)
    repeats = np.where(made, (world.actions == world.actions[world.parents])[:, None], 0.5)
    return np.hstack((own, before, repeats)) - 0.5


@dataclass(slots=True)
class Ours:
    """Credibility over the evidence graph (equation 1), the encoder (2, 3), and both (4)."""

    encoder: Encoder
    taken_on: float
    weights: Weights
    _last: tuple[Signals, Floats] | None = None

    def recognised(self, world: World, found: Signals) -> Floats:
        """Return sigmoid(w h) of each memory; the last answer is kept."""
        if self._last is None or self._last[0] is not found:
            self._last = found, self.encoder.recognise(rows_of(world, found))
        return self._last[1]

    def credible(
        self, world: World, found: Signals, weights: Weights | None = None, *, graph: bool = True
    ) -> Floats:
        """Return C of each memory.

        Args:
            world: of the memories.
            found: their signals.
            weights: of equation 1; its own where left out.
            graph: whether credibility spreads over evidence and lineage.
        """
        terms = (found.similarity, found.stability, found.agreement)
        own = credibility(*terms, self.weights if weights is None else weights)
        if not graph:
            return own
        spread = attended(own, found.witnesses, found.likeness, self.taken_on, found.agrees)
        repeats = (world.parents >= 0) & (world.actions == world.actions[world.parents])
        return inherited(spread, np.where(repeats, world.parents, -1))

    def score(
        self,
        world: World,
        found: Signals,
        reading: Reading = Reading.OURS,
    ) -> Floats:
        """Return the probability that each memory is poisoned (equation 4)."""
        return poison_probability(
            self.credible(world, found), self.recognised(world, found), reading
        )


def rows_of(world: World, found: Signals) -> Floats:
    """Return what the encoder reads: structured fields, then the projected embedding (n x 512)."""
    rows = world.embeddings @ projection().astype(world.embeddings.dtype)
    fields = told(world, found)
    rows[:, : fields.shape[1]] = fields
    return rows


def fit_ours(world: World, found: Signals, learn: Flags, how: Settings) -> Ours:
    """Train on some scenarios.  What the paper does not give is as the draw has it, not chosen.

    Positive pairs share provenance (agent, scenario), action and outcome; negatives are the least
    credible items and those that most of their witnesses contradict.  Only the recognition layer
    is fitted on labels.
    """
    rows = rows_of(world, found)
    provenance = world.agents * SCENARIOS + world.scenarios
    groups = (provenance * ACTIONS + world.actions) * 2 + world.outcomes
    given = world.parameters
    weights = Weights(given["similarity"], given["stability"], given["agreement"])
    agreement = found.agreement[learn]
    credible = credibility(found.similarity[learn], found.stability[learn], agreement, weights)
    negatives = (credible <= np.quantile(credible, DOUBTFUL)) | (agreement < HALF)
    encoder = train(rows[learn], negatives, groups[learn], world.poisoned[learn], how)
    return Ours(encoder, given["taken_on"], weights, (found, encoder.recognise(rows)))


def fit_statistical_residual(world: World, found: Signals, learn: Flags, check: Flags) -> Scorer:
    """Fit what principal components leave over."""
    del found, check
    rows = world.embeddings[learn]
    centre = rows.mean(axis=0)
    step = max(1, len(rows) // 2000)
    some = (rows - centre)[::step]
    # The last eigenvectors of the scatter matrix are the first principal axes.
    kept = np.linalg.eigh(some.T @ some)[1][:, -48:].T

    def score(world: World, found: Signals) -> Floats:
        del found
        centred = world.embeddings - centre
        away: Floats = np.linalg.norm(centred - (centred @ kept.T) @ kept, axis=1)
        return away

    return score


def fit_attention_screening(world: World, found: Signals, learn: Flags, check: Flags) -> Scorer:
    """Return the distance from what its witnesses, weighed by attention, would be."""
    del world, found, learn, check

    def score(world: World, found: Signals) -> Floats:
        away: Floats = np.linalg.norm(world.embeddings - _attended(found, world.embeddings), axis=1)
        return away

    return score


def fit_graph_attention(world: World, found: Signals, learn: Flags, check: Flags) -> Scorer:
    """Fit a linear layer on an item and its attended witnesses."""
    del check

    def wide(world: World, found: Signals) -> Floats:
        narrow = world.embeddings @ projection()[:, :256].astype(world.embeddings.dtype)
        return np.hstack((narrow[:, :128], _attended(found, narrow[:, 128:])))

    weights = logistic(wide(world, found)[learn], world.poisoned[learn])
    return lambda world, found: linear(wide(world, found), weights)


def _attended(found: Signals, rows: Floats) -> Floats:
    """Return the mean of each item's witnesses, weighed by attention."""
    from scipy.sparse import csr_array

    count, wide = found.likeness.shape
    weights = found.likeness / (found.likeness.sum(axis=1, keepdims=True) + 1e-9)
    starts = np.arange(0, count * wide + 1, wide)
    matrix = csr_array(
        (weights.astype(rows.dtype).ravel(), found.witnesses.ravel(), starts), shape=(count, count)
    )
    near: Floats = matrix @ rows
    return near


def fit_supervised_linear(world: World, found: Signals, learn: Flags, check: Flags) -> Scorer:
    """Fit a linear model on embeddings."""
    del found, check
    weights = logistic(world.embeddings[learn], world.poisoned[learn])
    return lambda world, _: linear(world.embeddings, weights)


def fit_linear_on_signals(world: World, found: Signals, learn: Flags, check: Flags) -> Scorer:
    """Fit a linear model on the structured fields that ours reads."""
    del check
    weights = logistic(told(world, found)[learn], world.poisoned[learn])
    return lambda world, found: linear(told(world, found), weights)


def fit_isolation_forest(world: World, found: Signals, learn: Flags, check: Flags) -> Scorer:
    """Fit 200 trees.

    The paper's grid of contaminations moves the threshold and no score, and every detector's
    threshold is chosen by F1 on validation: so there is nothing to choose.
    """
    from sklearn.ensemble import IsolationForest

    del found, check
    some = np.flatnonzero(learn)[:TRAINED]
    forest = IsolationForest(n_estimators=200, random_state=0).fit(world.embeddings[some])
    return lambda world, _: -forest.score_samples(world.embeddings)


def fit_one_class_svm(world: World, found: Signals, learn: Flags, check: Flags) -> Scorer:
    """Fit the paper's grid and keep the best by F1 on validation.

    Distances are worked out once for the whole grid; the machines are given the kernel's values.
    """
    from sklearn.svm import OneClassSVM

    del found
    some, look = np.flatnonzero(learn)[:TRAINED], np.flatnonzero(check)[:TRAINED]
    known = world.embeddings[some]
    between, away = _apart(known, known), _apart(world.embeddings[look], known)
    best, kept = -1.0, (0.0, some[:0], np.zeros(0))
    for nu, gamma in product((0.01, 0.05, 0.1), (1 / HASHED, 0.1 / HASHED, 10 / HASHED)):
        machine = OneClassSVM(kernel="precomputed", nu=nu).fit(np.exp(-gamma * between))
        place, weights = machine.support_, machine.dual_coef_[0]
        scores = -(np.exp(-gamma * away[:, place]) @ weights)
        quality = best_f1(scores, world.poisoned[look])[1]
        if quality > best:
            best, kept = quality, (gamma, place, weights)
    gamma, place, weights = kept
    vectors = known[place]
    return lambda world, _: -(np.exp(-gamma * _apart(world.embeddings, vectors)) @ weights)


def _apart(rows: Floats, others: Floats) -> Floats:
    """Return the squared distances between rows, all of length one."""
    away: Floats = 2.0 - 2.0 * (rows @ others.T).astype(np.float64)
    return away


OTHERS: Final[dict[str, Callable[[World, Signals, Flags, Flags], Scorer]]] = {
    "statistical_residual": fit_statistical_residual,
    "attention_screening": fit_attention_screening,
    "graph_attention": fit_graph_attention,
    "isolation_forest": fit_isolation_forest,
    "one_class_svm": fit_one_class_svm,
    "supervised_linear": fit_supervised_linear,
    "supervised_linear_on_signals": fit_linear_on_signals,
}


def auc(scores: Floats, truth: Flags) -> float:
    """Return the area under the ROC curve (Mann-Whitney), ties counted half."""
    from scipy.stats import rankdata

    ranks = rankdata(scores)
    positives = int(truth.sum())
    negatives = len(truth) - positives
    if not positives or not negatives:
        return float("nan")
    return float((ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def best_f1(scores: Floats, truth: Flags) -> tuple[float, float]:
    """Return the threshold with the highest F1, and that F1."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(truth[order])
    f1 = 2 * hits / (np.arange(1, len(order) + 1) + max(int(truth.sum()), 1))
    best = int(np.argmax(f1))
    return float(scores[order[best]]), float(f1[best])


def folds(seed: int) -> Ints:
    """Return 0 (learnt from), 1 (thresholds are chosen on) or 2 (measured on) for each scenario."""
    part = np.random.default_rng(seed).permutation(SCENARIOS)
    fold = np.zeros(SCENARIOS, dtype=np.int64)
    third = SCENARIOS // 3
    fold[part[third : 2 * third]], fold[part[2 * third :]] = 1, 2
    return fold
