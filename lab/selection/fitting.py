"""Fidelity of fitted selectors over a grid of parameters, on answers that the fit has not seen."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.extensions.graph_memory.fit import RecordedAnswer, fit
from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.selectors import selector_from
from guard.replay.reports import Check
from lab.selection.corpora import walked

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES: Final = 90
ITEMS: Final = 45
EDGES: Final = 260
GROUPS: Final = 6
INSIDE: Final = 0.9
ANSWERS: Final = 40
GRID: Final[dict[str, dict[str, tuple[object, ...]]]] = {
    "pagerank": {
        "damping": (0.35, 0.5, 0.63, 0.85, 0.93),
        "directed": (False, True),
        "weights": (True, False),
    },
    "leiden": {"seed": (0, 42), "resolution": (0.7, 1.0, 1.5), "objective": ("modularity",)},
    "label_propagation": {"weights": (True, False), "threshold": (1.0, 0.0)},
    "rrf": {"rank_constant": (1, 60)},
    "rrf_bfs": {"rank_constant": (1, 60), "depth": (1, 3)},
    "node_distance": {"rank_constant": (1, 60)},
    "episode_mentions": {"descending": (False, True)},
    "vector": {},
}
"""True parameters of the stores, by selector."""


def fit_fidelity() -> Check:
    """Return the share of held-out answers that the fitted replica of each store gives alike."""
    alike = answers = 0
    for number, (name, parameters) in enumerate(_stores()):
        graph, recorded = store_of(name, parameters, number)
        if recorded:
            best = fit(graph, recorded, {name})[0]
            alike += round(best.fidelity * best.answers)
            answers += best.answers
    value = alike / answers
    return Check(id="fit_fidelity", value=value, unit="fraction", n=answers, target=">= 0.98")


def _stores() -> Iterator[tuple[str, dict[str, object]]]:
    for name, parameters in GRID.items():
        for values in product(*parameters.values()):
            yield name, dict(zip(parameters, values, strict=True))


def store_of(
    name: str, parameters: dict[str, object], seed: int
) -> tuple[Graph, list[RecordedAnswer]]:
    """Return a random graph, and the answers of a store with a selector on it."""
    random = np.random.default_rng(seed)
    source, target = random.integers(0, NODES, (2, EDGES)).astype(np.int32)
    if name in {"leiden", "label_propagation"}:
        # Communities: most edges stay within a group.
        inside = random.random(EDGES) < INSIDE
        target = np.where(inside, target - target % GROUPS + source % GROUPS, target) % NODES
        target = target.astype(np.int32)
    apart = source != target
    weight = random.choice((0.5, 1.0, 2.0, 4.0), int(apart.sum()))
    items = np.sort(random.choice(NODES, ITEMS, replace=False))
    graph = Graph(NODES, items, source[apart], target[apart], weight)
    selector, recorded = selector_from(name, parameters), []
    for _ in range(ANSWERS):
        seeds = {int(node): 1.0 for node in random.choice(NODES, 2, replace=False)}
        lists = tuple(tuple(random.permutation(items)[:12].tolist()) for _ in range(2))
        content = name not in {"pagerank", "leiden", "label_propagation"}
        recall = Recall(seeds, lists if content else (), top=5)
        try:
            served = (
                walked(graph, recall, parameters)
                if name == "pagerank"
                else selector.rank(graph, recall).items
            )
        except ValueError:
            continue
        if served:
            top = Recall(recall.seeds, recall.lists, top=len(served))
            recorded.append(RecordedAnswer(top, served))
    return graph, recorded
