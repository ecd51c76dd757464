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
        ({"group": "main-untrusted"}, None),
    ],
)
def test_what_does_not_count_is_written_apart(given_, written):
    """Whatever namespace it names, or none; a name that ends as untrusted ones do stays."""
    expected = None if written is None else {"text": "x", "group": written}
    assert kept_apart(NAMESPACES, "save", {"text": "x", **given_}) == expected


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("save", {"group": ["main"]}),
        ("save", {"group": {"main": 1}}),
        ("save", {"group": 7}),
        ("save", {"group": "main\0"}),
        ("save", {"group": "a" * 49}),
        ("save", {"group": "ma in"}),
        ("save", {"group": "m\N{CYRILLIC SMALL LETTER A}in"}),
        ("forget", {"id": "1"}),
    ],
)
def test_a_name_that_a_store_might_read_otherwise_is_refused(tool, arguments):
    """Cut, folded or split, it would not end as written; a deletion by id reaches all of them."""
    with pytest.raises(NamespaceError):
        kept_apart(NAMESPACES, tool, arguments)


BOTH = ["main", "team", "main-untrusted", "team-untrusted"]


@pytest.mark.parametrize(
    ("tool", "arguments", "served", "asked"),
    [
        ("search", {"groups": ["main", "team"]}, {"groups": BOTH}, {"groups": ["main", "team"]}),
        ("search", {}, {"groups": ["main", "main-untrusted"]}, {"groups": ["main"]}),
        ("search", {"groups": BOTH}, None, {"groups": ["main", "team"]}),
        ("search", {"groups": ["team-untrusted"]}, None, None),
        ("look", {"group": "team"}, None, {"group": "team"}),
        ("look", {}, None, {}),
        ("look", {"group": "team-untrusted"}, None, None),
    ],
)
def test_a_read_is_of_both_and_the_question_without_of_one(tool, arguments, served, asked):
    """The untrusted namespaces beside those that it names; a read of one namespace is left."""
    assert widened(NAMESPACES, tool, arguments) == served
    assert narrowed(NAMESPACES, tool, served or arguments) == asked


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
