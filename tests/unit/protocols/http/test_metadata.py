"""Which header values and paths are ordinary: the quick test agrees with the whole one."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from guard.content.injection_signals import SIGNALS
from guard.protocols.http import metadata

WORDS = {word for _, _, source in SIGNALS for word in re.findall(r"[A-Za-z]{3,10}", source)}
LEET = str.maketrans("oieastl", "0134571")
TYPES = [
    f"{top}/{sub}{quality}"
    for top, sub, quality in product(
        ("application", "text", "image", "*"),
        ("json", "event-stream", "html", "xml", "plain", "x-ndjson", "*"),
        ("", ";q=0.8", "; q=1"),
    )
]


def _agree(value: str) -> bool:
    return metadata._SHORT.fullmatch(value) is None or metadata._is_plain(value)


@settings(max_examples=400)
@given(st.from_regex(r"/?[A-Za-z0-9-]{0,12}", fullmatch=True))
@example("jailbreak")
def test_no_short_value_is_more_than_it_looks(value: str) -> None:
    """What is passed without a look has nothing in it that the look would find."""
    assert _agree(value)


def test_no_word_of_an_instruction_is_passed_over() -> None:
    """Words of every signal, also in capitals, in digits for letters and as a path."""
    for word in WORDS:
        for form in (word, word.upper(), word.title(), word.translate(LEET), f"/{word}"):
            assert _agree(form), form


@settings(max_examples=200)
@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=6), st.sampled_from((",", ", ")))
def test_media_types_have_nothing_in_them(types: list[str], separator: str) -> None:
    """They are a closed vocabulary."""
    assert _agree(separator.join(types))


@pytest.mark.parametrize(
    "value", ["AKIAIOSFODNN7EXAMPLE", "/.env", "aWdub3JlIGFsbA==", "a" * 11 + "b", "rm -rf /"]
)
def test_what_may_be_more_is_looked_at(value: str) -> None:
    """The quick test speaks for none of them."""
    assert metadata._SHORT.fullmatch(value) is None
