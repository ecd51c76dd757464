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


@pytest.mark.parametrize(
    ("arguments", "hosts"),
    [
        ({"url": "https://evil.example/page?q=1"}, {"evil.example"}),
        ({"urls": ["https://a.example/x", "https://b.example/y"]}, {"a.example", "b.example"}),
        ({"query": "quarterly report"}, set()),
    ],
)
def test_a_page_comes_from_the_host_that_was_asked(arguments, hosts):
    """Never from the tool that fetched it."""
    assert sources_of(_result(arguments, mapping=_mapping())) == hosts


def test_a_message_comes_from_its_sender():
    """Where the policy says where senders are."""
    query = compile_path
    messages = MessageFields(each=query("$[*]"), id=query("$.id"), sender=query("$.from"))
    inbox = json.dumps([{"id": 1, "from": "mallory@evil.example", "body": "x"}])
    content = {"content": [{"type": "text", "text": inbox}]}

    assert sources_of(
        _result({}, content, _mapping(reading=MessageReading(messages=messages)))
    ) == {"mallory@evil.example"}


def test_a_trusted_tool_has_no_sources():
    """Nobody is to blame for what the policy trusts."""
    trusted = _mapping(source=Integrity.TRUSTED)

    assert sources_of(_result({"url": "https://in.example/"}, mapping=trusted)) == set()


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
    where = ItemFields(compile_path("$[*]"), compile_path("$.id"))
    assert [name for name, _ in items_in(content, where)] == items


def test_more_sources_than_are_noted_are_bounded():
    """A call with many URLs does not grow a record."""
    urls = [f"https://host{number}.example/" for number in range(999)]
    assert len(sources_of(_result({"urls": urls}, mapping=_mapping()))) < 999
