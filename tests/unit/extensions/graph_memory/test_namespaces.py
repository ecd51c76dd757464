"""Namespaces: nothing that does not count is written into, or asked of, an authenticated one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.mappings import NamespaceMember, Namespaces
from guard.extensions.graph_memory.namespaces import NamespaceError, kept_apart, narrowed, widened

NAMESPACES = Namespaces(
    default="main",
    suffix="-untrusted",
    writes=(
        NamespaceMember(lambda tool: tool == "save", "group"),
        NamespaceMember(lambda tool: tool == "forget", ""),
    ),
    reads=(
        NamespaceMember(lambda tool: tool == "search", "groups", many=True),
        NamespaceMember(lambda tool: tool == "look", "group"),
    ),
)


@pytest.mark.parametrize(
    ("given_", "written"),
    [
        ({}, "main-untrusted"),
        ({"group": None}, "main-untrusted"),
        ({"group": ""}, "main-untrusted"),
        ({"group": "main"}, "main-untrusted"),
        ({"group": "MAIN-UNTRUSTED"}, "MAIN-UNTRUSTED-untrusted"),
    ],
)
def test_what_does_not_count_is_written_apart(given_, written):
    """Whatever namespace it names, or none."""
    assert kept_apart(NAMESPACES, "save", {"text": "x", **given_}) == {
        "text": "x",
        "group": written,
    }


def test_what_is_apart_already_stays():
    """Its name ends as untrusted ones do."""
    assert kept_apart(NAMESPACES, "save", {"group": "main-untrusted"}) is None


@pytest.mark.parametrize(
    "group",
    [["main"], {"main": 1}, 7, "main\0", "a" * 49, "ma in", "m\N{CYRILLIC SMALL LETTER A}in"],
)
def test_a_name_that_a_store_might_read_otherwise_is_refused(group):
    """Cut, folded or split, it would not end as it is written."""
    with pytest.raises(NamespaceError):
        kept_apart(NAMESPACES, "save", {"group": group})


def test_a_write_that_names_none_cannot_be_kept_apart():
    """A deletion by id reaches every namespace."""
    with pytest.raises(NamespaceError):
        kept_apart(NAMESPACES, "forget", {"id": "1"})


def test_a_read_is_of_both_and_the_question_without_of_one():
    """The untrusted namespaces beside those that it names, and without any."""
    served = widened(NAMESPACES, "search", {"query": "q", "groups": ["main", "team"]})
    assert served["groups"] == ["main", "team", "main-untrusted", "team-untrusted"]
    assert narrowed(NAMESPACES, "search", served)["groups"] == ["main", "team"]
    assert widened(NAMESPACES, "search", {})["groups"] == ["main", "main-untrusted"]
    assert widened(NAMESPACES, "search", served) is None


def test_a_read_of_one_namespace_is_left_and_is_of_that_one():
    """Nothing else is in its answer: there is nothing to ask, or nothing that counts."""
    assert widened(NAMESPACES, "look", {"group": "team"}) is None
    assert narrowed(NAMESPACES, "look", {"group": "team"}) == {"group": "team"}
    assert narrowed(NAMESPACES, "look", {}) == {}
    assert narrowed(NAMESPACES, "look", {"group": "team-untrusted"}) is None
    assert narrowed(NAMESPACES, "search", {"groups": ["team-untrusted"]}) is None


@pytest.mark.parametrize(
    "named",
    ["main-Untrusted", "MAIN-UNTRUSTED", "main_untrusted", "main-untrusted.", "a.untrusted-_"],
)
def test_the_question_without_names_no_spelling_of_an_untrusted_namespace(named):
    """A store that folds capitals or separators would be asked with what is to be left out."""
    assert narrowed(NAMESPACES, "search", {"groups": ["main", named]})["groups"] == ["main"]
    assert narrowed(NAMESPACES, "look", {"group": named}) is None


@given(st.dictionaries(st.sampled_from(["group", "groups", "x"]), st.text() | st.lists(st.text())))
def test_no_arguments_of_a_strangers_write_name_an_authenticated_namespace(arguments):
    """Whatever they are: refused, or of a name that ends as untrusted ones do."""
    try:
        changed = kept_apart(NAMESPACES, "save", arguments)
    except NamespaceError:
        return
    written = arguments if changed is None else changed
    assert written["group"].endswith("-untrusted")


@given(st.lists(st.text(alphabet="ab-untrsed", max_size=14), max_size=20))
def test_the_question_without_never_names_an_untrusted_namespace(names):
    """Whatever the read named."""
    try:
        served = widened(NAMESPACES, "search", {"groups": names}) or {"groups": names}
        alone = narrowed(NAMESPACES, "search", served)
    except NamespaceError:
        return
    assert alone is None or not any(one.endswith("-untrusted") for one in alone["groups"])
