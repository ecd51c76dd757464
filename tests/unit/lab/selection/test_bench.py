"""The selection's bench on a conversation of a few lines: every figure has what it needs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from guard.graph_memory.audit import exposure
from guard.graph_memory.graph import Recall
from guard.graph_memory.selectors.pagerank import PageRank
from guard.lab.selection import cost
from guard.lab.selection.benign import Benign
from guard.lab.selection.corpora import generated, locomo, with_passages
from guard.lab.selection.plots import draw_audit, draw_cost
from guard.lab.selection.reference import Reference
from guard.lab.selection.trials import Trials, clustered

SUBJECTS = ("pottery", "cycling", "painting", "sailing", "baking", "chess", "botany", "rowing")


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
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
    entry = {
        "sample_id": "made",
        "conversation": {"session_1": turns},
        "observation": {"session_1": {"Ann": facts}},
        "qa": [*asked, {"question": "Why?", "evidence": ["D1:1"], "category": 5}],
    }
    path = tmp_path_factory.mktemp("locomo") / "made.json"
    path.write_text(json.dumps([entry]), "utf-8")
    [made] = locomo(path)
    return made


def test_questions_without_an_answer_are_left_out(memory):
    """One question for each subject; its entities are the query's."""
    assert len(memory.questions) == len(SUBJECTS)
    assert all(len(one.evidence) == 1 for one in memory.questions)


def test_every_defence_is_judged_on_every_arm(memory):
    """The replay lets nothing through but a forged label."""
    trials = Trials(PageRank(), further=True)
    trials.run(memory)
    assert trials.rows > 0
    for name, tally in trials.tallies.items():
        if name != "adaptive_forged":
            assert tally.rate("ours") == 0.0, name
    assert trials.tallies["passages"].rate("none") > 0.5
    assert set(trials.over_block) == {0.0}
    by_recall = [
        np.mean([np.mean(row) for row in rows.values()]) for rows in trials.recalls.values()
    ]
    assert by_recall == sorted(by_recall, reverse=True), "more knowledge, no more harm"
    value, (low, high) = trials.paired("oracle")
    assert low <= value <= high


def test_passages_are_restarted_at_and_are_no_entities_of_the_query(memory):
    """As HippoRAG 2 has it; an attack still begins at the entities alone."""
    changed = with_passages(memory)
    items = set(memory.graph.items.tolist())
    assert any(items & one.recall.seeds.keys() for one in changed.questions)
    trials = Trials(PageRank(), further=False)
    trials.run(changed)
    assert trials.tallies["oracle"].rate("ours") == 0.0


def test_the_benign_share_is_one_figure_a_question(memory):
    """Three draws of a question are one row."""
    benign = Benign()
    benign.run(memory, PageRank())
    assert len(benign.asked) == len(memory.questions)


def test_the_reference_ranks_as_the_replica(memory):
    """igraph's order, with items that are not ranked left out of both."""
    reference, selector = Reference(memory.graph), PageRank()
    for one in memory.questions:
        without = frozenset(memory.graph.items[:2].tolist())
        for recall in (one.recall, Recall(one.recall.seeds, without=without)):
            assert reference.agrees(recall, selector.rank(memory.graph, recall))
    other = selector.rank(memory.graph, Recall({int(memory.all_entities[-1]): 1.0}))
    assert not reference.agrees(memory.questions[0].recall, other)


def test_costs_and_the_audit_are_plotted(memory, tmp_path, monkeypatch):
    """Over size and over untrusted share; bytes per edge of ledgers that were really loaded."""
    monkeypatch.setattr(cost, "SIZES", (500, 1000))
    monkeypatch.setattr(cost, "MIDDLE", 1000)
    monkeypatch.setattr(cost, "SHARES", (0.0, 0.3, 0.9))
    monkeypatch.setattr(cost, "CURVED", 3)
    done: list[float] = []
    points = cost.curves(done.append)
    assert done[-1] == 1.0
    assert [(p.edges, p.untrusted) for p in points] == [
        (500, 0.3), (1000, 0.3), (1000, 0.0), (1000, 0.9),
    ]  # fmt: skip
    ledgers = [cost.ledger_cost(size, done.append) for size in (1000, 2000)]
    assert all(one["bytes_per_edge_redis"] > 0 for one in ledgers)
    draw_cost(points, ledgers, tmp_path / "cost.svg")
    seen = [exposure(PageRank(), memory.graph, one.recall) for one in memory.questions[:3]]
    draw_audit(seen, tmp_path / "audit.svg")
    for name in ("cost.svg", "audit.svg"):
        assert "<svg" in (tmp_path / name).read_text("utf-8")


def test_a_timing_counts_what_was_certified():
    """Every order on a generated graph is proved, and is igraph's."""
    found = cost.timing(2000, 10_000, queries=8)
    assert (found.n, found.same, found.certified) == (8, 1.0, 1.0)
    assert generated(2000, 10_000, 0).size == found.nodes


def test_an_interval_is_of_questions():
    """The same rows give the same interval; no rows give none that says something."""
    assert clustered([1.0, 0.0, 1.0]) == clustered([1.0, 0.0, 1.0])
    assert clustered([]) == (0.0, (0.0, 0.0))
