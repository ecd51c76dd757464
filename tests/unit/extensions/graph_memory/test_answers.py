"""Answers of graph memories: read, reordered, annotated and compared."""

import json

import pytest

from guard.core.jsonpath import compile_path
from guard.core.mappings import RankedMapping
from guard.extensions.graph_memory.answers import Ranked, annotated, read_ranked, reordered
from guard.extensions.graph_memory.replay import UnreplayedError

MAPPING = RankedMapping(
    lambda _: True, compile_path("$.found[*]"), compile_path("$.id"), seeds=None
)
A, B, C = ({"id": name, "text": f"text of {name}"} for name in "abc")
FOUND = {"found": [A, B, C], "count": 3}


def text(document):
    """Return a result of MCP that is one text."""
    return {"content": [{"type": "text", "text": json.dumps(document)}]}


@pytest.mark.parametrize(
    "content",
    [FOUND, json.dumps(FOUND), text(FOUND), {**text(FOUND), "structuredContent": FOUND}],
    ids=["object", "string", "mcp", "twice"],
)
def test_items_are_reordered_wherever_they_stand(content):
    """In every form of the answer, and nothing else in it is changed."""
    changed = reordered(content, MAPPING, (2, 0))
    assert read_ranked(MAPPING, changed).names == ("c", "a")
    assert read_ranked(MAPPING, content).names == ("a", "b", "c")
    again = json.dumps(changed)
    assert "count" in again
    assert "text of b" not in again


def test_items_in_texts_of_their_own_are_reordered():
    """As servers give lists: one text for each entry."""
    mapping = RankedMapping(lambda _: True, compile_path("$[*]"), compile_path("$.id"), seeds=None)
    content = {"content": [{"type": "text", "text": json.dumps(one)} for one in (A, B, C)]}
    changed = reordered(content, mapping, (1, 2))
    assert [json.loads(block["text"])["id"] for block in changed["content"]] == ["b", "c"]


@pytest.mark.parametrize(
    "content",
    [
        {"content": [{"type": "text", "text": "a, then b"}], "structuredContent": FOUND},
        {"content": [{"type": "text", "text": "[1]\n[2]"}], "structuredContent": FOUND},
        text({"found": {"x": A, "y": B}}),
    ],
    ids=["prose", "lines", "no-list"],
)
def test_what_may_say_the_order_elsewhere_is_not_reordered(content):
    """An answer that tells it in prose too would say two things."""
    assert reordered(content, MAPPING, (0,)) is None


def test_a_note_stands_beside_the_answer():
    """In MCP as one more text and data, in an object as a member, in prose as a paragraph."""
    noted = annotated({**text(FOUND), "_meta": {"x": 1}}, "note", {"reason": "r"})
    assert noted["content"][-1] == {"type": "text", "text": "note"}
    assert noted["_meta"] == {"x": 1, "guard": {"selection": {"reason": "r"}}}
    assert annotated(FOUND, "note", {})["_guard"] == {"note": "note", "selection": {}}
    assert json.loads(annotated(json.dumps(FOUND), "note", {}))["found"] == [A, B, C]
    assert annotated("prose", "note", {}) == "prose\n\nnote"
    assert annotated([A], "note", {}) is None
    assert annotated("[1]", "note", {}) is None


def test_an_answer_without_items_is_none_unless_it_may_be():
    """Another question may find nothing; of the served one it means that it was not understood."""
    with pytest.raises(UnreplayedError):
        read_ranked(MAPPING, {"found": []})
    assert read_ranked(MAPPING, {"found": []}, may_be_empty=True).names == ()
    with pytest.raises(UnreplayedError):
        read_ranked(MAPPING, "nothing found", may_be_empty=True)


def test_an_item_that_names_somebody_else_is_another_one():
    """The same name, another receiver in it: it has no place in the authenticated answer."""
    right = {"id": "a", "text": "pay pat@partner.test", "score": 0.5}
    again = {**right, "score": 0.7}
    rival = {**right, "text": "pay drop@evil.test"}
    alone = Ranked((right, B), ("a", "b"))
    assert alone.places_of(Ranked((B, again), ("b", "a"))) == (1, 0)
    assert alone.places_of(Ranked((rival, C), ("a", "c"))) == (None, None)
