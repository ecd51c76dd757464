"""The paper's surrogate: memories of agents in multi-particle environments, poisoned in three ways.

States come from ``mpe2``; a memory has state, context, action, tags, provenance and outcome.  What
the paper leaves open is drawn from :data:`RANGES`, which were written down before any detector ran
on them.  Ground truth is the script's; hops are counted from the truth, never from what was
flagged, or missing some would help.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from guard.lab.propagation.encoder import (
    HASHED,
    Settings,
    linear,
    logistic,
    projection,
    train,
)
from guard.propagation.credibility import (
    ALPHA,
    RECENT,
    TASKS,
    Reading,
    Weights,
    attended,
    credibility,
    poison_probability,
    priority,
)
from guard.propagation.graph import Adjacency
from guard.replay.reports import Check

if TYPE_CHECKING:
    from collections.abc import Callable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
AGENTS: Final = 24
SCENARIOS: Final = 60
DOMAINS: Final = ("simple_spread_v3", "simple_tag_v3", "simple_reference_v3")
"""Path planning, resource contention, knowledge coordination; the paper names three of its six."""
ACTIONS: Final = 4
"""Directions in which an agent of these environments can move."""
TYPES: Final = ("I", "II", "III")
NEIGHBOURS: Final = 10
RETRIEVED: Final = 5
"""Memories that one task acts on."""
RATIOS: Final = (0.005, 0.01, 0.02, 0.05, 0.10)
CAMOUFLAGE: Final = 0.90
"""Cosine of a type II item with the nearest benign centroid, at least."""
MAIN: Final = 0.05
RANGES: Final[dict[str, tuple[float, float]]] = {
    "state": (0.6, 1.2),
    "context": (0.2, 0.6),
    "action": (0.1, 0.4),
    "tags": (0.1, 0.4),
    "scenario": (0.6, 1.2),
    "noise": (0.01, 0.03),
    "template": (0.4, 1.0),
    "compromised": (2.0, 6.0),
    "through_others": (0.1, 0.6),
    "good_outcome": (0.85, 0.97),
    "poisoned_outcome": (0.3, 0.7),
    "reused": (0.1, 0.4),
    "carried": (0.4, 0.9),
    "taken_on": (0.2, 0.6),
}
"""What the paper does not state, drawn evenly per draw: weights of a memory's fields in its
embedding and the noise per dimension; strength of an instruction template; agents that the
adversary holds and the share of poison that goes through others; how often tasks go well with good
and with poisoned memories; share of items made from an earlier one, of reuses of poison that carry
it on; how much credibility an item takes on from its neighbours."""


@lru_cache(maxsize=8)
def observations(count: int, seed: int) -> tuple[Floats, Ints, Ints]:
    """Return states (count x 24), the agent and the scenario of each, from the environments.

    Raises:
        ImportError: `mpe2` (of the extra ``lab``) is not installed.
    """
    import importlib

    chance = np.random.default_rng(seed)
    per = -(-count // SCENARIOS)
    states, agents, scenarios = [], [], []
    for scenario in range(SCENARIOS):
        module = importlib.import_module(f"mpe2.{DOMAINS[scenario % len(DOMAINS)]}")
        team = int(chance.integers(4, 9))
        options = {"N": team} if "spread" in module.__name__ else {}
        if "tag" in module.__name__:
            options = {"num_adversaries": team - 1, "num_good": 1}
        world = module.parallel_env(max_cycles=10_000, **options)
        seen, _ = world.reset(seed=int(chance.integers(1 << 30)))
        members = chance.choice(AGENTS, team, replace=False)
        rows = 0
        while rows < per:
            for place, (_, state) in enumerate(sorted(seen.items())):
                if rows < per:
                    states.append(np.resize(np.pad(state, (0, max(0, 24 - len(state)))), 24))
                    agents.append(members[place % team])
                    scenarios.append(scenario)
                    rows += 1
            acts = {name: int(chance.integers(world.action_space(name).n)) for name in world.agents}
            seen, *_ = world.step(acts)
            if not world.agents:
                seen, _ = world.reset(seed=int(chance.integers(1 << 30)))
        world.close()
    order = chance.permutation(len(states))[:count]
    return (
        np.array(states)[order],
        np.array(agents, dtype=np.int64)[order],
        np.array(scenarios, dtype=np.int64)[order],
    )


@dataclass(slots=True)
class World:
    """The memories of one draw, in the order in which they were made."""

    embeddings: Floats
    """n x 768."""
    states: Floats
    agents: Ints
    scenarios: Ints
    actions: Ints
    right: Ints
    """What the benign policy does in that state."""
    outcomes: Flags
    poisoned: Flags
    """Injected, or made from what was injected and carrying it on."""
    injected: Flags
    kinds: Ints
    """Type by number, -1 for benign."""
    parents: Ints
    """The memory that each was made from, -1 for none."""
    parameters: dict[str, float]


def draw(count: int, ratio: float, seed: int, *, adaptive: bool = False) -> World:
    """Return one draw of the surrogate.

    Args:
        count: memories.
        ratio: share of them that is injected.
        seed: of everything, the parameters included.
        adaptive: whether the adversary knows the signals (C4): his outcomes look good and his
            instruction templates are faint.
    """
    chance = np.random.default_rng(seed)
    given = {name: float(chance.uniform(*bounds)) for name, bounds in RANGES.items()}
    if adaptive:
        given["poisoned_outcome"], given["template"] = given["good_outcome"], 0.2
    states, agents, scenarios = observations(count, seed % 5)
    agents = agents.copy()
    angle = np.arctan2(states[:, 5], states[:, 4])
    right = ((angle + np.pi) / (2 * np.pi) * ACTIONS).astype(np.int64) % ACTIONS
    actions = np.where(chance.random(count) < 0.95, right, chance.integers(0, ACTIONS, count))
    injected = np.zeros(count, dtype=bool)
    injected[chance.choice(np.arange(count // 50, count), int(count * ratio), replace=False)] = True
    kinds = np.where(injected, chance.integers(0, len(TYPES), count), -1)
    wrong = (right + chance.integers(1, ACTIONS, count)) % ACTIONS
    # Type III: colluding agents agree on one wrong action per scenario.
    agreed = chance.integers(0, ACTIONS, SCENARIOS)[scenarios]
    agreed = np.where(agreed == right, (agreed + 1) % ACTIONS, agreed)
    actions = np.where(injected, np.where(kinds == 2, agreed, wrong), actions)
    held = chance.choice(AGENTS, int(given["compromised"]), replace=False)
    by_held = injected & (chance.random(count) > given["through_others"])
    agents[by_held] = chance.choice(held, int(by_held.sum()))
    parents, carried = _reuse(chance, scenarios, injected, given)
    poisoned = injected | carried
    copied = carried & (parents >= 0)
    actions[copied] = actions[parents[copied]]
    kinds[copied] = kinds[parents[copied]]
    went_well = np.where(poisoned, given["poisoned_outcome"], given["good_outcome"])
    outcomes = chance.random(count) < went_well
    embeddings = _embeddings(chance, states, scenarios, actions, kinds, given)
    return World(
        embeddings, states, agents, scenarios, actions, right, outcomes, poisoned, injected, kinds,
        parents, given,
    )  # fmt: skip


def _reuse(
    chance: np.random.Generator, scenarios: Ints, injected: Flags, given: dict[str, float]
) -> tuple[Ints, Flags]:
    """Return what each memory was made from, and which carry poison on."""
    count = len(scenarios)
    parents = np.full(count, -1, dtype=np.int64)
    carried = np.zeros(count, dtype=bool)
    bad = injected.copy()
    latest: dict[int, list[int]] = {}
    reused = chance.random(count) < given["reused"]
    carries = chance.random(count) < given["carried"]
    for place in range(count):
        before = latest.setdefault(int(scenarios[place]), [])
        if reused[place] and before and not injected[place]:
            parent = before[-1 - int(chance.integers(min(len(before), 40)))]
            parents[place] = parent
            carried[place] = bad[parent] and carries[place]
            bad[place] |= carried[place]
        before.append(place)
    return parents, carried


def _embeddings(
    chance: np.random.Generator,
    states: Floats,
    scenarios: Ints,
    actions: Ints,
    kinds: Ints,
    given: dict[str, float],
) -> Floats:
    """Return the vectors that every detector gets."""

    def directions(count: int) -> Floats:
        return chance.normal(0, 1 / np.sqrt(HASHED), (count, HASHED))

    spread = states / (states.std(axis=0) + 1e-9) / np.sqrt(states.shape[1])
    rows = given["scenario"] * directions(SCENARIOS)[scenarios]
    rows = rows + given["state"] * spread @ directions(states.shape[1])
    rows += given["context"] * directions(SCENARIOS * 4)[scenarios * 4 + len(DOMAINS) % 4]
    rows += given["action"] * directions(ACTIONS)[actions]
    tags = chance.integers(0, 40, len(rows))
    rows += given["tags"] * directions(40)[tags]
    rows += given["noise"] * chance.normal(0, 1, rows.shape)
    templates = directions(6)
    first = kinds == 0
    rows[first] += given["template"] * templates[chance.integers(0, 6, int(first.sum()))]
    rows = _unit(rows)
    second = np.flatnonzero(kinds == 1)
    if len(second):
        centres = np.stack(
            [rows[(scenarios == s) & (kinds < 0)].mean(axis=0) for s in range(SCENARIOS)]
        )
        rows[second] = _near(rows[second], _unit(centres)[scenarios[second]])
    return rows


def _unit(rows: Floats) -> Floats:
    found: Floats = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9)
    return found


def _near(rows: Floats, centres: Floats) -> Floats:
    """Return rows moved towards their centres until the cosine is ``CAMOUFLAGE``."""
    along = (rows * centres).sum(axis=1, keepdims=True)
    across = _unit(rows - along * centres)
    cosine = np.maximum(along, CAMOUFLAGE)
    moved: Floats = cosine * centres + np.sqrt(1 - cosine**2) * across
    return moved


@dataclass(slots=True)
class Signals:
    """What can be known of each memory without the truth."""

    similarity: Floats
    stability: Floats
    agreement: Floats
    neighbours: Ints
    likeness: Floats


def signals(world: World) -> Signals:
    """Return the terms of equation 1 and the evidence graph."""
    rows = world.embeddings
    similarity = np.zeros(len(rows))
    stability = np.zeros(len(rows))
    for agent in range(AGENTS):
        mine = np.flatnonzero(world.agents == agent)
        sums = np.vstack((np.zeros(HASHED), np.cumsum(rows[mine], axis=0)))
        good = np.concatenate(([0], np.cumsum(world.outcomes[mine])))
        for place, one in enumerate(mine):
            begin = max(0, place - RECENT)
            known = place - begin
            mean = (sums[place] - sums[begin]) / max(known, 1)
            similarity[one] = rows[one] @ mean if known else 0.5
            start = max(0, place + 1 - TASKS)
            stability[one] = (good[place + 1] - good[start]) / (place + 1 - start)
    neighbours, likeness = _nearest(world)
    # What others hold in the same state, those counting most whose agents do well.
    weight = likeness * stability[neighbours] ** 4
    same = world.actions[neighbours] == world.actions[:, None]
    agreement = (weight * same).sum(axis=1) / (weight.sum(axis=1) + 1e-9)
    return Signals(np.clip(similarity * 2, 0, 1), stability, agreement, neighbours, likeness)


def _nearest(world: World) -> tuple[Ints, Floats]:
    """Return the memories of other states of the same scenario that are nearest to each."""
    count = len(world.states)
    neighbours = np.zeros((count, NEIGHBOURS), dtype=np.int64)
    likeness = np.zeros((count, NEIGHBOURS))
    # Memories are retrieved by what triggers them: the direction in which the goal lies.
    goal = world.states[:, 4:6]
    scaled = goal / (np.linalg.norm(goal, axis=1, keepdims=True) + 1e-9)
    for scenario in range(SCENARIOS):
        mine = np.flatnonzero(world.scenarios == scenario)
        rows = scaled[mine]
        squares = (rows**2).sum(axis=1)
        distance = squares[:, None] + squares[None, :] - 2 * rows @ rows.T
        # Who made a memory, and memories of the same agent, are no independent witnesses.
        distance[world.agents[mine][:, None] == world.agents[mine][None, :]] = np.inf
        near = np.argpartition(distance, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        neighbours[mine] = mine[near]
        away = np.take_along_axis(distance, near, axis=1)
        likeness[mine] = np.exp(
            -np.minimum(away, 1e6) / (2 * np.median(away[np.isfinite(away)]) + 1e-9)
        )
    return neighbours, likeness


def auc(scores: Floats, truth: Flags) -> float:
    """Return the area under the ROC curve (Mann-Whitney), ties counted half."""
    from scipy.stats import rankdata

    ranks = rankdata(scores)
    positives = int(truth.sum())
    negatives = len(truth) - positives
    if not positives or not negatives:
        return float("nan")
    return float((ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def best_threshold(scores: Floats, truth: Flags) -> float:
    """Return the threshold with the highest F1."""
    order = np.argsort(-scores)
    hits = np.cumsum(truth[order])
    f1 = 2 * hits / (np.arange(1, len(order) + 1) + truth.sum())
    return float(scores[order[int(np.argmax(f1))]])


@dataclass(slots=True)
class Outcome:
    """What one draw showed."""

    aucs: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    by_type: dict[str, float] = field(default_factory=dict)
    without: dict[str, float] = field(default_factory=dict)
    """AUC with one term of equation 1 or 4 removed."""


def evaluate(world: World, seed: int, *, slow: bool = False, unseen: int = -1) -> Outcome:
    """Train on some scenarios, choose thresholds on others, and measure on the rest.

    Args:
        world: a draw.
        seed: of training and of the split.
        slow: whether Isolation Forest and One-Class SVM with their grids are fitted too.
        unseen: a type that is left out of training.
    """
    chance = np.random.default_rng(seed)
    part = chance.permutation(SCENARIOS)
    fold = np.zeros(SCENARIOS, dtype=np.int64)
    fold[part[20:40]], fold[part[40:]] = 1, 2
    where = fold[world.scenarios]
    learn, check, test = where == 0, where == 1, where == 2
    if unseen >= 0:
        learn &= world.kinds != unseen
    found = signals(world)
    told = _told(world, found)
    rows = world.embeddings @ projection()
    rows[:, : told.shape[1]] = told
    groups = (world.scenarios * ACTIONS + world.actions) * 2 + world.outcomes
    encoder = train(rows[learn], world.poisoned[learn], groups[learn], Settings(seed=seed))
    recognised = encoder.recognise(rows)
    own = credibility(found.similarity, found.stability, found.agreement)
    share = world.parameters["taken_on"] * 0.5
    credible = attended(own, found.neighbours, found.likeness, share)
    credible = _spread(credible, world)
    score = poison_probability(credible, recognised)
    truth, outcome = world.poisoned, Outcome()
    scores = {
        "ours": score,
        "printed": poison_probability(credible, recognised, Reading.PRINTED),
        **_baselines(world, found, learn),
        "supervised_linear_on_signals": linear(told, logistic(told[learn], world.poisoned[learn])),
    }
    if slow:
        scores |= _fitted(world, learn, check)
    outcome.aucs = {name: auc(each[test], truth[test]) for name, each in scores.items()}
    for number, name in enumerate(TYPES):
        chosen = test & ((world.kinds == number) | ~truth)
        outcome.by_type[name] = auc(score[chosen], truth[chosen])
    outcome.without = _ablations(found, recognised, world, test)
    threshold = best_threshold(score[check], truth[check])
    flagged = score >= threshold
    outcome.figures = _effects(world, found, flagged, test) | _priorities(world, found, score, test)
    return outcome


def _told(world: World, found: Signals) -> Floats:
    """Return the structured fields of each memory that its vector does not carry.

    Outcome, how well its agent does, whether others agree, and the same of what it was made from.
    """
    own = np.column_stack(
        (world.outcomes, found.stability, found.agreement, found.similarity)
    ).astype(np.float64)
    before = np.where((world.parents >= 0)[:, None], own[world.parents], 0.5)
    return np.hstack((own, before)) - 0.5


def _spread(credible: Floats, world: World) -> Floats:
    """Return credibility, at most that of what a memory was made from."""
    lowered = credible.copy()
    made = np.flatnonzero(world.parents >= 0)
    for place in made:
        lowered[place] = 0.5 * lowered[place] + 0.5 * min(
            lowered[place], lowered[world.parents[place]]
        )
    return lowered


def _baselines(world: World, found: Signals, learn: Flags) -> dict[str, Floats]:
    """Return the scores of the detectors that need no grid."""
    rows = world.embeddings
    centre = rows[learn].mean(axis=0)
    centred = rows - centre
    _, _, axes = np.linalg.svd(
        centred[learn][:: max(1, int(learn.sum()) // 2000)], full_matrices=False
    )
    kept = axes[:48]
    residual = np.linalg.norm(centred - (centred @ kept.T) @ kept, axis=1)
    weights = found.likeness / (found.likeness.sum(axis=1, keepdims=True) + 1e-9)
    near = np.zeros_like(rows)
    for column in range(NEIGHBOURS):
        near += weights[:, column, None] * rows[found.neighbours[:, column]]
    attention = np.linalg.norm(rows - near, axis=1)
    graph = np.hstack((rows @ projection()[:, :128], near @ projection()[:, 128:256]))
    return {
        "statistical_residual": residual,
        "attention_screening": attention,
        "graph_attention": linear(graph, logistic(graph[learn], world.poisoned[learn])),
        "supervised_linear": linear(rows, logistic(rows[learn], world.poisoned[learn])),
    }


def _fitted(world: World, learn: Flags, check: Flags) -> dict[str, Floats]:
    """Return Isolation Forest and One-Class SVM, with the paper's grids chosen on validation."""
    from sklearn.ensemble import IsolationForest
    from sklearn.svm import OneClassSVM

    rows, truth = world.embeddings, world.poisoned
    some = np.flatnonzero(learn)[:1500]
    forest = IsolationForest(n_estimators=200, random_state=0).fit(rows[some])
    best, chosen = -1.0, np.zeros(len(rows))
    look = np.flatnonzero(check)[:1500]
    for nu in (0.01, 0.05, 0.1):
        for gamma in (1 / HASHED, 0.1 / HASHED, 10 / HASHED):
            machine = OneClassSVM(nu=nu, gamma=gamma).fit(rows[some])
            scores = -machine.score_samples(rows[look])
            threshold = best_threshold(scores, truth[look])
            hit = scores >= threshold
            f1 = 2 * (hit & truth[look]).sum() / max(hit.sum() + truth[look].sum(), 1)
            if f1 > best:
                best, kept = float(f1), machine
    chosen = -kept.score_samples(rows)
    return {"isolation_forest": -forest.score_samples(rows), "one_class_svm": chosen}


