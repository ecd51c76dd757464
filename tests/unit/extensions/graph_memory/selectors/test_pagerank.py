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


def random_graph(rng):
    """Return a graph without loops, a third of whose nodes are items."""
    pairs = rng.integers(0, 200, (800, 2)).astype(np.int32)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    weight = rng.choice([0.5, 1.0, 2.0], len(pairs))
    return Graph(200, np.arange(0, 200, 3), pairs[:, 0], pairs[:, 1], weight)


@pytest.mark.parametrize("small", [pagerank.SMALL, 100], ids=["stepped", "pushed"])
@pytest.mark.parametrize("seed", range(8))
def test_the_order_is_igraphs(seed, small, monkeypatch):
    """Whatever the graph, the first five are those of the library that HippoRAG calls.

    Large graphs push single nodes; small ones take steps over all of them.
    """
    monkeypatch.setattr(pagerank, "SMALL", small)
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    recall = Recall({int(node): 1.0 for node in rng.choice(graph.size, 3, replace=False)})
    scores = reference(graph, recall)[graph.items]
    best = np.lexsort((graph.items, -np.round(scores, 11)))[:5]
    assert is_order(graph.items[best].tolist(), PageRank().rank(graph, recall))
    assert np.abs(PageRank().scores(graph, recall) - reference(graph, recall)).max() < 1e-10


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
