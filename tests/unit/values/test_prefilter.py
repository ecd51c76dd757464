"""What is looked for beforehand makes the search quick, and makes it find nothing else."""

import re
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guard.values import decoder, prefilter
from guard.values import finding as values
from guard.values.decoder import CONTENT, DESTINATIONS, content_readings
from guard.values.finding import find_values
from guard.values.prefilter import Prefiltered
from lab.generate.vocabulary import ENCODINGS, Vocabulary
from lab.pages import page

TEXTS = st.text(alphabet="ab01@.:/-_+#%\\&;,|*()[]<> \t\n\x1c\u00a0xXtATéЖ—ⅷ٣=?\"'", max_size=90)
ALL = [
    value
    for module in (decoder, values)
    for value in vars(module).values()
    if isinstance(value, Prefiltered)
]
FOUND = st.sampled_from(
    [*(one.exact for one in ALL), values._ID, values._HOST, values._REPOSITORY]
).flatmap(st.from_regex)
SEARCHES = (DESTINATIONS, CONTENT)
BETWEEN = (" ", " ", "\n", "", '"', ": ", "\u00a0", "é ")


class Forgetful(set):
    """Remembers no word."""

    def __contains__(self, _):
        """Say that a word was not seen."""
        return False


def read_everything(patch):
    """Switch off what saves work: every expression runs, over the whole of every text."""
    patch.setattr(prefilter, "SHORT", 1 << 60)
    patch.setattr(decoder, "_BARREN", {search.token: set() for search in SEARCHES})
    patch.setattr(decoder, "odd_words", lambda text: [text])
    patch.setattr(values, "odd_words", lambda text: [text])
    patch.setattr(values, "set", Forgetful, raising=False)
    patch.setattr(values, "words_with", lambda _sign, words: " ".join(words))
    for quick in ("_MAYBE_IPV4", "_MAYBE_IPV6"):
        patch.setattr(values, quick, re.compile(""))


@pytest.fixture
def differs(monkeypatch):
    """Give a function that says whether a text is read otherwise without what saves work."""

    def shown(text):
        found = find_values.__wrapped__(text)
        content = content_readings.__wrapped__(text)
        return set(found.plain), set(found.disguised), found.overflow, content

    def compare(text):
        quick = shown(text)
        with monkeypatch.context() as patch:
            read_everything(patch)
            return quick != shown(text)

    return compare


def disguised(seed):
    """Return prose in which addresses stand in one coding or two, somewhere."""
    draw = Random(seed)
    words = Vocabulary(f"disguise {seed}")
    text = page(draw.choice((80, 600, 4000)), seed)
    for _ in range(draw.randrange(1, 5)):
        inside = draw.choice((words.person().address, words.iban(), f"https://{words.domain()}/a"))
        for name in draw.sample(sorted(ENCODINGS), draw.choice((0, 1, 1, 2))):
            inside = ENCODINGS[name](inside)
        at = draw.randrange(len(text))
        text = f"{text[:at]}{draw.choice(BETWEEN)}{inside}{draw.choice(BETWEEN)}{text[at:]}"
    return text


def test_disguises_in_prose_are_read_alike_with_and_without_what_saves_work(differs):
    """Every value and reading, and whether a bound was reached."""
    assert [seed for seed in range(150) if differs(disguised(seed))] == []


@given(text=st.text(max_size=200) | TEXTS | st.lists(TEXTS | FOUND, max_size=5).map("".join))
@settings(
    max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_any_text_is_read_alike_with_and_without_what_saves_work(differs, text):
    """What stands in a text stands in its odd words, and what a word names it names everywhere."""
    assert not differs(text)