def _ablations(found: Signals, recognised: Floats, world: World, test: Flags) -> dict[str, float]:
    """Return the AUC without each term of equations 1 and 4."""
    terms = {
        "similarity": Weights(similarity=0.0),
        "stability": Weights(stability=0.0),
        "agreement": Weights(agreement=0.0),
    }
    result: dict[str, float] = {}
    for name, weights in terms.items():
        own = credibility(found.similarity, found.stability, found.agreement, weights)
        scores = poison_probability(own, recognised)
        result[name] = auc(scores[test], world.poisoned[test])
    own = credibility(found.similarity, found.stability, found.agreement)
    result["credibility"] = auc(recognised[test], world.poisoned[test])
    result["recognition"] = auc(1 - own[test], world.poisoned[test])
    result["evidence_graph"] = auc(poison_probability(own, recognised)[test], world.poisoned[test])
    return result


def _effects(world: World, found: Signals, flagged: Flags, test: Flags) -> dict[str, float]:
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
    return {
        "precision": float((caught & truth).sum() / max(caught.sum(), 1)),
        "recall": float((caught & truth).sum() / max((truth & test).sum(), 1)),
        "false_positive_rate": float((caught & ~truth).sum() / max((test & ~truth).sum(), 1)),
        "misbehaviour_before": _misbehaviour(world, found, np.zeros_like(flagged), test),
        "misbehaviour_after": _misbehaviour(world, found, caught, test),
        "hops_before": float(hops[affected].mean()) if affected.any() else 0.0,
        "hops_after": float(after[still].mean()) if still.any() else 0.0,
        "coverage_before": _coverage(world, truth & test, test),
        "coverage_after": _coverage(world, still | (world.injected & test & ~caught), test),
        "success_before": 1
        - _misbehaviour(world, found, np.zeros_like(flagged), test, sharp=False),
        "success_after": 1 - _misbehaviour(world, found, caught, test, sharp=False),
    }


