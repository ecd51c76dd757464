"""The certified order of PageRank, beside igraph's."""

from itertools import pairwise

import igraph
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.replay import is_order
from guard.extensions.graph_memory.selectors import pagerank
from guard.extensions.graph_memory.selectors.pagerank import PageRank


def graph_of(edges, size, items):
    """Return a graph of (end, end, weight) triples."""
    ends = np.array([(a, b) for a, b, _ in edges], dtype=np.int32).reshape(-1, 2)
    weight = np.array([w for _, _, w in edges], dtype=np.float64)
    return Graph(size, np.array(items, dtype=np.int64), ends[:, 0], ends[:, 1], weight)


def reference(graph, recall):
    """Return igraph's scores of every node."""
    other = igraph.Graph(n=graph.size, edges=np.column_stack([graph.source, graph.target]))
    reset = np.zeros(graph.size)
    reset[list(recall.seeds)] = list(recall.seeds.values())
    return np.array(
        other.personalized_pagerank(
            damping=0.5,
            directed=False,
            weights=graph.weight.tolist(),
            reset=reset.tolist(),
            implementation="prpack",
        )
    )


def random_graph(rng, size=200, edges=800):
    """Return a graph without loops, a third of whose nodes are items."""
    pairs = rng.integers(0, size, (edges, 2)).astype(np.int32)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    weight = rng.choice([0.5, 1.0, 2.0], len(pairs))
    return Graph(size, np.arange(0, size, 3), pairs[:, 0], pairs[:, 1], weight)


@pytest.mark.parametrize("seed", range(12))
def test_the_order_is_igraphs(seed):
    """Whatever the graph, the first five are those of the library that HippoRAG calls."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    recall = Recall({int(node): 1.0 for node in rng.choice(graph.size, 3, replace=False)})
    scores = reference(graph, recall)[graph.items]
    best = np.lexsort((graph.items, -np.round(scores, 11)))[:5]
    assert is_order(graph.items[best].tolist(), PageRank().rank(graph, recall))
    assert np.abs(PageRank().scores(graph, recall) - reference(graph, recall)).max() < 1e-10


@pytest.mark.parametrize("seed", range(4))
def test_pushing_and_stepping_agree(seed, monkeypatch):
    """A large graph, where single nodes are pushed, has the order of steps over all of it."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 2000, 9000)
    recall = Recall({int(node): 1.0 for node in rng.choice(graph.size, 2, replace=False)})
    stepped = PageRank().rank(graph, recall)
    monkeypatch.setattr(pagerank, "SMALL", 100)
    pushed = PageRank().rank(graph, recall)
    assert pushed.certified
    assert stepped.items == pushed.items


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_certificate_is_never_wrong(data):
    """What is certified is the exact order: no error within the bound changes it."""
    size = data.draw(st.integers(3, 14))
    node = st.integers(0, size - 1)
    weights = st.sampled_from([0.25, 1.0, 3.0])
    edges = data.draw(st.lists(st.tuples(node, node, weights), min_size=1, max_size=40))
    graph = graph_of(edges, size, list(range(size)))
    recall = Recall({data.draw(node): 1.0, data.draw(node): 2.0}, top=3)
    ranking = PageRank().rank(graph, recall)
    scores = PageRank().scores(graph, recall)
    found = [scores[item] for item in ranking.items]
    assert found == sorted(found, reverse=True) or np.allclose(found, sorted(found)[::-1])
    beyond = np.delete(scores, list(ranking.items))
    assert not len(beyond) or beyond.max() <= found[-1] + 1e-12
    if ranking.certified:
        assert all(a > b for a, b in pairwise(found))


def test_equal_scores_are_a_tie_and_not_an_order():
    """Two items that nothing tells apart share a place, so that either may be served first."""
    graph = graph_of([(0, 1, 1.0), (0, 2, 1.0), (0, 3, 5.0)], 4, [1, 2, 3])
    ranking = PageRank().rank(graph, Recall({0: 1.0}, top=3))
    assert not ranking.certified
    assert ranking.items == (3, 1, 2)
    assert ranking.place(1) == ranking.place(2) == 1
    assert is_order((3, 2, 1), ranking)
    assert not is_order((1, 3, 2), ranking)


@pytest.mark.parametrize("seeds", [{}, {0: 0.0}, {0: -1.0, 1: 3.0}, {0: float("nan")}])
def test_a_recall_that_starts_nowhere_is_not_ranked(seeds):
    """No seed, no weight, or a weight that is none: nothing is served as ranked."""
    graph = graph_of([(0, 1, 1.0)], 2, [0, 1])
    with pytest.raises(ValueError, match="start from"):
        PageRank().rank(graph, Recall(seeds))


def test_a_tie_on_a_large_graph_is_not_pushed_for_ever(monkeypatch):
    """What a narrow bound does not prove is equal: it is computed to full precision instead."""
    monkeypatch.setattr(pagerank, "SMALL", 10)
    pushed = []
    entries = pagerank._entries
    monkeypatch.setattr(pagerank, "_entries", lambda *given: pushed.append(1) or entries(*given))
    leaves = [(0, leaf, 1.0) for leaf in range(1, 40)]
    ranking = PageRank().rank(graph_of(leaves, 40, list(range(1, 40))), Recall({0: 1.0}))
    assert not ranking.certified
    assert ranking.items == (1, 2, 3, 4, 5)
    assert ranking.place(39) == 0
    assert len(pushed) < 200
