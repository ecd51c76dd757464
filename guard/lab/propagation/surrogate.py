"""The paper's experiment on its surrogate: detection, containment, ablations, tables, figures.

Hops and coverage are counted from the truth, never from what was flagged, or missing some would
help.  Thresholds are chosen by F1 on validation scenarios, for every detector alike.  Ranges are
the 5th to 95th percentile over draws, each with parameters of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from guard.lab.propagation.detectors import (
    QUICK,
    SLOW,
    Ours,
    auc,
    best_f1,
    fit_ours,
    folds,
    signals,
)
from guard.lab.propagation.encoder import TEMPERATURES, Settings
from guard.lab.propagation.world import (
    ACTIONS,
    AGENTS,
    ANY,
    CAPABILITIES,
    DOMAINS,
    RANGES,
    TYPES,
    Attack,
    draw,
    with_agents_inactive,
    with_interference,
)
from guard.propagation.credibility import (
    DEEPEST,
    GAMMAS,
    THRESHOLD,
    Reading,
    poison_probability,
    priority,
)
from guard.propagation.graph import Adjacency
from guard.replay.reports import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from guard.lab.propagation.detectors import Scorer, Signals
    from guard.lab.propagation.world import Flags, Floats, Ints, World

    Progress = Callable[[float], object]
    Groups = dict[str, dict[str, float]]

RATIOS: Final = (0.005, 0.01, 0.02, 0.05, 0.10)
MAIN: Final = 0.05
SEEDS: Final = 5
"""Of each ratio, as the paper has it."""
AT_LEAST: Final = 2
"""Draws of each kind that are made even when the time is over."""
MAIN_SHARE: Final = 0.75
SAMPLES: Final = 2000
"""Of the bootstrap."""
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
    slow: bool = False,
    unseen: int = -1,
    how: Settings = Settings(),  # noqa: B008  (frozen)
) -> Groups:
    """Train on some scenarios, choose thresholds on others, and measure on the rest.

    Args:
        world: a draw.
        seed: of training and of the split.
        slow: whether what takes long is measured too: the detectors with grids, disturbances, and
            the ablations that train again.
        unseen: a type that is left out of training.
        how: the encoder is trained.

    Returns:
        Figures by group: ``auc`` by detector, ``by_type``, ``effects``, ``without`` (AUC with one
        part removed), ``priority`` (equation 5), and one group per detector.
    """
    split, found = Split.of(world, seed, unseen), signals(world)
    how = replace(how, seed=seed)
    ours = fit_ours(world, found, split.learn, how)
    fits = {**QUICK, **(SLOW if slow else {})}
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


def _wrong(world: World, found: Signals, withheld: Flags) -> tuple[Flags, Flags]:
    """Return which tasks fail, and which of them benign memories alone would have got right.

    A task acts on the nearest memories of others that are not withheld, by majority.
    """
    votes = np.zeros((len(world.right), ACTIONS))
    clean = np.zeros_like(votes)
    places = np.arange(len(votes))
    for near, weight in zip(found.retrieved.T, found.nearness.T, strict=True):
        chosen = world.actions[near]
        votes[places, chosen] += weight * ~withheld[near]
        clean[places, chosen] += weight * ~world.poisoned[near]
    wrong = votes.argmax(axis=1) != world.right
    return wrong, wrong & (clean.argmax(axis=1) == world.right)


def _tasks(world: World, found: Signals, withheld: Flags, test: Flags) -> tuple[float, float]:
    """Return the share of tasks that fail, and of those that poison made fail."""
    wrong, sharp = _wrong(world, found, withheld)
    return float(wrong[test].mean()), float(sharp[test].mean())


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


# --- all of it -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is drawn."""

    draws: int = 8
    """At the main ratio; every other one has an adaptive adversary (C4)."""
    items: int = 8_000
    slow: int = 2
    """Draws in which what takes long is measured."""
    few: int = 2
    """Draws of each arm besides."""
    largest: int = 0
    """Items of one more draw, the paper's size; 0 for none."""
    minutes: float = 8.0
    """After which no more than two draws of each kind are made; ``n`` says how many were.  The
    draws at the main ratio have the first 75 % of it."""


PAPER_SIZE: Final = 213_684


