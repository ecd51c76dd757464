"""The selection's bench on a conversation of a few lines: every figure has what it needs."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from guard.content.account_numbers import is_iban
from guard.core.errors import InputError
from guard.graph_memory.audit import exposure
from guard.graph_memory.graph import Recall
from guard.graph_memory.replay import SelectionReplay
from guard.graph_memory.selectors.leiden import Leiden
from guard.graph_memory.selectors.node_distance import NodeDistance
from guard.graph_memory.selectors.pagerank import PageRank
from lab.selection import cost
from lab.selection.benign import Benign, released
from lab.selection.corpora import generated, locomo, with_passages
from lab.selection.live import iban
from lab.selection.paper_comparison import PAPER, paper_comparison
from lab.selection.plots import draw_audit, draw_cost
from lab.selection.reference import Reference
from lab.selection.trials import Parted, Pooled, Trials, clustered

SUBJECTS = ("pottery", "cycling", "painting", "sailing", "baking", "chess", "botany", "rowing")


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


def test_questions_without_an_answer_are_left_out(memory):
    """One question for each subject; its entities are the query's."""
    assert len(memory.questions) == len(SUBJECTS)
    assert all(len(one.evidence) == 1 for one in memory.questions)


@pytest.fixture(scope="module")
def trials(memory):
    """Return every arm on the conversation, under every defence."""
    made = Trials(PageRank(), further=True)
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
    assert (found.same, found.certified) == (1.0, [True] * 8)
    assert found.table()["n"] == 8
    low, high = cost.interval_of(found.cpu, 50)
    assert low <= cost.percentile(found.cpu, 50) <= high
    assert generated(2000, 10_000, 0).size == found.nodes


def test_an_interval_is_of_questions():
    """The same rows give the same interval; no rows give none that says something."""
    assert clustered([1.0, 0.0, 1.0]) == clustered([1.0, 0.0, 1.0])
    assert clustered([]) == (0.0, (0.0, 0.0))


ODD = {
    "no-observation": {"observation": None},
    "facts-as-texts": {"observation": {"s": {"Bo": ["Bo enjoys pottery."]}}},
    "foreign-facts": {"observation": {"s": {"Ann": [[], [7], {"x": 1}, None], "Bo": "x"}, "t": []}},
    "no-questions": {"qa": None},
    "odd-questions": {
        "qa": [None, {}, {"question": 7, "evidence": ["D1:1"]}, {"question": "Why pottery?"},
               {"question": "When did Ann try pottery?", "evidence": "D1:1; D1:2"}],
    },
    "odd-turns": {
        "conversation": {"session_1": [None, {}, {"dia_id": "D1:1", "speaker": "Bo"},
                                       {"dia_id": "D1:2", "speaker": "Zoë", "text": None}],
                         "session_2": "none", "session_1_date_time": "noon"},
    },
}  # fmt: skip


@pytest.mark.parametrize("changed", ODD.values(), ids=ODD)
@pytest.mark.parametrize("packed", [True, False], ids=["gz", "plain"])
def test_what_a_conversation_lacks_is_left_out(entry, tmp_path, changed, packed):
    """Other speakers, missing members, other forms; the rest is measured as ever."""
    entries = [{**entry, **changed}, {**entry, "sample_id": "other"}]
    path = tmp_path / ("c.json" if packed else "c.json.gz")
    data = json.dumps(entries).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    odd, other = locomo(path)
    assert len(other.questions) == len(SUBJECTS)
    trials, benign, parted = Trials(PageRank(), further=False), Benign(), Parted()
    for one in (odd, with_passages(odd)):
        trials.run(one)
        benign.run(one, PageRank())
    parted.run(odd, Leiden, 1)
    assert parted.table()["n"] <= 1


@pytest.mark.parametrize("text", ["{", "[1]", '{"qa": []}', '"x"'])
def test_a_file_without_conversations_is_named(tmp_path, text):
    """Not a traceback in the middle of the run."""
    path = tmp_path / "odd.json"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=r"odd\.json"):
        list(locomo(path))


def test_an_advisory_read_is_judged_as_it_is_released(memory):
    """With the guard's own note, or in its order: not as the memory answered."""
    graph = memory.graph
    one, two, *_ = graph.items.tolist()
    found = SelectionReplay((two, one), (one, two), faithful=True, places=(1, 0))
    assert released(found, substituted=False) == two
    assert released(found, substituted=True) == one
    nothing = SelectionReplay((two,), (), faithful=True, places=(None,))
    assert released(nothing, substituted=True) is None


def test_every_row_of_the_papers_tables_has_ours_beside_it(memory, trials):
    """What was not measured, and what the seed text lost, is None."""
    pooled = Pooled()
    pooled.run(memory, NodeDistance())
    arms = {name: tally.table() for name, tally in trials.tallies.items()}
    parted = Parted()
    parted.run(memory, Leiden, 1)
    tables = paper_comparison(
        {
            "locomo": arms, "2wiki": {}, "leiden": parted.table(), "reliance": {"pagerank": 0.5},
            "rrf": pooled.table(), "node_distance": pooled.table(),
            "label_recall": {"0.6": (0.5, (0.4, 0.6))},
        }
    )  # fmt: skip
    assert set(tables) == set(PAPER)
    for name, rows in PAPER.items():
        assert rows.keys() <= tables[name].keys()
        assert all(tables[name][row]["paper"] == told for row, told in rows.items())
    assert tables["table_1"]["ppr"]["ours"]["reliance"] == 0.5
    assert tables["table_2_blind"]["ppr_musique_150q"]["ours"] is None
    assert tables["table_3_harm"]["oracle"]["ours"]["ours"] == 0.0
    assert tables["table_6_harm_by_label_recall"]["0.6"] == {"paper": 0.035, "ours": 0.5}


@pytest.mark.parametrize("number", range(80))
def test_accounts_of_the_end_to_end_run_are_accounts(number):
    """With check digits, and no two alike."""
    assert is_iban(iban(number))
    assert len({iban(n) for n in range(80)}) == 80


def test_a_recall_without_strangers_is_timed_as_the_guard_does_it():
    """Each answer stands, its items and question read; the first, which loads, is not in."""
    spent = cost.noop(300, 1500, queries=6)
    assert len(spent) == 5
    assert min(spent) > 0
