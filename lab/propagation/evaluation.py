"""The evaluation of one draw of the surrogate: detection, containment, ablations, figures.

Hops and coverage are counted from the truth, never from what was flagged, or missing some would
help.  Thresholds are chosen by F1 on validation scenarios, for every detector alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guard.propagation.credibility import (
    DEEPEST,
    GAMMAS,
    THRESHOLD,
    Reading,
    poison_probability,
    priority,
)
from guard.propagation.graph import Adjacency
from lab.propagation.detectors import (
    OTHERS,
    Ours,
    auc,
    best_f1,
    fit_ours,
    folds,
    signals,
)
from lab.propagation.encoder import ENCODED, Settings
from lab.propagation.world import (
    ACTIONS,
    AGENTS,
    DOMAINS,
    TYPES,
    with_agents_inactive,
    with_interference,
)

if TYPE_CHECKING:
    from lab.propagation.detectors import Scorer, Signals
    from lab.propagation.world import Flags, Floats, Ints, World

    Groups = dict[str, dict[str, float]]

INACTIVE: Final = 0.25
"""Share of agents whose memories are gone where nodes are inactive."""
INTERFERENCE: Final = 0.3
"""Length of the noise where embeddings are interfered with; they have length 1."""
PRINTED: Final = "ours_as_printed"
OURS: Final = "ours"


@dataclass(slots=True)
class Split:
    """The scenarios of a world: learnt from, validated on, measured on."""

    learn: Flags
    check: Flags
    test: Flags

    @classmethod
    def of(cls, world: World, seed: int, unseen: int = -1) -> Split:
        """Return the split of a seed; a type that is unseen is not learnt from."""
        fold = folds(seed)[world.scenarios]
        learn = fold == 0
        if unseen >= 0:
            learn &= world.kinds != unseen
        return cls(learn, fold == 1, fold == 2)


def evaluate(
    world: World,
    seed: int,
    *,
    others: bool = False,
    slow: bool = False,
    unseen: int = -1,
    how: Settings = Settings(),  # noqa: B008  (frozen)
) -> Groups:
    """Train on some scenarios, choose thresholds on others, and measure on the rest.

    Args:
        world: a draw.
        seed: of training and of the split.
        others: whether the other detectors are measured too, and rewriting.
        slow: whether what takes long is measured too: disturbances, and the ablations that train
            again.
        unseen: a type that is left out of training.
        how: the encoder is trained.

    Returns:
        Figures by group: ``auc`` by detector, ``by_type``, ``effects``, ``without`` (AUC with one
        part removed), ``priority`` (equation 5), ``rewriting``, and one group per detector.
    """
    split, found = Split.of(world, seed, unseen), signals(world)
    how = replace(how, seed=seed)
    ours = fit_ours(world, found, split.learn, how)
    fits = OTHERS if others else {}
    scorers: dict[str, Scorer] = {
        OURS: ours.score,
        PRINTED: lambda w, f: ours.score(w, f, Reading.PRINTED),
        **{name: fit(world, found, split.learn, split.check) for name, fit in fits.items()},
    }
    truth, test = world.poisoned, split.test
    scores = {name: score(world, found) for name, score in scorers.items()}
    groups: Groups = {"auc": {n: auc(s[test], truth[test]) for n, s in scores.items()}}
    groups["by_type"] = {
        name: auc(*_only(scores[OURS], world, test & ((world.kinds == number) | ~truth)))
        for number, name in enumerate(TYPES)
    }
    disturbed = disturbances(world, seed) if slow else {}
    for name, score in scores.items():
        threshold = best_f1(score[split.check], truth[split.check])[0]
        groups[name] = effects(world, found, score >= threshold, test)
        groups[name] |= _under_disturbance(scorers[name], threshold, world, found, disturbed, seed)
    if others:
        threshold = best_f1(scores[OURS][split.check], truth[split.check])[0]
        groups["rewriting"] = rewriting(world, found, scores[OURS] >= threshold, split)
    groups["without"] = _ablations(ours, world, found, test)
    if slow:
        groups["without"] |= _trained_without(world, found, split, how)
    groups["priority"] = _priorities(world, found, ours, split)
    return groups


def _only(scores: Floats, world: World, chosen: Flags) -> tuple[Floats, Flags]:
    return scores[chosen], world.poisoned[chosen]


# --- disturbances --------------------------------------------------------------------------------


def disturbances(world: World, seed: int) -> dict[str, tuple[World, Signals]]:
    """Return the world as it is after training: some agents gone, embeddings interfered with."""
    found = {
        "inactive": with_agents_inactive(world, INACTIVE, seed),
        "interference": with_interference(world, INTERFERENCE, seed),
    }
    return {name: (one, signals(one)) for name, one in found.items()}


def _under_disturbance(
    scorer: Scorer,
    threshold: float,
    world: World,
    found: Signals,
    disturbed: dict[str, tuple[World, Signals]],
    seed: int,
) -> dict[str, float]:
    """Return the AUC of each disturbed world, and half the spread of accuracy over domains."""
    if not disturbed:
        return {}
    figures: dict[str, float] = {}
    accuracies: list[float] = []
    for name, (one, known) in {"none": (world, found), **disturbed}.items():
        score, test = scorer(one, known), Split.of(one, seed).test
        figures[f"auc_{name}"] = auc(score[test], one.poisoned[test])
        for domain in range(len(DOMAINS)):
            chosen = test & (one.domains == domain)
            if chosen.any():
                right = (score[chosen] >= threshold) == one.poisoned[chosen]
                accuracies.append(float(right.mean()))
    figures["accuracy_fluctuation"] = (max(accuracies) - min(accuracies)) / 2
    return figures


# --- what the equations' terms are worth ---------------------------------------------------------


def _ablations(ours: Ours, world: World, found: Signals, test: Flags) -> dict[str, float]:
    """Return the AUC without each term of equations 1 and 4, nothing else changed."""
    recognised, truth = ours.recognised(world, found), world.poisoned
    result: dict[str, float] = {}
    for term in ("similarity", "stability", "agreement"):
        credible = ours.credible(world, found, replace(ours.weights, **{term: 0.0}))
        result[f"eq1_{term}"] = auc(poison_probability(credible, recognised)[test], truth[test])
    alone = poison_probability(ours.credible(world, found, graph=False), recognised)
    result["evidence_graph"] = auc(alone[test], truth[test])
    result["eq4_credibility"] = auc(recognised[test], truth[test])
    result["eq4_recognition"] = auc(1 - ours.credible(world, found)[test], truth[test])
    return result


def _trained_without(world: World, found: Signals, split: Split, how: Settings) -> dict[str, float]:
    """Return the AUC where a signal is known to nothing: neither equation 1 nor the encoder."""
    even = np.full(len(world.poisoned), 0.5)
    unknown = {
        "similarity": replace(found, similarity=even),
        "stability": replace(found, stability=even),
        "agreement": replace(found, agreement=even, likeness=np.zeros_like(found.likeness)),
        "lineage": found,
        "witnesses_of_other_scenarios": signals(world, world.scenarios),
    }
    result: dict[str, float] = {}
    for name, left in unknown.items():
        seen = world
        if name == "lineage":
            seen = replace(world, parents=np.full(len(even), -1, dtype=np.int64))
        ours = fit_ours(seen, left, split.learn, how)
        score = ours.score(seen, left)
        result[f"everywhere_{name}"] = auc(score[split.test], world.poisoned[split.test])
    return result


def _priorities(world: World, found: Signals, ours: Ours, split: Split) -> dict[str, float]:
    """Return what each reading of equation 5 would repair, and how it ranks without each term.

    Depth is that below the first known ancestor, height what was made from an item: both are known
    without the truth.
    """
    depth, height = _depths(world.parents)
    conflict = 1 - found.agreement
    high = height / max(float(height.max()), 1.0)
    terms = {
        "ours": (ours.score(world, found), high, conflict),
        # As printed in equations 1 and 4: Conf is the inverse of conflict.
        "printed": (ours.score(world, found, Reading.PRINTED), depth / DEEPEST, found.agreement),
    }
    bad, good = world.poisoned & split.test, ~world.poisoned & split.test
    result: dict[str, float] = {}
    for reading, parts in terms.items():
        urgent = priority(*parts)
        result[f"{reading}_auc"] = auc(urgent[split.test], world.poisoned[split.test])
        result[f"{reading}_repaired"] = float((urgent[bad] > THRESHOLD).mean())
        result[f"{reading}_repaired_benign"] = float((urgent[good] > THRESHOLD).mean())
    for number, term in enumerate(("probability", "spread", "conflict")):
        gammas = tuple(0.0 if n == number else gamma for n, gamma in enumerate(GAMMAS))
        urgent = priority(*terms["ours"], (gammas[0], gammas[1], gammas[2]))
        result[f"ours_auc_without_{term}"] = auc(urgent[split.test], world.poisoned[split.test])
    return result


def _depths(parents: Ints) -> tuple[Floats, Floats]:
    """Return how many reuses led to each memory, and the longest chain that leads on from it."""
    depth, height = np.zeros(len(parents)), np.zeros(len(parents))
    made = np.flatnonzero(parents >= 0)
    for place in made:
        depth[place] = depth[parents[place]] + 1
    for place in made[::-1]:
        height[parents[place]] = max(height[parents[place]], height[place] + 1)
    return depth, height


# --- what containment changes --------------------------------------------------------------------


def effects(world: World, found: Signals, flagged: Flags, test: Flags) -> dict[str, float]:
    """Return precision, misbehaviour, hops, coverage and success, before and after containment."""
    truth = world.poisoned
    caught = flagged & test
    made = np.flatnonzero(world.parents >= 0)
    down = Adjacency.of(len(truth), world.parents[made].astype(np.int32), made.astype(np.int32))
    roots = np.flatnonzero(world.injected & test).astype(np.int32)
    hops = down.reach(roots)
    affected = (hops > 0) & truth & test
    # What is contained hands nothing on: what was made from it after that is not made.
    free = ~caught[world.parents[made]]
    left = Adjacency.of(
        len(truth), world.parents[made][free].astype(np.int32), made[free].astype(np.int32)
    )
    open_roots = roots[~caught[roots]]
    after = left.reach(open_roots) if len(open_roots) else np.full(len(truth), -1)
    still = (after > 0) & truth & test & ~caught
    none = np.zeros_like(flagged)
    failed_before, sharp_before = _tasks(world, found, none, test)
    failed_after, sharp_after = _tasks(world, found, caught, test)
    return {
        "precision": float((caught & truth).sum() / max(caught.sum(), 1)),
        "recall": float((caught & truth).sum() / max((truth & test).sum(), 1)),
        "false_positive_rate": float((caught & ~truth).sum() / max((test & ~truth).sum(), 1)),
        "misbehaviour_before": sharp_before,
        "misbehaviour_after": sharp_after,
        "hops_before": float(hops[affected].mean()) if affected.any() else 0.0,
        "hops_after": float(after[still].mean()) if still.any() else 0.0,
        "coverage_before": _coverage(world, truth & test, test),
        "coverage_after": _coverage(world, still | (world.injected & test & ~caught), test),
        "success_before": 1 - failed_before,
        "success_after": 1 - failed_after,
    }


def _coverage(world: World, affected: Flags, test: Flags) -> float:
    """Return the share of a scenario's agents that poison reached, on average."""
    pairs = set(zip(world.scenarios[test].tolist(), world.agents[test].tolist(), strict=True))
    hit = set(zip(world.scenarios[affected].tolist(), world.agents[affected].tolist(), strict=True))
    return len(hit) / max(len(pairs), 1)


