"""Readings of a text: bounded, and of whatever JSON can carry."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from guard.content.shingles import passages_sent
from guard.content.text_decodings import views


@settings(max_examples=60)
@given(st.text(st.characters(), max_size=80))
def test_whatever_json_can_carry_has_readings(text):
    """Half a letter of UTF-16, which JSON can escape, is no error."""
    assert views(text)
    passages_sent([text])


def test_half_a_letter_hides_nothing():
    """What stands behind it is read as it would be without it."""
    text = json.loads('"one \\ud800 two three four five six"')

    assert "passage:two three four five six" in passages_sent([text])