@dataclass(slots=True)
class _Work:
    """Makes the draws of a plan, and tells what share is done."""

    plan: Plan
    tell: Progress
    began: float = field(default_factory=time.perf_counter)
    done: int = 0

    def left(self, share: float = 1.0) -> bool:
        """Return whether there is time left of a share of the plan's."""
        return time.perf_counter() - self.began < share * self.plan.minutes * 60

    def measured(
        self, seeds: Iterable[int], ratio: float = MAIN, attack: Attack = ANY, **how: Any
    ) -> list[Groups]:
        """Return what draws with some seeds show: all of them if there is time, at least two."""
        found: list[Groups] = []
        for seed in seeds:
            if len(found) >= AT_LEAST and not self.left():
                break
            found.append(self.one(seed, ratio, attack, **how))
        return found

    def one(self, seed: int, ratio: float = MAIN, attack: Attack = ANY, **how: Any) -> Groups:
        """Return what one draw shows."""
        groups = evaluate(draw(self.plan.items, ratio, seed, attack), seed, **how)
        self.done += 1
        arms = len(TYPES) + len(CAPABILITIES) + len(TEMPERATURES)
        parts = self.plan.draws + SEEDS * len(RATIOS) + self.plan.few * arms + 1
        self.tell(min(1.0, self.done / parts))
        return groups


class _Main(NamedTuple):
    """The draws at the main ratio, by what the adversary knows."""

    black_box: list[Groups]
    adaptive: list[Groups]


def run(plan: Plan, tell: Progress) -> dict[str, Any]:
    """Return medians and 5-95 % ranges at the main ratio, by ratio, and of each arm."""
    work, main = _Work(plan, tell), _Main([], [])
    for seed in range(plan.draws):
        if seed >= AT_LEAST and not work.left(MAIN_SHARE):
            break
        adaptive = seed % 2 == 1
        kept, attack = (main.adaptive, CAPABILITIES["C4"]) if adaptive else (main.black_box, ANY)
        kept.append(work.one(seed, attack=attack, slow=seed < plan.slow))
    result: dict[str, Any] = {
        "main": summary(main.black_box + main.adaptive),
        "black_box": summary(main.black_box),
        "adaptive": summary(main.adaptive),
        "figures": figures(draw(plan.items, MAIN, 0), 0),
    }
    seeds = range(100, 100 + SEEDS)
    result["table_2"] = {
        str(ratio): _table_2(work.measured(seeds, ratio), plan.items) for ratio in RATIOS
    }
    seeds = range(200, 200 + plan.few)
    result["unseen_type_auc"] = {
        name: _spread(one["by_type"][name] for one in work.measured(seeds, unseen=number))
        for number, name in enumerate(TYPES)
    }
    result["capability_auc"] = {
        name: _spread(one["auc"][OURS] for one in work.measured(seeds, attack=attack))
        for name, attack in CAPABILITIES.items()
    }
    result["temperature_auc"] = {
        str(tau): _spread(one["auc"][OURS] for one in work.measured(seeds, how=Settings(tau)))
        for tau in TEMPERATURES
    }
    if plan.largest and work.left():
        result["full_size"] = {"items": plan.largest, **evaluate(draw(plan.largest, MAIN, 0), 0)}
    tell(1.0)
    return result


def summary(outcomes: list[Groups]) -> dict[str, dict[str, Any]]:
    """Return median, 5th and 95th percentile of each figure of each group."""
    found: dict[str, dict[str, Any]] = {}
    for group in dict.fromkeys(name for one in outcomes for name in one):
        names = dict.fromkeys(key for one in outcomes for key in one.get(group, {}))
        found[group] = {
            name: _spread([one[group][name] for one in outcomes if name in one.get(group, {})])
            for name in names
        }
    return found


def _spread(values: Iterable[float]) -> dict[str, float | int]:
    kept = np.array([value for value in values if np.isfinite(value)])
    if not len(kept):
        return {"n": 0}
    low, middle, high = (round(float(value), 4) for value in np.percentile(kept, (5, 50, 95)))
    return {"median": middle, "p5": low, "p95": high, "n": len(kept)}