def _coverage(world: World, affected: Flags, test: Flags) -> float:
    """Return the share of a scenario's agents that poison reached, on average."""
    pairs = set(zip(world.scenarios[test].tolist(), world.agents[test].tolist(), strict=True))
    hit = set(zip(world.scenarios[affected].tolist(), world.agents[affected].tolist(), strict=True))
    return len(hit) / max(len(pairs), 1)


def _misbehaviour(
    world: World, found: Signals, withheld: Flags, test: Flags, *, sharp: bool = True
) -> float:
    """Return the share of tasks whose action is not the benign policy's.

    A task acts on the nearest memories of others that are not withheld, by majority.  ``sharp``
    counts those that a benign memory alone would have got right.
    """
    near = found.neighbours[test][:, :RETRIEVED]
    votes = np.zeros((near.shape[0], ACTIONS))
    clean = np.zeros_like(votes)
    usable = ~withheld[near]
    weight = found.likeness[test][:, :RETRIEVED]
    for column in range(near.shape[1]):
        chosen = world.actions[near[:, column]]
        places = np.arange(len(votes))
        votes[places, chosen] += weight[:, column] * usable[:, column]
        clean[places, chosen] += weight[:, column] * ~world.poisoned[near[:, column]]
    wrong = votes.argmax(axis=1) != world.right[test]
    if sharp:
        wrong &= clean.argmax(axis=1) == world.right[test]
    return float(wrong.mean())


