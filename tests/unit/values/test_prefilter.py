"""What is looked for beforehand makes the search quick, and makes it find nothing else."""

import gzip
import json
from pathlib import Path
from random import Random

import pytest
import re2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guard.values import decoder, prefilter
from guard.values import finding as values
from guard.values.decoder import CONTENT, DESTINATIONS, content_readings
from guard.values.finding import find_values
from guard.values.prefilter import Prefiltered, is_in, replaced, spans_in
from lab.generate.vocabulary import ENCODINGS, Vocabulary
from lab.pages import page

TRACES = Path(__file__).resolve().parents[4] / "shared/data/traces"
TEXTS = st.text(alphabet="ab01@.:/-_+#%\\&;,|*()[]<> \t\n\x1c\u00a0xXtATéЖ—ⅷ٣=?\"'", max_size=90)
ALL = {
    f"{module.__name__}.{name}": value
    for module in (decoder, values)
    for name, value in vars(module).items()
    if isinstance(value, Prefiltered)
}
SEARCHES = (DESTINATIONS, CONTENT)
BETWEEN = (" ", " ", "\n", "", '"', ": ", "\u00a0", "é ")
COUNTS = {
    "guard.values.finding._IPV6": lambda text: values._maybe_ipv6(text.rstrip(".")),
    "guard.values.finding._NUMBER": lambda text: sum(map(str.isdigit, text)) >= 6,
}
"""Which matches count, where not all of them do."""


def spans(matches, name):
    """Return where the matches are that count."""
    counts = COUNTS.get(name, lambda _: True)
    return [found.span() for found in matches if counts(found[0])]


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=20)
@given(data=st.data())
def test_an_expression_finds_the_same_with_and_without_looking_beforehand(name, data):
    """Among any characters, the same places in the same order."""
    pattern = ALL[name]
    parts = [data.draw(st.from_regex(pattern.exact)), data.draw(st.from_regex(pattern.exact))]
    text = f"{data.draw(TEXTS)}{parts[0]}{data.draw(TEXTS)}{parts[1]}{data.draw(TEXTS)}"
    text = text.ljust(prefilter.SHORT + 1)

    assert spans(pattern.exact.finditer(text), name) == spans(pattern.finditer(text), name)


def test_an_expression_sees_what_stands_before_and_behind_a_run():
    """Look-around reaches over the end of what was looked at beforehand."""
    padding = "word " * 40

    assert not list(values._IPV4.finditer(f"{padding}x10.1.2.3 {padding}"))
    assert not list(values._IPV4.finditer(f"{padding}10.1.2.3z{padding}"))
    assert [found[0] for found in values._IPV4.finditer(f"{padding}10.1.2.3, {padding}")] == [
        "10.1.2.3"
    ]


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


@pytest.fixture
def differs(monkeypatch):
    """Give a function that says whether a text is read otherwise without what saves work."""
    read = find_values.__wrapped__

    def shown(text):
        found = read(text)
        return set(found.plain), set(found.disguised), found.overflow

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
    """Every value, and whether a bound was reached."""
    assert [seed for seed in range(150) if differs(disguised(seed))] == []


def test_recorded_results_are_read_alike_with_and_without_what_saves_work(differs):
    """Texts that tools have given to agents."""
    path = TRACES / "agentdojo_dev.jsonl.gz"
    if not path.is_file():
        pytest.skip("the recorded runs are absent")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        calls = [call for line in file for call in json.loads(line)["calls"]]
    results = dict.fromkeys(call["result"] for call in calls if isinstance(call["result"], str))
    some = Random(1).sample(sorted(results), min(120, len(results)))

    assert [text for text in some if differs(text[:20_000])] == []


@given(text=st.text(max_size=200) | TEXTS)
@settings(
    max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_any_text_is_read_alike_with_and_without_what_saves_work(differs, text):
    """What stands in a text stands in its odd words, and what a word names it names everywhere."""
    assert not differs(text)


def test_content_is_read_alike_with_and_without_what_saves_work(monkeypatch):
    """The decoder serves the search for secrets and instructions too."""
    texts = [disguised(seed) for seed in range(60)]
    quick = [content_readings.__wrapped__(text) for text in texts]
    read_everything(monkeypatch)

    assert [content_readings.__wrapped__(text) for text in texts] == quick


def test_words_that_decode_to_nothing_are_remembered_by_a_bounded_number_of_hashes(monkeypatch):
    """Many different words do not fill the process."""
    monkeypatch.setattr(decoder, "BARREN_KEPT", 50)
    for number in range(20):
        find_values(" ".join(f"w{number}ordsgoon{index}" for index in range(60)))

    assert len(decoder._BARREN[DESTINATIONS.token]) <= 50 + decoder.WORDS


@given(text=TEXTS, start=st.integers(0, 40), source=st.sampled_from(["a|b1?", r"\b\w+@", "[é–]"]))
def test_places_are_found_as_by_the_expression_itself(text, start, source):
    """In ASCII by bytes and in other texts by letters, from any place on."""
    expression = re2.compile(source)

    found = [one.span() for one in expression.finditer(text, start)]
    assert list(spans_in(expression, text, start)) == found
    assert is_in(expression, text) is (expression.search(text) is not None)
    assert replaced(expression, "-", text) == expression.sub("-", text)


def test_what_is_written_instead_stands_for_itself():
    """It is no template with groups."""
    assert replaced(re2.compile("(b)"), r"\1", "abé") == r"a\1é"
