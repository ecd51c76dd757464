"""What makes the search for values quick must not make it find less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.model import Destination
from guard.values import finding as values

TEXTS = st.text(alphabet="ab01@.:/-_+#%\\&;,|*()[]<> \t\n\x1c\u00a0xXtATéЖ—ⅷ٣", max_size=60)


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
