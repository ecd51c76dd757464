"""The paper's surrogate: memories of agents in multi-particle environments, poisoned in three ways.

States come from ``mpe2``; a memory has state, context, action, tags, provenance and outcome.  What
the paper leaves open is drawn from :data:`RANGES`, which were written down before any detector ran
on them.  Ground truth is the script's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from guard.propagation.hashed_text import HASHED

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
CAMOUFLAGE: Final = 0.90
"""Cosine of a type II item with the nearest benign centroid, at least."""
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
    "similarity": (0.2, 1.0),
    "stability": (0.2, 1.0),
    "agreement": (0.2, 1.0),
}
"""What the paper does not state, drawn evenly per draw: weights of a memory's fields in its
embedding and the noise per dimension; strength of an instruction template; agents that the
adversary holds and the share of poison that goes through others; how often tasks go well with good
and with poisoned memories; share of items made from an earlier one, of reuses of poison that carry
it on; how much credibility an item takes on from its neighbours; the lambdas of equation 1, of
which only the ratio counts."""


@dataclass(frozen=True, slots=True)
class Attack:
    """What the adversary can do and knows."""

    kinds: tuple[int, ...] = (0, 1, 2)
    """Types that he injects, by number."""
    adaptive: bool = False
    """He knows the signals: his outcomes look good and his instruction templates are faint."""
    modifies: bool = False
    """He changes the action of items that are there, whose embedding and outcome stay."""


ANY: Final = Attack()
CAPABILITIES: Final = {
    "C1": Attack(kinds=(0, 1)),
    "C2": Attack(kinds=(1,), modifies=True),
    "C3": Attack(kinds=(2,)),
    "C4": Attack(adaptive=True),
}
"""The paper's axes, each by itself: injection, modification, collusion, known defence."""


@lru_cache(maxsize=5)
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

    @property
    def domains(self) -> Ints:
        """Return the task domain of each memory."""
        return self.scenarios % len(DOMAINS)

    @property
    def goals(self) -> Floats:
        """Return what triggers each memory: the direction (n x 2, unit) in which the goal lies."""
        found: Floats = unit(self.states[:, 4:6])
        return found


def draw(count: int, ratio: float, seed: int, attack: Attack = ANY) -> World:
    """Return one draw of the surrogate.

    Args:
        count: memories.
        ratio: share of them that is injected.
        seed: of everything, the parameters included.
        attack: what the adversary can do.
    """
    chance = np.random.default_rng(seed)
    given = {name: float(chance.uniform(*bounds)) for name, bounds in RANGES.items()}
    if attack.adaptive:
        given["poisoned_outcome"], given["template"] = given["good_outcome"], 0.2
    states, agents, scenarios = observations(count, seed % 5)
    agents = agents.copy()
    angle = np.arctan2(states[:, 5], states[:, 4])
    right = ((angle + np.pi) / (2 * np.pi) * ACTIONS).astype(np.int64) % ACTIONS
    actions = np.where(chance.random(count) < 0.95, right, chance.integers(0, ACTIONS, count))
    before = actions
    injected = np.zeros(count, dtype=bool)
    injected[chance.choice(np.arange(count // 50, count), int(count * ratio), replace=False)] = True
    kinds = np.where(injected, np.array(attack.kinds)[_even(chance, len(attack.kinds), count)], -1)
    wrong = (right + chance.integers(1, ACTIONS, count)) % ACTIONS
    # Type III: colluding agents agree on one wrong action per scenario.
    agreed = chance.integers(0, ACTIONS, SCENARIOS)[scenarios]
    agreed = np.where(agreed == right, (agreed + 1) % ACTIONS, agreed)
    actions = np.where(injected, np.where(kinds == TYPES.index("III"), agreed, wrong), actions)
    held = chance.choice(AGENTS, int(given["compromised"]), replace=False)
    by_held = injected & (chance.random(count) > given["through_others"])
    agents[by_held] = chance.choice(held, int(by_held.sum()))
    parents, carried = _reuse(chance, scenarios, injected, given)
    poisoned = injected | carried
    copied = carried & (parents >= 0)
    # Parents come first, so a chain of copies has the action of its first.
    for place in np.flatnonzero(copied):
        actions[place], kinds[place] = actions[parents[place]], kinds[parents[place]]
    badly = poisoned & ~injected if attack.modifies else poisoned
    went_well = np.where(badly, given["poisoned_outcome"], given["good_outcome"])
    outcomes = chance.random(count) < went_well
    shown = (np.where(injected, before, actions), np.where(injected, -1, kinds))
    embeddings = _embeddings(
        chance, states, scenarios, *(shown if attack.modifies else (actions, kinds)), given
    )
    return World(
        embeddings, states, agents, scenarios, actions, right, outcomes, poisoned, injected, kinds,
        parents, given,
    )  # fmt: skip


def _even(chance: np.random.Generator, sorts: int, count: int) -> Ints:
    return chance.integers(0, sorts, count)


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
    rows = (given["scenario"] * directions(SCENARIOS))[scenarios]
    rows += given["state"] * spread @ directions(states.shape[1])
    rows += (given["context"] * directions(SCENARIOS * 4))[scenarios * 4 + len(DOMAINS) % 4]
    rows += (given["action"] * directions(ACTIONS))[actions]
    tags = chance.integers(0, 40, len(rows))
    rows += (given["tags"] * directions(40))[tags]
    noise = chance.standard_normal(rows.shape, dtype=np.float32)
    noise *= given["noise"]
    rows += noise
    templates = directions(6)
    first = kinds == TYPES.index("I")
    rows[first] += given["template"] * templates[chance.integers(0, 6, int(first.sum()))]
    rows = unit(rows)
    second = np.flatnonzero(kinds == TYPES.index("II"))
    if len(second):
        centres = np.stack(
            [rows[(scenarios == s) & (kinds < 0)].mean(axis=0) for s in range(SCENARIOS)]
        )
        rows[second] = _near(rows[second], unit(centres)[scenarios[second]])
    return rows.astype(np.float32)


def unit(rows: Floats) -> Floats:
    """Return rows of length one."""
    found: Floats = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9)
    return found


def _near(rows: Floats, centres: Floats) -> Floats:
    """Return rows moved towards their centres until the cosine is ``CAMOUFLAGE``."""
    along = (rows * centres).sum(axis=1, keepdims=True)
    across = unit(rows - along * centres)
    cosine = np.maximum(along, CAMOUFLAGE)
    moved: Floats = cosine * centres + np.sqrt(1 - cosine**2) * across
    return moved


def with_agents_inactive(world: World, share: float, seed: int) -> World:
    """Return the world without the memories of some agents: they vouch for nothing any more."""
    chance = np.random.default_rng(seed)
    gone = chance.choice(AGENTS, int(AGENTS * share), replace=False)
    kept = np.flatnonzero(~np.isin(world.agents, gone))
    number = np.full(len(world.agents), -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    parents = np.where(world.parents >= 0, number[world.parents], -1)
    return World(
        world.embeddings[kept], world.states[kept], world.agents[kept], world.scenarios[kept],
        world.actions[kept], world.right[kept], world.outcomes[kept], world.poisoned[kept],
        world.injected[kept], world.kinds[kept], parents[kept], world.parameters,
    )  # fmt: skip


def with_interference(world: World, strength: float, seed: int) -> World:
    """Return the world with noise of some length added to every embedding."""
    chance = np.random.default_rng(seed)
    noise = chance.standard_normal(world.embeddings.shape, dtype=np.float32)
    return replace(world, embeddings=unit(world.embeddings + strength / np.sqrt(HASHED) * noise))
