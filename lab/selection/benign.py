"""The cost of the defence without an attack: untrusted structure that is correct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from guard.extensions.graph_memory.replay import replay
from lab.selection.trials import SEEDS

if TYPE_CHECKING:
    from guard.extensions.graph_memory.graph import Graph
    from guard.extensions.graph_memory.selectors import Selector
    from lab.selection.corpora import Memory

UNTRUSTED: Final = 0.3
"""Share of the facts that nobody authenticated has written."""


def asked_about(memory: Memory, selector: Selector) -> list[float]:
    """Return for each question the share of draws of untrusted facts in which it is asked about."""
    graphs = [_without_facts(memory, seed) for seed in SEEDS if memory.questions]
    return [
        float(
            np.mean(
                [
                    not replay(selector, memory.graph, authentic, question.recall).vouches(0)
                    for authentic in graphs
                ]
            )
        )
        for question in memory.questions
    ]


def _without_facts(memory: Memory, seed: int) -> Graph:
    """Return the graph without a random share of its facts."""
    drawn = np.random.default_rng([seed, memory.facts]).random(memory.facts) < UNTRUSTED
    of_fact = memory.fact >= 0
    return memory.graph.kept(~(of_fact & drawn[np.maximum(memory.fact, 0)]))
