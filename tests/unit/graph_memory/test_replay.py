"""The comparison of what was served with what authenticated structure serves."""

from __future__ import annotations

import numpy as np
import pytest

from guard.graph_memory.graph import Graph, Ranking, Recall
from guard.graph_memory.replay import is_order, replay, stands
from guard.graph_memory.selectors.pagerank import PageRank


def graph(edges):
    """Query's entities 0 and 1, an entity 2 and 3 of each of the items 4 and 5."""
    ends = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return Graph(6, np.array([4, 5]), ends[:, 0], ends[:, 1], np.ones(len(ends)))


CLEAN = [(0, 2), (1, 2), (2, 4), (1, 3), (3, 5)]
ATTACK = [(0, 3), (1, 3), (0, 3), (1, 3), (0, 3), (1, 3)]
ASKED = Recall({0: 1.0, 1: 1.0})


def test_six_edges_move_an_item_up_and_it_no_longer_stands():
    """The item that comes first through edges of a stranger vouches for nothing; the other does."""
    found = replay(PageRank(), graph([*CLEAN, *ATTACK]), graph(CLEAN), ASKED)
    assert found.served == (5, 4)
    assert found.authentic == (4, 5)
    assert found.faithful
    assert found.stands == (False, True)
    assert found.diverged
    assert not found.vouches(0)


def test_an_order_that_the_replica_does_not_make_is_not_faithful():
    """Served otherwise than the replica's full graph says: nothing of it vouches."""
    clean = graph(CLEAN)
    found = replay(PageRank(), graph([*CLEAN, (0, 2)]), clean, ASKED, (5, 4))
    assert not found.faithful
    assert not found.vouches(0)
    assert not found.vouches(1)


def test_without_untrusted_structure_nothing_is_run():
    """One graph: the answer stands as it is, and no selector is asked."""
    clean = graph(CLEAN)
    found = replay(None, clean, clean, ASKED, (4, 5))
    assert found.faithful
    assert found.stands == (True, True)


def test_a_selector_is_needed_where_there_are_two_graphs():
    """Nothing is replayed by nobody."""
    with pytest.raises(ValueError, match="selector"):
        replay(None, graph(CLEAN), graph(CLEAN), ASKED, (4, 5))


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ((1, 2, 3), (True, True, True)),
        ((2, 1, 3), (False, True, True)),
        ((9, 1, 2), (False, True, True)),
        ((1, 3, 2), (True, False, True)),
    ],
)
def test_an_item_stands_where_its_authenticated_place_is_no_worse(served, expected):
    """What fell stands; what rose, or was not there, does not."""
    assert stands(served, Ranking((1, 2, 3))) == expected


@pytest.mark.parametrize("served", [(1, 1, 2), (1, 2), (1, 2, 4), ()])
def test_an_answer_with_other_items_is_no_order(served):
    """Repeated, missing or foreign items."""
    assert not is_order(served, Ranking((1, 2, 3)))
