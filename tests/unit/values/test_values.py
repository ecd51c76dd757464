"""What makes the search for values quick must not make it find less."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.core.model import Destination
from guard.values import decoder
from guard.values import finding as values

TEXTS = st.text(alphabet="ab01@.:/-_+#%\\&;,|*()[]<> \t\n\x1c\u00a0xXtATéЖ—ⅷ٣", max_size=60)
QUICK = [
    (values._DIGIT, values._NUMBER.exact),
    (values._DIGIT, values._ACCOUNT.exact),
    (values._DIGIT, values._ID),
    (values._MAYBE_IPV4, values._IPV4.exact),
]
IN_WORDS = [
    (".", values._HOST),
    ("/", values._REPOSITORY),
]


@pytest.mark.parametrize(("quick", "pattern"), QUICK)
@settings(max_examples=30)
@given(data=st.data())
def test_a_quick_check_lets_through_whatever_its_pattern_finds(quick, pattern, data):
    """Where a pattern finds something, the check before it never says that there is nothing."""
    text = data.draw(TEXTS) + data.draw(st.from_regex(pattern)) + data.draw(TEXTS)

    assert pattern.search(text) is None or quick.search(text) is not None


@given(text=st.text(alphabet="0aF:. ", max_size=60))
def test_the_check_for_ip_addresses_lets_through_every_literal_that_is_read(text):
    """No text in which an IPv6 address is found is dismissed beforehand."""
    literals = [found[0].rstrip(".") for found in values._IPV6.exact.finditer(text)]

    assert not any(map(values._maybe_ipv6, literals)) or values._MAYBE_IPV6.search(text) is not None


@pytest.mark.parametrize(("sign", "pattern"), IN_WORDS)
@settings(max_examples=30)
@given(data=st.data())
def test_a_pattern_that_crosses_no_space_finds_the_same_in_the_words_alone(sign, pattern, data):
    """Only the words with the sign in them are looked at, and nothing is lost or gained."""
    text = data.draw(TEXTS) + data.draw(st.from_regex(pattern)) + data.draw(TEXTS)
    words = decoder.words_with(sign, text.split())

    assert pattern.findall(f" {words}") == pattern.findall(f" {text}")


@given(text=TEXTS)
def test_every_id_is_found_although_only_words_with_digits_are_looked_at(text):
    """What has the form of an id is a value, wherever it stands."""
    expected = [values.handle_value(found[0]) for found in values._ID.finditer(text)]

    assert set(expected) <= set(values.find_values(text, disguised=False).plain)


def test_a_handle_in_letters_that_look_alike_is_another():
    """Who was named in Latin letters is not who is written with a Cyrillic one among them."""
    plain, alike = (
        Destination("handle", text) for text in ("@pat", "@p\N{CYRILLIC SMALL LETTER A}t")
    )

    assert not set(values.keys_of(plain)) & set(values.keys_of(alike))
    assert set(values.keys_of(plain)) <= set(values.taints_of(alike)[0])
    assert values.keys_of(Destination("handle", "#m\xfcller")) == (
        values.handle_value("#M\xfcller"),
    )


@pytest.mark.parametrize("text", ["{}.", "{}...", "see {}.", "_{}_", "**{}**.", "({}.)", "{}, too"])
@pytest.mark.parametrize("name", ["evil/figures", "evil-org/a.b", "e/x_y"])
def test_a_sentence_ends_behind_a_name(text, name):
    """A full stop, or emphasis, is no part of a repository's name."""
    assert f"handle:{name}" in values.find_values(text.format(name)).plain
