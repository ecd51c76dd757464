"""Budgets at which an attack is found, and at which there is none."""

import itertools

import numpy as np
import pytest

from guard.extensions.graph_memory.audit import exposure
from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.selectors.pagerank import PageRank


def test_the_attack_that_was_found_flips_and_one_edge_less_does_not():
    """Item 2 hangs on the seed by a heavy edge, item 3 further away."""
    asked, selector = Recall({0: 1.0}), PageRank()
    ends = np.array([(0, 0, 1), (2, 1, 3)], dtype=np.int32)
    made = Graph(4, np.array([2, 3]), *ends, np.array([5.0, 1.0, 1.0]))
    found = exposure(selector, made, asked)
    assert (found.first, found.towards) == (2, 3)
    for edges, first in ((found.flipped, 3), (found.flipped - 1, 2)):
        after = made.joined([0] * edges, [3] * edges, [1.0] * edges)
        assert selector.rank(after, asked).items[0] == first


@pytest.mark.parametrize("entities_only", [False, True])
def test_what_is_said_to_be_immune_is(entities_only):
    """No attack is found within a budget that is proved, whatever the graph."""
    rng = np.random.default_rng(0)
    proved = 0
    for _ in range(20):
        ends = rng.integers(0, 30, (60, 2)).astype(np.int32)
        made = Graph(30, np.arange(20, 30), ends[:, 0], ends[:, 1], rng.uniform(50, 500, 60))
        seeds = {int(ends[0, 0]): 1.0}
        found = exposure(PageRank(), made, Recall(seeds), entities_only=entities_only)
        proved += found.immune
        assert found.flipped is None or found.immune < found.flipped
    assert proved > 0


def test_no_edges_at_all_change_an_item_that_is_immune():
    """Every choice of a few edges in a small graph, one after the other."""
    rng = np.random.default_rng(3)
    pairs = list(itertools.combinations(range(8), 2))
    proved = 0
    for number in range(2):
        ends = rng.integers(0, 8, (14, 2)).astype(np.int32)
        made = Graph(8, np.arange(4, 8), ends[:, 0], ends[:, 1], rng.uniform(100, 900, 14))
        asked, selector = Recall({int(ends[0, 0]): 1.0, number % 4: 1.0}), PageRank()
        found = exposure(selector, made, asked)
        for budget in range(1, min(found.immune, 2) + 1):
            proved += 1
            for edges in itertools.combinations_with_replacement(pairs, budget):
                one, two = zip(*edges, strict=True)
                after = selector.rank(made.joined(one, two, [1.0] * budget), asked)
                assert after.items[0] == found.first
    assert proved > 0
