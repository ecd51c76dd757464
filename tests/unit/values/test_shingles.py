"""What of a text that is sent is looked up as private."""

from hypothesis import given
from hypothesis import strategies as st

from guard.values import shingles
from guard.values.decoder import CONTENT


@given(text=st.from_regex(shingles._ONE_WORD, fullmatch=True))
def test_one_short_word_is_passed_over_and_tells_nothing(text):
    """The short cut frees nobody: the search itself would have found nothing to look up."""
    found = shingles._shingles_of.__wrapped__(text, pieces=False)
    assert len(text) >= CONTENT.token or found is shingles._EMPTY


def test_short_texts_that_may_tell_something_are_looked_through():
    """Codes, and every text where pieces are counted."""
    assert shingles.sent_shingles(["A1B2C"], pieces=False).passages
    assert shingles.sent_shingles(["Cascadia"], pieces=True).pieces
