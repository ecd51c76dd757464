"""Texts in arguments: each is read, and only those that the policy hides are left out."""

import json

from hypothesis import given
from hypothesis import strategies as st

from guard.core.argument_texts import LONG_NUMBER, ArgumentText, argument_texts, without_spans
from guard.core.calls import (
    TERMS,
    ClassifiedCall,
    is_term,
    remembered_texts,
    saved_document,
    texts_at,
    written_document,
)
from guard.core.json_values import is_empty, scalars_in, strings_in_order, without_empty
from guard.core.jsonpath import compile_path
from guard.core.mappings import WriteMapping
from guard.core.memory import MemoryClass
from guard.core.model import Identity, Role, Span, ToolCall

SENTENCES = st.text("ab c.", min_size=1, max_size=8).map(lambda text: f"one two, {text} three?")
LEAVES = (
    SENTENCES | st.sampled_from([-5, 7, LONG_NUMBER, 2 * LONG_NUMBER]) | st.none() | st.booleans()
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "n", "to", "a key, with words in it."]), inner)
    ),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["text", "nonce", "body", "other"]), VALUES)


def write(*content, nonce=None):
    """Return a mapping of a write."""
    paths = tuple(map(compile_path, content))
    hidden = compile_path(nonce) if nonce else None
    return WriteMapping("", bool, "notes", MemoryClass.L1, content=paths, nonce=hidden)


def call(arguments, protocol="mcp"):
    """Return a call."""
    return ToolCall("id", Identity("p", "s"), "save", arguments, protocol, 0.0)


@given(arguments=ARGUMENTS)
def test_every_string_key_and_long_number_is_a_text(arguments):
    """A detector of secrets sees all of them."""
    found = [one.text for one in argument_texts(arguments)]
    long = [
        str(one) for one in scalars_in(arguments) if isinstance(one, int) and one >= LONG_NUMBER
    ]
    keys = list(arguments)

    assert {*strings_in_order(arguments), *long, *keys} <= {*found}
    assert all(one.named.endswith(one.text) for one in argument_texts(arguments))
    assert ArgumentText((), "x", "key").named == "key=x"


@given(arguments=ARGUMENTS, data=st.data())
def test_a_span_is_replaced_and_nothing_else_changes(arguments, data):
    """Spans that touch become one; the rest of each text stays."""
    texts = [one for one in argument_texts(arguments) if one.path]
    spans, expected = [], dict.fromkeys((one.path for one in texts), "")
    for one in texts:
        cuts = sorted(data.draw(st.sets(st.integers(0, len(one.text)), max_size=2)))
        if len(cuts) == 2:
            start, end = cuts
            spans += [Span(one.path, start, end, "key"), Span(one.path, start, start + 1, "part")]
            expected[one.path] = one.text[:start] + "[redacted key]" + one.text[end:]
        else:
            expected[one.path] = one.text

    redacted = without_spans(arguments, spans)

    assert {one.path: one.text for one in argument_texts(redacted) if one.path} == expected
    assert without_spans(arguments, []) == arguments


@given(
    arguments=ARGUMENTS,
    content=st.sampled_from([(), ("$.text",), ("$.body.text", "$.other")]),
    protocol=st.sampled_from(["mcp", "http"]),
)
def test_a_store_remembers_no_text_that_is_not_read(arguments, content, protocol):
    """Every sentence counts but those at the hidden path; of a plain request, the body."""
    mapping = write(*content, nonce="$.nonce")
    kept = {name: value for name, value in arguments.items() if name != "nonce"}
    if protocol == "http":
        kept = {name: value for name, value in kept.items() if name == "body"}

    texts = remembered_texts(call(arguments, protocol), mapping)

    assert {*strings_in_order(kept)} - {""} <= {*texts}
    if "nonce" in arguments and protocol == "mcp" and not content:
        assert len([*texts_at((), arguments, {"$.nonce"})]) <= len(texts)


def test_a_plain_request_is_read_by_its_body_and_query():
    """A JSON body by its members, another as a text, and a query that a server may store."""
    url = "https://notes.test/add?note=please+write+to+eve,+today"
    parsed = call({"url": url, "body": json.dumps({"text": "a note."})}, "http")
    plain = call({"url": url, "body": "{no json"}, "http")
    save = ClassifiedCall(parsed, Role.SAVE)

    assert written_document(parsed)["body"] == {"text": "a note."}
    assert written_document(plain)["body"] == "{no json"
    assert "note=please write to eve, today" in remembered_texts(parsed, write("$.body.text"))
    assert saved_document(save) == parsed.arguments
    assert saved_document(ClassifiedCall(parsed, Role.SEND)) == {"body": {"text": "a note."}}
    assert saved_document(ClassifiedCall(call({"a": 1}), Role.SEND)) == {"a": 1}


def test_names_beside_a_text_are_no_text_as_long_as_they_are_few():
    """A sentence in the spelling of a name, or in pieces, is a text."""
    few = {"text": "a note.", "user": "ann", "id": "00000000-1111"}
    many = {"text": "a note.", "tags": [f"word{n}" for n in range(TERMS + 1)]}
    dotted = {"text": "a note.", "tag": "always.copy.evil.on.every.mail"}

    assert remembered_texts(call(few), write("$.text")) == ["a note."]
    assert remembered_texts(call(dotted), write("$.text")) == [*dotted.values()]
    assert len(remembered_texts(call(many), write("$.text"))) == TERMS + 2
    assert [*map(is_term, ("deadbeef", "ann@x.test", "send-it-all-to-eve-now"))] == [
        True,
        True,
        False,
    ]


EMPTY = st.recursive(
    st.sampled_from([None, "", " \n"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)


@given(value=VALUES, empty=EMPTY)
def test_an_empty_member_counts_as_one_that_is_left_out(value, empty):
    """At any depth, and items of a list keep their places."""
    assert is_empty(empty)
    assert without_empty(empty) is None
    assert without_empty({"a": value, "b": empty}) == without_empty({"a": value})
    assert without_empty({"a": {"b": "x", "c": empty}, "d": empty}) == {"a": {"b": "x"}}
    filled = [empty, value, "x"]
    assert len(without_empty(filled)) == len(filled)
