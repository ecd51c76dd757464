"""The documents stay short and readable."""

from tests import prose
from tests.prose import ROOT


def texts(paths):
    """Return the texts of files."""
    return [path.read_text(encoding="utf-8") for path in paths]


def words(paths):
    """Return the number of words of files."""
    return sum(len(text.split()) for text in texts(paths))


def in_docs():
    """Return the written pages of the site."""
    return [path for path in prose.written_documents() if (ROOT / "docs") in path.parents]


def test_documents_are_short():
    """The written site, the README, and each decision, which has at most one page."""
    pages = [path for path in in_docs() if path.parent.name == "adr" and path.stem != "index"]

    assert len(in_docs()) > 50
    assert words(in_docs()) <= 40_000
    assert words([ROOT / "README.md"]) <= 800
    assert words([ROOT / "CHANGELOG.md"]) <= 800
    assert [path.name for path in pages if words([path]) > 450] == []


def test_at_most_three_percent_of_the_sentences_are_long():
    """More than 30 words; `python -m tests.prose FILE` lists them."""
    paths = prose.written_documents()
    every = [one for text in texts(paths) for one in prose.document_sentences(text)]
    long = [one for text in texts(paths) for one in prose.long_sentences(text)]

    assert len(every) > 1500
    assert len(long) <= 0.03 * len(every)
