"""Where a result comes from: URL hosts and senders."""

import json

import pytest

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.jsonpath import compile_path
from guard.core.mappings import ItemFields, MessageFields, MessageReading, ToolMapping
from guard.core.model import Identity, Integrity, Role, ToolCall
from guard.provenance.result_documents import document_of, items_in, sources_of


def _result(arguments, content="text", mapping=None):
    call = ToolCall("id", Identity("p", "s"), "fetch", arguments, "mcp", 0.0)
    return ToolResult(untraced(ClassifiedCall(call, Role.RETRIEVE, mapping)), content, 0.0)


def _mapping(**fields):
    return ToolMapping("", lambda _: True, Role.RETRIEVE, **fields)


def _paths(cls, **texts):
    return cls(**{name: compile_path(text) for name, text in texts.items()})


SENDERS = _paths(MessageFields, each="$[*]", id="$.id", sender="$.from")
MESSAGES = _mapping(reading=MessageReading(messages=SENDERS))
INBOX = [{"id": 1, "from": "mallory@evil.example", "body": "x"}]
BLOCKS = {"content": [{"type": "text", "text": json.dumps(INBOX)}]}
TWO = {"urls": ["https://a.example/x", "https://b.example/y"]}


@pytest.mark.parametrize(
    ("arguments", "content", "mapping", "sources"),
    [
        # A page comes from the host that was asked, never from the tool that fetched it.
        ({"url": "https://evil.example/page?q=1"}, "text", _mapping(), {"evil.example"}),
        (TWO, "text", _mapping(), {"a.example", "b.example"}),
        ({"query": "quarterly report"}, "text", _mapping(), set()),
        # A message comes from its sender, and a trusted tool from nobody.
        ({}, BLOCKS, MESSAGES, {"mallory@evil.example"}),
        ({"url": "https://in.example/"}, "text", _mapping(source=Integrity.TRUSTED), set()),
    ],
)
def test_a_result_has_the_sources_that_can_be_blamed(arguments, content, mapping, sources):
    """Hosts and senders, where the policy trusts neither; many are bounded."""
    assert sources_of(_result(arguments, content, mapping)) == sources
    many = {"urls": [f"https://host{number}.example/" for number in range(999)]}
    assert len(sources_of(_result(many, mapping=_mapping()))) < 999


DEEP = "{'a': " + "[" * 99 + "]" * 99 + "}"


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ('{"a": 1}', {"a": 1}),
        ('{"a": 1}\n\n{"b": "x"}', [{"a": 1}, {"b": "x"}]),
        ('"x"\n{"a": 1}', ["x", {"a": 1}]),
        ("{'a': -1, 'b': (True, None, 'x')}", {"a": "-1", "b": [True, None, "x"]}),
        ("- a: 1\n  b: [x, {c: d}]", [{"a": "1", "b": ["x", {"c": "d"}]}]),
        *((text, text) for text in ('{"a": 1, "a": 2}', "{'a': 1, 'a': 2}", "{'a': f()}", DEEP)),
        *(
            (text, text)
            for text in ("{None: 1}", "{**{}, 'a': 1}", "a: 1\na: 2", "<<: {a: 1}\nb: 2")
        ),
        *((text, text) for text in ("a: &x 1\nb: *x", "a: !!int 1\nb: 2", "a: 1\n---\nb: 2")),
        *(
            (text, text)
            for text in ("? [a]\n: b\n", "a: !!map {b: 1}\n", "Dear Ann: see you.\nBob")
        ),
        ("- " * 99 + "x", "- " * 99 + "x"),
    ],
)
def test_a_document_that_readers_may_read_otherwise_stays_a_text(text, document):
    """Whatever its format: repeated keys, anchors, tags, calls and great depth."""
    assert document_of(text) == document


@pytest.mark.parametrize(
    ("content", "items"),
    [
        ([{"id": 1, "t": "a"}, {"id": "x"}, {"t": "no name"}], ["1", "x"]),
        ('[{"id": 1}, {"id": [2]}]', ["1"]),
        ("no document", []),
        ({"content": [{"type": "text", "text": "a"}, {"type": "image"}, "b"], "more": 1}, []),
        ({"content": [], "structuredContent": {"result": [{"id": 3}]}}, ["3"]),
        ({"content": "odd"}, []),
        ({"content": [{"text": '[{"id": 5}]'}]}, ["5"]),
    ],
)
def test_items_are_those_that_have_a_name(content, items):
    """In every form that a result has."""
    where = _paths(ItemFields, each="$[*]", id="$.id")
    assert [name for name, _ in items_in(content, where)] == items
