"""JSON that two readers could read differently is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.errors import MessageError
from guard.protocols import a2a
from guard.protocols.framing import json_messages
from guard.protocols.framing.json_messages import (
    RequestOutline,
    asked_for,
    parse_json,
    reject_lookalike_keys,
)
from guard.protocols.mcp import mcp

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@given(JSON)
def test_what_json_writes_is_read_back(value):
    """A document that can be read one way only is read that way."""
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1, "a": 1}',
        b'{"x": {"a": 1, "\\u0061": 2}}',
        b'["\\ud800"]',
        b'["\\uDBFFa"]',
        b'["\\udc00\\ud800"]',
        b'{"\\udc00": 1}',
        b"[1e999]",
        b"[-1e999]",
        b"[Infinity]",
        b"\xef\xbb\xbf[]",
        b"[" * 100_000,
        b"[" + b"9" * 5000 + b"]",
        b'["\xff"]',
        b"[1,]",
        b"",
    ],
    ids=lambda body: repr(body[:16]),
)
def test_ambiguous_json_is_refused(body):
    """Each of these is read differently by some reader in use."""
    with pytest.raises(MessageError):
        parse_json(body)


BIG = '\\n"}{[]\\\\' * 500
MESSAGES = [
    {"method": "tools/call", "params": {"a": BIG, "id": 5, "list": [1, {"id": 9}]}, "id": 7},
    {"id": 'a"b', "params": [BIG, {"method": "no"}], "method": "m"},
    {"id": 1, "method": "m", "params": {"id": 2, "y": [[{}, []], "id", BIG]}},
    {"params": {"x": BIG, "y": {"id": 2}}, "id": 3, "method": "m"},
]


def outlined(body, size):
    """Return the outline of a body that comes in pieces."""
    outline = RequestOutline()
    for begin in range(0, len(body), size):
        outline.feed(body[begin : begin + size])
    return outline


@pytest.mark.parametrize("message", [*MESSAGES, [MESSAGES[0]]])
@pytest.mark.parametrize("size", [1, 2, 7, 4096, 1 << 20])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_outline_has_the_id_and_method_of_a_body_that_goes_by(message, size, indent):
    """In whatever pieces it comes, before the parameters or behind them; a batch names nothing."""
    body = json.dumps(message, indent=indent).encode()
    outline = outlined(body, size)

    assert outline.size == len(body)
    if isinstance(message, list):
        assert outline.text() == b""
    else:
        assert asked_for(json.loads(outline.text())) == asked_for(message)


@given(st.binary(max_size=300), st.integers(1, 20))
def test_an_outline_of_anything_is_small_and_the_same_in_any_pieces(body, size):
    """Broken bodies too: nobody is promised more than an answer."""
    text = outlined(body, size).text()

    assert text == outlined(body, len(body) + 1).text()
    assert len(text) < 1000


@pytest.mark.parametrize("module", [a2a, json_messages, mcp], ids=str)
def test_no_two_known_names_differ_in_case_only(module):
    """Keys that are all known as they stand are therefore taken without a further look."""
    for value in vars(module).values():
        if isinstance(value, frozenset) and all(isinstance(name, str) for name in value):
            assert len(set(map(str.casefold, value))) == len(value)


@pytest.mark.parametrize("names", [frozenset({"id", "method"}), ("id", "method")])
@pytest.mark.parametrize(
    "keys", [("ID",), ("id", "Id"), ("id", "x", "X"), ("Method", "id"), ("\u212aey", "key")]
)
def test_a_name_in_another_case_is_refused(names, keys):
    """Beside the known name or without it, and of names that are not known likewise."""
    with pytest.raises(MessageError):
        reject_lookalike_keys(dict.fromkeys(keys), names)
    reject_lookalike_keys({"id": 1, "x": 2}, names)