def _table_2(outcomes: list[Groups], items: int) -> dict[str, Any]:
    """Return mean, standard deviation over seeds and a bootstrap interval, as the paper has them.

    The interval of a rate draws the tasks again; that of an AUC or of hops the seeds.
    """
    chance = np.random.default_rng(0)
    found: dict[str, Any] = {}
    tasks = max(items // 3, 1)
    for name in ("auc", "misbehaviour_before", "misbehaviour_after", "hops_before", "hops_after"):
        values = np.array(
            [one["auc"][OURS] if name == "auc" else one[OURS][name] for one in outcomes]
        )
        if name.startswith("misbehaviour"):
            drawn = chance.binomial(tasks, values, (SAMPLES, len(values))) / tasks
        else:
            drawn = chance.choice(values, (SAMPLES, len(values)))
        low, high = np.percentile(drawn.mean(axis=1), (2.5, 97.5))
        found[name] = {
            "mean": round(float(values.mean()), 4),
            "std": round(float(values.std(ddof=1)), 4),
            "interval": (round(float(low), 4), round(float(high), 4)),
            "n": len(values),
        }
    return found


TABLE_1: Final = {
    "statistical_residual": (0.79, 0.085, 6.4, 0.067),
    "attention_screening": (0.84, 0.053, 5.1, 0.051),
    "graph_attention": (0.88, 0.040, 4.3, 0.039),
    "isolation_forest": (0.86, 0.048, 4.9, 0.048),
    "one_class_svm": (0.87, 0.045, 4.7, 0.045),
    OURS: (0.94, 0.023, 1.4, 0.018),
}
"""AUC, false positive rate, hops and fluctuation in the paper's Table 1; of its surrogate it claims
trends and not these figures."""
TABLE_1_COLUMNS: Final = ("false_positive_rate", "hops_after", "accuracy_fluctuation")
TABLE_2: Final = {
    "0.005": (0.97, 0.042, 0.011, 2.0, 0.9),
    "0.01": (0.96, 0.068, 0.013, 2.4, 1.0),
    "0.02": (0.95, 0.097, 0.016, 3.0, 1.1),
    "0.05": (0.94, 0.156, 0.023, 3.8, 1.4),
    "0.1": (0.91, 0.245, 0.048, 5.2, 2.1),
}
"""AUC, misbehaviour and hops before and after in its Table 2, by ratio."""
FIGURES: Final = (
    ("precision", "fraction"),
    ("misbehaviour_before", "fraction"),
    ("misbehaviour_after", "fraction"),
    ("hops_before", "hops"),
    ("hops_after", "hops"),
    ("coverage_before", "fraction"),
    ("coverage_after", "fraction"),
    ("success_before", "fraction"),
    ("success_after", "fraction"),
)


def surrogate(plan: Plan, tell: Progress) -> tuple[list[Check], dict[str, Any]]:
    """Return the figures of the issue, and the tables beside the paper's."""
    try:
        found = run(plan, tell)
    except ImportError as error:
        reason = f"the extra `lab` is not installed ({error.name})"
        return [Check(id="surrogate_auc", value=None, unit="auc", reason=reason)], {}
    main = found["main"]
    checks = [_check("surrogate_auc", main["auc"][OURS], "auc", ">= 0.96")]
    checks += [_check(f"surrogate_{name}", main[OURS][name], unit) for name, unit in FIGURES]
    checks += [
        _check(f"surrogate_{name}", main["priority"][name], "fraction")
        for name in ("printed_repaired", "ours_repaired")
    ]
    found["table_1"] = {
        name: {"auc": spread}
        | {column: main[name].get(column, {"n": 0}) for column in TABLE_1_COLUMNS}
        | {"paper": TABLE_1.get(name)}
        for name, spread in main["auc"].items()
    }
    return checks, {**found, "paper_table_2": TABLE_2, "items": plan.items, "ranges": RANGES}


def _check(name: str, spread: dict[str, Any], unit: str, target: str | None = None) -> Check:
    if not spread["n"]:
        return Check(id=name, value=None, unit=unit, reason="no draw had any")
    return Check(
        id=name,
        value=spread["median"],
        unit=unit,
        n=spread["n"],
        interval=(spread["p5"], spread["p95"]),
        target=target,
    )
