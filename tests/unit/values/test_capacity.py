"""How much a URL could tell its host grows with what it says, in any coding."""

import base64

from hypothesis import given
from hypothesis import strategies as st

from guard.values.capacity import carried_bits, registered


def test_words_tell_less_than_what_is_drawn_at_random():
    """A page's name is cheap, a token is not; scheme and registered name say nothing."""
    assert carried_bits("https://example.com/") == 0
    assert carried_bits("https://docs.example.com/guide/install") < 50
    assert carried_bits("https://example.com/kDnNfribxUdl7dXTPyLsxPFkThf4VucS") >= 180
    assert carried_bits("https://7365637265745f6170695f6b6579.example.com/") == 112


@given(st.binary(min_size=8, max_size=64))
def test_no_coding_tells_more_than_is_counted(data):
    """What is counted is no less than what was put in, but for words."""
    coded = base64.b16encode(data).decode()

    counted = carried_bits(f"https://example.com/?q={coded}")

    assert counted >= 8 * len(data) * 0.9 or not any(map(str.isdigit, coded)) or coded.isdigit()


def test_hosts_of_one_owner_share_a_counter():
    """Labels in front of the registered name are the owner's to make up."""
    assert registered("a.b.example.com") == registered("c.example.com.") == "example.com"
