"""Scalars of JSON values, and what is written of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.json_values import json_encoder, strings_in, strings_in_order
from guard.core.model import Role

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(Role),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_values_are_written_as_the_standard_library_writes_them(value, sort_keys):
    """Character by character."""
    standard = json.JSONEncoder(sort_keys=sort_keys, separators=(",", ":"))
    assert "".join(json_encoder(sort_keys=sort_keys)(value, 0)) == standard.encode(value)


def test_what_is_no_json_is_not_written():
    """Numbers that JSON lacks where they are not wanted, other objects, and circles."""
    encode = json_encoder(allow_nan=False)
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            encode({"a": [number]}, 0)
    with pytest.raises(TypeError):
        encode({"a": {1, 2}}, 0)
    circle = []
    circle.append(circle)
    with pytest.raises(RecursionError):
        encode(circle, 0)


@given(JSON)
def test_strings_come_in_the_order_of_the_document(value):
    """All of them, and no names of members."""
    in_order = [*strings_in_order(value)]
    assert sorted(in_order) == sorted(strings_in(value))
    written = iter(json.dumps(value))
    assert all(c in written for text in in_order for c in json.dumps(text))
