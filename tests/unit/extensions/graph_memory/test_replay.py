"""The comparison of what was served with what authenticated structure serves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.extensions.graph_memory.graph import Graph, Ranking, Recall
from guard.extensions.graph_memory.ledger import Change, Ledger, Write, Writer
from guard.extensions.graph_memory.replay import is_order, replay, standing
from guard.extensions.graph_memory.selectors.pagerank import PageRank


def graph(edges):
    """Query's entities 0 and 1, an entity 2 and 3 of each of the items 4 and 5."""
    ends = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return Graph(6, np.array([4, 5]), ends[:, 0], ends[:, 1], np.ones(len(ends)))


CLEAN = [(0, 2), (1, 2), (2, 4), (1, 3), (3, 5)]
ASKED = Recall({0: 1.0, 1: 1.0})


ALIKE = [(0, 2), (1, 3), (2, 4), (3, 5)]
"""Items of one score."""
ONE = Recall({0: 1.0})


@pytest.mark.parametrize(
    ("clean", "attack", "asked", "served", "faithful", "stands"),
    [
        pytest.param(CLEAN, [(0, 2)], ASKED, (5, 4), False, None, id="another order"),
        pytest.param(ALIKE, [(2, 2), (3, 3)], ASKED, (4, 5), True, (True, True), id="tie"),
        pytest.param(ALIKE, [(2, 2), (3, 3)], ASKED, (5, 4), True, (True, True), id="or reversed"),
        pytest.param(ALIKE, [(0, 3)], ASKED, (5, 4), True, (True, True), id="broken tie"),
        pytest.param(
            [(1, 2), (2, 3)],
            [(0, 4), (0, 4), (0, 5)],
            ONE,
            (4, 5),
            True,
            (False, False),
            id="only strangers lead there: without them every score is nothing",
        ),
        pytest.param(
            [(0, 2), (2, 4)], [(1, 3)], ONE, (4, 5), True, (True, True), id="nothing leads there"
        ),
    ],
)
def test_an_answer_is_compared_by_place(clean, attack, asked, served, faithful, stands):
    """An order that the replica does not make vouches for nothing; a tie has no order."""
    found = replay(PageRank(), graph([*clean, *attack]), graph(clean), asked, served)
    assert found.faithful is faithful
    if faithful:
        assert standing(found.places) == stands
    else:
        assert (found.vouches(0), found.vouches(1)) == (False, False)


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
    places = tuple(map(Ranking((1, 2, 3)).place, served))
    assert standing(places) == expected


@pytest.mark.parametrize("served", [(1, 1, 2), (1, 2), (1, 2, 4), ()])
def test_an_answer_with_other_items_is_no_order(served):
    """Repeated, missing or foreign items."""
    assert not is_order(served, Ranking((1, 2, 3)))


NODES = 14
ITEMS = range(9, NODES)
ends = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1))
stranger = st.one_of(
    st.tuples(st.just(Change.EDGE), ends, st.sampled_from([0.5, 1.0, 5.0, 100.0])),
    st.tuples(st.just(Change.DELETE_EDGE), ends, st.just(1.0)),
    st.tuples(st.just(Change.MERGE), ends, st.just(1.0)),
    st.tuples(st.just(Change.DELETE_NODE), ends, st.just(1.0)),
)


def curated(edges):
    """Return the curator's writes: every node, every item, and some edges."""
    writes = [
        Write(Change.NODE, f"n{n}", item=n in ITEMS, writer=Writer("curator")) for n in range(NODES)
    ]
    return writes + [
        Write(Change.EDGE, f"n{a}", f"n{b}", writer=Writer("curator")) for a, b in edges
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(ends, min_size=8, max_size=30), st.lists(stranger, max_size=8), st.data())
def test_nothing_vouches_that_authenticated_structure_did_not_put_there(edges, attack, data):
    """Whatever strangers write, an item that vouches has its place without them or a better."""
    alone, ledger = (Ledger(lambda writer: writer.principal == "curator") for _ in range(2))
    alone.extend(curated(edges))
    ledger.extend(curated(edges))
    ledger.extend(
        Write(change, f"n{a}", f"n{b}", weight=weight, writer=Writer("peer"))
        for change, (a, b), weight in attack
    )
    seeds = {data.draw(st.integers(0, 8)): 1.0, data.draw(st.integers(0, 8)): 1.0}
    asked = Recall({ledger.root(node): 1.0 for node in seeds}, top=3)
    served = PageRank().rank(ledger.full, asked).items
    # No merge of the curator's: the authenticated graph numbers every node as it was written.
    unmerged = Recall(seeds, top=3), served
    found = replay(PageRank(), ledger.full, ledger.authentic, asked, served, unmerged=unmerged)
    without = PageRank().rank(alone.full, Recall(seeds, top=3))
    assert found.faithful
    for place, item in enumerate(served):
        if found.vouches(place):
            first = without.place(item)
            assert first is not None
            assert first <= place
