"""JSON that two readers could read differently is refused."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.errors import MessageError
from guard.protocols.framing.json_messages import parse_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@given(JSON)
def test_what_json_writes_is_read_back(value: object) -> None:
    """A document that can be read one way only is read that way."""
    assert parse_json(json.dumps(value).encode()) == value


@given(st.binary())
def test_any_bytes_give_a_value_or_a_message_error(body: bytes) -> None:
    """Nothing else is ever raised."""
    with contextlib.suppress(MessageError):
        parse_json(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1, "a": 1}',
        b'{"x": {"a": 1, "\\u0061": 2}}',
        b'["\\ud800"]',
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
def test_ambiguous_json_is_refused(body: bytes) -> None:
    """Each of these is read differently by some reader in use."""
    with pytest.raises(MessageError):
        parse_json(body)


def test_a_surrogate_pair_is_one_character() -> None:
    """An escaped pair is legal and reads one way."""
    assert parse_json(b'["\\ud83d\\ude00"]') == ["\N{GRINNING FACE}"]