def _wrong(
    world: World, found: Signals, withheld: Flags, said: Ints | None = None
) -> tuple[Flags, Flags]:
    """Return which tasks fail, and which of them benign memories alone would have got right.

    A task acts on the nearest memories of others that are not withheld, by majority.

    Args:
        world: of the tasks.
        found: which memories are near.
        withheld: of each memory.
        said: the action that each memory holds now; left out, as it was made.
    """
    actions = world.actions if said is None else said
    votes = np.zeros((len(world.right), ACTIONS))
    clean = np.zeros_like(votes)
    places = np.arange(len(votes))
    for near, weight in zip(found.retrieved.T, found.nearness.T, strict=True):
        votes[places, actions[near]] += weight * ~withheld[near]
        clean[places, world.actions[near]] += weight * ~world.poisoned[near]
    wrong = votes.argmax(axis=1) != world.right
    return wrong, wrong & (clean.argmax(axis=1) == world.right)


def _tasks(world: World, found: Signals, withheld: Flags, test: Flags) -> tuple[float, float]:
    """Return the share of tasks that fail, and of those that poison made fail."""
    wrong, sharp = _wrong(world, found, withheld)
    return float(wrong[test].mean()), float(sharp[test].mean())


def rewriting(world: World, found: Signals, flagged: Flags, split: Split) -> dict[str, float]:
    """Return what comes of having an autoencoder rewrite flagged memories, as the paper has it.

    Nothing in the product does.  A memory is its embedding and its action; what is not flagged in
    the training scenarios fits the autoencoder: linear, 128 units, whose best weights are the first
    principal axes (Baldi and Hornik 1989).  It is given the whole memory, as the paper has it, or
    the embedding alone and has to fill the action in.  The strongest action is then the memory's.
    """

    def memories(places: Ints) -> Floats:
        actions = np.eye(ACTIONS, dtype=world.embeddings.dtype)[world.actions[places]]
        return np.hstack((world.embeddings[places], actions))

    learnt = memories(np.flatnonzero(split.learn & ~flagged))
    centre = learnt.mean(axis=0)
    learnt -= centre
    axes = np.linalg.eigh(learnt.T @ learnt)[1][:, -ENCODED:]
    chosen = np.flatnonzero(flagged & split.test)
    given = memories(chosen) - centre
    by_embedding = np.linalg.pinv(axes[:-ACTIONS])
    codes = {"whole": given @ axes, "filled_in": given[:, :-ACTIONS] @ by_embedding.T}
    shown: dict[str, float] = {}
    for name, code in codes.items():
        said = world.actions.copy()
        said[chosen] = (code @ axes[-ACTIONS:].T + centre[-ACTIONS:]).argmax(axis=1)
        bad, good = chosen[world.poisoned[chosen]], chosen[~world.poisoned[chosen]]
        wrong, sharp = _wrong(world, found, np.zeros_like(flagged), said)
        shown[f"{name}_poison_put_right"] = _mean(said[bad] == world.right[bad])
        shown[f"{name}_benign_changed"] = _mean(said[good] != world.actions[good])
        shown[f"{name}_misbehaviour_after"] = _mean(sharp[split.test])
        shown[f"{name}_success_after"] = 1 - _mean(wrong[split.test])
    return shown


