"""What the reader of steering text is trained on can be drawn again, and kept apart."""

import json
from collections import Counter

import pytest

pytest.importorskip("sklearn")

from lab.steering import corpus
from lab.steering.corpus import (
    DEFINED,
    SETS,
    generated,
    read_phrases,
    recorded_cases,
    written_cases,
)
from lab.steering.fitting import WRITERS


def test_the_same_seed_draws_the_same_texts():
    """Of many intents, with every slot filled, attacks and honest ones of both kinds."""
    found = list(generated(3))

    assert found == list(generated(3))
    assert {(one.page, one.attack) for one in found} == {
        (page, attack) for page in (False, True) for attack in (False, True)
    }
    assert not any("{host}" in part or "{data}" in part for one in found for part in one.said)
    assert len({one.family for one in found if one.attack}) > 200


def test_what_has_one_score_is_a_passage():
    """With what the tool is for, or what a page begins with; one that speaks to nobody has none."""
    found = written_cases()

    assert all(one.page is case.page for case in found for one in case.cut)
    assert all(case.cut for case in found if not case.page)
    assert {case.page for case in found if case.cut and case.cut[0].purpose} == {True, False}
    assert any(case.page and not case.cut for case in found)


def test_answers_of_honest_runs_and_articles_are_honest_pages(tmp_path, monkeypatch):
    """What a run with an attack recorded is not read; articles are drawn."""
    monkeypatch.setattr(corpus, "ARTICLES", 2)
    runs = [
        {"labels": {"attack": attack}, "calls": [{"result": f"You {attack}."}, {"result": None}]}
        for attack in (True, False)
    ]
    recorded, articles = tmp_path / "runs.jsonl", tmp_path / "articles.json"
    recorded.write_text("\n".join(map(json.dumps, runs)))
    articles.write_text(json.dumps([{"title": f"You {n}", "text": "Sleep."} for n in range(9)]))

    found = recorded_cases([recorded, articles])

    assert Counter(one.held_out for one in found) == {corpus.RESULT: 2, corpus.ARTICLE: 2}
    assert not any(one.attack for one in found)
    assert ("You False.",) in [passage.said for one in found for passage in one.cut]
    assert ("You True.",) not in [passage.said for one in found for passage in one.cut]


def test_every_slot_has_a_bank():
    """A template with a slot that nobody fills would be text of no kind."""
    assert all(read_phrases().banks.values())


def test_texts_written_by_hand_are_of_both_kinds_and_labels_and_none_is_written_twice():
    """At least a hundred of each label by each writer who is left out, and a few short ones."""
    found = written_cases()
    found = [one for one in found if not one.held_out.startswith(DEFINED)]
    count = Counter((one.held_out, one.page, one.attack) for one in found)

    short = {count.pop(("short", False, attack)) for attack in (True, False)}
    short.add(count.pop(("records", True, False)))
    assert set(count) == {
        (writer, page, attack)
        for page, writers in WRITERS.items()
        for writer in writers
        for attack in (True, False)
    }
    assert min(count.values()) >= 100 > max(short)
    rows = [
        json.loads(row)
        for file in corpus.WRITTEN_BY_HAND.glob("*.jsonl")
        for row in file.read_text(encoding="utf-8").splitlines()
    ]
    texts = {json.dumps([row.get(of) for of in ("name", "text", "parameters")]) for row in rows}
    assert len({row["id"] for row in rows}) == len(texts) == len(rows)
    assert not any(case.held_out in SETS for case in found)
