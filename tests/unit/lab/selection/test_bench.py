"""The selection's bench on a conversation of a few lines: every figure has what it needs."""

from __future__ import annotations

import json

import pytest

from guard.extensions.graph_memory.graph import Recall
from guard.extensions.graph_memory.replay import is_order
from guard.extensions.graph_memory.selectors.pagerank import PageRank
from lab.judged_runs import clustered
from lab.selection.corpora import locomo, walked
from lab.selection.trials import Trials

SUBJECTS = ("pottery", "cycling", "painting", "sailing", "baking")


@pytest.fixture(scope="module")
def entry():
    """Return a made conversation: each subject has a turn, a fact, and a question."""
    turns = [
        {"dia_id": f"D1:{n}", "speaker": "Ann", "text": f"Yesterday {one} near harbour {n}000."}
        for n, one in enumerate(SUBJECTS, 1)
    ]
    facts = [
        [f"Ann enjoys {one} with {SUBJECTS[n % len(SUBJECTS)]} friends.", f"D1:{n}"]
        for n, one in enumerate(SUBJECTS, 1)
    ]
    asked = [
        {"question": f"When did Ann try {one}?", "evidence": [f"D1:{n}"], "category": 1}
        for n, one in enumerate(SUBJECTS, 1)
    ]
    return {
        "sample_id": "made",
        "conversation": {"session_1": turns},
        "observation": {"session_1": {"Ann": facts}},
        "qa": [*asked, {"question": "Why?", "evidence": ["D1:1"], "category": 5}],
    }


@pytest.fixture(scope="module")
def memory(entry, tmp_path_factory):
    """Return the conversation as a memory."""
    path = tmp_path_factory.mktemp("locomo") / "made.json"
    path.write_text(json.dumps([entry]), "utf-8")
    [made] = locomo(path)
    return made


@pytest.fixture(scope="module")
def trials(memory):
    """Return every arm on the conversation, under every defence."""
    made = Trials(PageRank())
    made.run(memory)
    return made


def test_every_defence_is_judged_on_every_arm(trials):
    """The replay lets nothing through but a forged label."""
    assert trials.rows > 0
    for name, tally in trials.tallies.items():
        if name != "adaptive_forged":
            assert tally.rate("ours") == 0.0, name
    assert trials.tallies["passages"].rate("none") > 0.5
    assert set(trials.over_block) == {0.0}
    value, (low, high) = clustered(trials.paired("oracle"))
    assert low <= value <= high


def test_the_reference_ranks_as_the_replica(memory):
    """igraph's order, with items that are not ranked left out of both."""
    graph, selector = memory.graph, PageRank()
    for one in memory.questions:
        without = frozenset(graph.items[:2].tolist())
        for recall in (one.recall, Recall(one.recall.seeds, without=without)):
            assert is_order(walked(graph, recall), selector.rank(graph, recall))
    other = selector.rank(graph, Recall({int(memory.all_entities[-1]): 1.0}))
    assert not is_order(walked(graph, memory.questions[0].recall), other)