def _mean(flags: Flags) -> float:
    return float(flags.mean()) if len(flags) else float("nan")


# --- figures of the paper ------------------------------------------------------------------------


def figures(world: World, seed: int) -> dict[str, Any]:
    """Return what its Figures 2, 3 and 4 show, of one draw.

    2: scores by depth; 3: the ROC curve; 4: coverage and misbehaviour of each agent, before and
    after.
    """
    split, found = Split.of(world, seed), signals(world)
    ours = fit_ours(world, found, split.learn, Settings(seed=seed))
    score, test = ours.score(world, found), split.test
    threshold = best_f1(score[split.check], world.poisoned[split.check])[0]
    depth, _ = _depths(world.parents)
    bins = np.linspace(0, 1, 21)
    by_depth = {
        str(int(hops)): np.histogram(score[test & (depth == hops)], bins)[0].tolist()
        for hops in np.unique(depth[test])
    }
    order = np.argsort(-score[test])
    truth = world.poisoned[test][order]
    hit, miss = np.cumsum(truth) / truth.sum(), np.cumsum(~truth) / (~truth).sum()
    some = np.unique(np.linspace(0, len(order) - 1, 200).astype(int))
    caught = (score >= threshold) & test
    return {
        "2": {"bins": bins.round(3).tolist(), "scores_by_depth": by_depth, "threshold": threshold},
        "3": {"false_positives": miss[some].tolist(), "recall": hit[some].tolist()},
        "4": {
            "before": _by_agent(world, found, np.zeros_like(caught), test),
            "after": _by_agent(world, found, caught, test),
        },
    }  # fmt: skip


def _by_agent(
    world: World, found: Signals, withheld: Flags, test: Flags
) -> list[tuple[float, float]]:
    """Return for each agent the share of its items that are poison, and of tasks it makes fail."""
    _, sharp = _wrong(world, found, withheld)
    result = []
    for agent in range(AGENTS):
        mine = test & (world.agents == agent)
        if mine.any():
            share = (world.poisoned & ~withheld)[mine].mean()
            result.append((round(float(share), 4), round(float(sharp[mine].mean()), 4)))
    return result
