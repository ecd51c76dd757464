"""The paper's experiment on its surrogate: how much is drawn, and the tables beside the paper's.

Ranges are the 5th to 95th percentile over draws, each with parameters of its own.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from guard.replay.reports import Check
from lab.propagation.draws import Draws
from lab.propagation.encoder import TEMPERATURES, Settings
from lab.propagation.evaluation import OURS, evaluate, figures
from lab.propagation.world import (
    ANY,
    CAPABILITIES,
    RANGES,
    TYPES,
    Attack,
    draw,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is drawn."""

    draws: int = 8
    """At the main ratio, with every detector; every other one has an adaptive adversary (C4)."""
    items: int = 8_000
    slow: int = 2
    """Of these, how many have what takes long measured too."""
    few: int = 2
    """Draws of each arm besides."""
    largest: int = 0
    """Items of one more draw, the paper's size; 0 for none."""
    minutes: float = 8.0
    """After which no more than two draws of each kind are made; ``n`` says how many were.  The
    draws at the main ratio have the first 75 % of it."""
    kept: Path | None = None
    """File of draws that were made before, which new ones are added to."""


PAPER_SIZE: Final = 213_684


@dataclass(slots=True)
class _Work:
    """Makes the draws of a plan, and tells what share is done."""

    plan: Plan
    tell: Progress
    draws: Draws
    began: float = field(default_factory=time.perf_counter)
    done: int = 0

    def left(self, share: float = 1.0) -> bool:
        """Return whether there is time left of a share of the plan's."""
        return time.perf_counter() - self.began < share * self.plan.minutes * 60

    def measured(self, seeds: Iterable[int], **how: Any) -> list[Groups]:
        """Return what draws with some seeds show: at least two, and all if there is time."""
        found: list[Groups] = []
        for seed in seeds:
            if self.is_wanted(len(found), seed=seed, **how):
                found.append(self.one(seed, **how))
        return found

    def is_wanted(self, before: int, share: float = 1.0, **how: Any) -> bool:
        """Return whether a draw is part of the result: there is time, or it was made before.

        Args:
            before: draws of its kind that there are.
            share: of the plan's time that its kind has.
            how: it is made, as in :meth:`one`.
        """
        return before < AT_LEAST or self.left(share) or self.draws.has(_named(self.plan, **how))

    def one(
        self, seed: int, attack: Attack = ANY, ratio: float = MAIN, items: int = 0, **how: Any
    ) -> Groups:
        """Return what one draw shows."""
        items = items or self.plan.items
        named = _named(self.plan, seed, attack, ratio, items, **how)
        groups = self.draws.made(
            named, lambda: evaluate(draw(items, ratio, seed, attack), seed, **how)
        )
        self.done += 1
        arms = len(TYPES) + len(CAPABILITIES) + len(TEMPERATURES)
        parts = self.plan.draws + SEEDS * len(RATIOS) + self.plan.few * arms + 1
        self.tell(min(1.0, self.done / parts))
        return groups


def _named(
    plan: Plan, seed: int, attack: Attack = ANY, ratio: float = MAIN, items: int = 0, **how: Any
) -> dict[str, Any]:
    """Return how a draw is made, as JSON values."""
    more = {name: asdict(v) if isinstance(v, Settings) else v for name, v in how.items()}
    return {
        "items": items or plan.items,
        "ratio": ratio,
        "seed": seed,
        "attack": asdict(attack),
        "how": more,
    }


class _Main(NamedTuple):
    """The draws at the main ratio, by what the adversary knows."""

    black_box: list[Groups]
    adaptive: list[Groups]


def run(plan: Plan, tell: Progress) -> dict[str, Any]:
    """Return medians and 5-95 % ranges at the main ratio, by ratio, and of each arm."""
    work, main = _Work(plan, tell, Draws(plan.kept)), _Main([], [])
    for seed in range(plan.draws):
        attack, kept = (CAPABILITIES["C4"], main.adaptive) if seed % 2 else (ANY, main.black_box)
        slow = {"slow": True} if seed >= plan.draws - plan.slow else {}
        how: dict[str, Any] = {"seed": seed, "attack": attack, "others": True, **slow}
        if work.is_wanted(seed, MAIN_SHARE, **how):
            kept.append(work.one(**how))
    result: dict[str, Any] = {
        "main": summary(main.black_box + main.adaptive),
        "black_box": summary(main.black_box),
        "adaptive": summary(main.adaptive),
        "figures": figures(draw(plan.items, MAIN, 0), 0),
    }
    seeds = range(100, 100 + SEEDS)
    result["table_2"] = {
        str(ratio): _table_2(work.measured(seeds, ratio=ratio), plan.items) for ratio in RATIOS
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
    whole: dict[str, Any] = {"seed": 0, "items": plan.largest, "others": True}
    if plan.largest and work.is_wanted(AT_LEAST, **whole):
        result["full_size"] = {"items": plan.largest, **work.one(**whole)}
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