def _priorities(world: World, found: Signals, score: Floats, test: Flags) -> dict[str, float]:
    """Return how many poisoned items each reading of equation 5 would repair."""
    made = np.flatnonzero(world.parents >= 0)
    down = Adjacency.of(len(score), world.parents[made].astype(np.int32), made.astype(np.int32))
    hops = down.reach(np.flatnonzero(world.injected).astype(np.int32))
    bad = world.poisoned & test
    printed = priority(ALPHA * 0 + score, np.maximum(hops, 0) / 11, found.agreement)
    ours = priority(score, np.clip(1 - np.maximum(hops, 0) / 11, 0, 1), 1 - found.agreement)
    return {
        "repaired_printed": float((printed[bad] > 0.75).mean()),
        "repaired_ours": float((ours[bad] > 0.75).mean()),
    }


def run(
    draws: int, count: int, progress: Callable[[float], object], slow_draws: int = 5
) -> dict[str, Any]:
    """Return medians and 5-95 % ranges over draws at the main ratio, the ratios, unseen types.

    Args:
        draws: at the main ratio; every other one has an adaptive adversary (C4).
        count: memories of each.
        progress: told the share that is done.
        slow_draws: in how many of them Isolation Forest and One-Class SVM are fitted.
    """
    main: list[Outcome] = []
    for seed in range(draws):
        world = draw(count, MAIN, seed, adaptive=seed % 2 == 1)
        main.append(evaluate(world, seed, slow=seed < slow_draws))
        progress(0.6 * (seed + 1) / draws)
    few = max(2, min(5, draws // 4))
    by_ratio: dict[str, Any] = {}
    for place, ratio in enumerate(RATIOS):
        outcomes = [evaluate(draw(count, ratio, 100 + s), 100 + s) for s in range(few)]
        by_ratio[str(ratio)] = _summary(outcomes)
        progress(0.6 + 0.25 * (place + 1) / len(RATIOS))
    unseen: dict[str, float] = {}
    for number, name in enumerate(TYPES):
        outcomes = [
            evaluate(draw(count, MAIN, 200 + s), 200 + s, unseen=number) for s in range(few)
        ]
        unseen[name] = float(np.median([one.by_type[name] for one in outcomes]))
        progress(0.85 + 0.15 * (number + 1) / len(TYPES))
    return {
        "main": _summary(main),
        "by_ratio": by_ratio,
        "auc_type_unseen": unseen,
        "ranges": RANGES,
    }


def _summary(outcomes: list[Outcome]) -> dict[str, Any]:
    def spread(values: list[float]) -> dict[str, float | int]:
        kept = np.array([value for value in values if np.isfinite(value)])
        if not len(kept):
            return {"n": 0}
        low, middle, high = np.percentile(kept, (5, 50, 95))
        return {
            "median": round(float(middle), 4),
            "p5": round(float(low), 4),
            "p95": round(float(high), 4),
            "n": len(kept),
        }

    def each(name: str) -> dict[str, dict[str, float | int]]:
        names = dict.fromkeys(key for one in outcomes for key in getattr(one, name))
        return {
            key: spread([getattr(one, name)[key] for one in outcomes if key in getattr(one, name)])
            for key in names
        }

    return {part: each(part) for part in ("aucs", "figures", "by_type", "without")}


TABLE_1: Final = {
    "statistical_residual": 0.79,
    "attention_screening": 0.84,
    "graph_attention": 0.88,
    "isolation_forest": 0.86,
    "one_class_svm": 0.87,
    "ours": 0.94,
}
"""AUC in the paper's Table 1; its surrogate claims trends and not these figures."""
TABLE_2: Final = {
    "0.005": (0.97, 4.2, 1.1, 2.0, 0.9),
    "0.01": (0.96, 6.8, 1.3, 2.4, 1.0),
    "0.02": (0.95, 9.7, 1.6, 3.0, 1.1),
    "0.05": (0.94, 15.6, 2.3, 3.8, 1.4),
    "0.1": (0.91, 24.5, 4.8, 5.2, 2.1),
}
"""AUC, misbehaviour (%) and hops before and after in its Table 2, by ratio."""
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
    ("repaired_printed", "fraction"),
    ("repaired_ours", "fraction"),
)


def surrogate(
    draws: int, count: int, progress: Callable[[float], object], slow_draws: int
) -> tuple[list[Check], dict[str, Any]]:
    """Return the figures of the issue, and the tables beside the paper's."""
    try:
        found = run(draws, count, progress, slow_draws)
    except ImportError as error:
        reason = f"the extra `lab` is not installed ({error.name})"
        return [Check(id="surrogate_auc", value=None, unit="auc", reason=reason)], {}
    main = found["main"]
    checks = [_check("surrogate_auc", main["aucs"]["ours"], "auc", ">= 0.96")]
    checks += [_check(f"surrogate_{name}", main["figures"][name], unit) for name, unit in FIGURES]
    return checks, {**found, "paper": {"table_1_auc": TABLE_1, "table_2": TABLE_2}, "items": count}


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
