"""The other selectors: what the structure of a graph can change in each."""

import numpy as np
import pytest

from guard.extensions.graph_memory import selectors
from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.selectors import discover_selectors
from guard.extensions.graph_memory.selectors.rrf import fused

LISTS = ((4, 5, 6), (5, 6, 7))
RECALL = Recall({0: 1.0}, LISTS)


def graph(edges, size=9, items=(4, 5, 6, 7, 8)):
    """Return a graph of edges of weight one."""
    ends = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return Graph(size, np.array(items), ends[:, 0], ends[:, 1], np.ones(len(ends)))


def ranked(name, edges, recall=RECALL):
    """Return what a selector ranks in a graph of these edges."""
    return discover_selectors()[name]().rank(graph(edges), recall).items


def test_every_selector_of_the_issue_is_found():
    """One file is one selector."""
    assert set(discover_selectors()) == {
        "episode_mentions",
        "label_propagation",
        "leiden",
        "node_distance",
        "pagerank",
        "rrf",
        "rrf_bfs",
        "vector",
    }


def test_a_file_that_is_dropped_in_is_a_selector(tmp_path, monkeypatch):
    """Nothing else has to change."""
    source = (
        "from guard.extensions.graph_memory.selectors.base import Selector, first\n"
        "class Newest(Selector):\n"
        "    name = 'newest'\n"
        "    def rank(self, graph, recall):\n"
        "        return first(sorted(graph.items.tolist(), reverse=True), recall)\n"
    )
    (tmp_path / "newest.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(selectors, "__path__", [*selectors.__path__, str(tmp_path)])
    discover_selectors.cache_clear()
    try:
        assert ranked("newest", [(0, 4)], Recall(top=2)) == (8, 7)
    finally:
        discover_selectors.cache_clear()


def test_fusion_sums_reciprocal_places_from_one():
    """As Graphiti: the first place of a list counts one; equal sums keep their order."""
    assert fused(LISTS) == [5, 4, 6, 7]


@pytest.mark.parametrize("name", ["rrf", "vector"])
def test_no_edge_changes_what_content_ranks(name):
    """The two that read no structure return the same on any graph."""
    assert not discover_selectors()[name].reads_structure
    assert ranked(name, [(0, 4)]) == ranked(name, [(0, 7), (0, 8), (1, 8)] * 6)


@pytest.mark.parametrize(
    ("name", "edges", "items"),
    [
        pytest.param("node_distance", [(0, 4)], (4, 5, 6, 7), id="near the centre"),
        pytest.param("node_distance", [(0, 4), (0, 7), (0, 8)], (4, 7, 5, 6), id="no outsider"),
        pytest.param("rrf_bfs", [(1, 8)], (5, 4, 6, 7), id="not found from the seeds"),
        pytest.param("rrf_bfs", [(0, 8)], (5, 4, 8, 6, 7), id="found from the seeds"),
        pytest.param(
            "episode_mentions",
            [(0, 4), (1, 4), (2, 4), (0, 5), (0, 6), (1, 6)],
            (5, 6, 4, 7),
            id="few mentions first and none last, as Graphiti does",
        ),
    ],
)
def test_an_edge_changes_what_structure_ranks(name, edges, items):
    """Node distance reorders its pool only; a search from the seeds brings outsiders in."""
    assert ranked(name, edges) == items


@pytest.mark.parametrize("name", ["leiden", "label_propagation"])
def test_communities_follow_edges(name):
    """A node that many edges join to another community is of that one, and its items follow."""
    one = [(0, 1), (0, 4), (1, 4), (0, 5), (1, 5), (4, 5)]
    two = [(2, 3), (2, 6), (3, 6), (2, 7), (3, 7), (6, 7), (3, 8), (2, 8), (7, 8)]
    edges, recall = [*one, *one, *two, *two], Recall({0: 1.0})
    assert set(ranked(name, edges, recall)) == {4, 5}
    moved = [(0, node) for node in (2, 3, 6, 7, 8)] * 6
    assert {6, 7, 8} <= set(ranked(name, [*edges, *moved], recall))


def test_a_propagation_that_does_not_end_is_not_replayed():
    """A star whose centre and leaves take each other's label for ever."""
    selector = discover_selectors()["label_propagation"]()
    with pytest.raises(ValueError, match="does not end"):
        selector.rank(graph([(0, 1), (0, 1)], 2, (0, 1)), Recall({0: 1.0}))


@pytest.mark.parametrize("name", ["leiden", "label_propagation", "node_distance"])
def test_without_a_centre_nothing_is_ranked(name):
    """A recall that names no entity is not replayed."""
    with pytest.raises(ValueError, match="start from"):
        ranked(name, [(0, 4), (4, 5)], Recall(lists=LISTS))
