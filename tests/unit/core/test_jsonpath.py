"""The fast path and the general one answer alike, and no key can imitate another path."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonpath_rfc9535 import find as reference_find

from guard.core import jsonpath
from guard.core.jsonpath import compile_path, joined_path

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text("a'\\]", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["to", "cc", "a'b", "to']['cc", "a\\b", "é"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
DOCUMENTS = JSON | st.fixed_dictionaries(
    {
        "to": (
            st.lists(JSON, min_size=1, max_size=3)
            | st.dictionaries(st.sampled_from(["cc", "a'b", "a\\b"]), JSON, min_size=1)
        )
    }
)
PATHS = [
    *("$.to", "$.to[*]", "$", "$.*", "$..to", "$['a\\'b']", "$.to.cc", "$.to[0]", "$.é", "$..*"),
    *(
        "$[*]",
        "$[*][*]",
        "$.to[*].cc",
        "$.to.cc[*].to",
        "$[*].to",
        "$[0,1]",
        "$['to','cc']",
        "$[-1]",
        "$[::2]",
        "$[?@.to]",
        "$[?@.to == 1].cc",
    ),
    *("$..[?length(@) > 1]", "$[?count(@.*) > 1]", "$[?value(@.to) != 'a']", "$..['a\\\\b']"),
]


@pytest.mark.parametrize("text", PATHS)
@given(document=DOCUMENTS)
def test_every_query_gives_what_the_reference_gives(text, document):
    """Paths and values equal those of the RFC 9535 library, also where the path was pickled.

    A key with quotes in it imitates the path of no other member.
    """
    path = pickle.loads(pickle.dumps(compile_path(text)))

    assert list(path.find(document)) == [
        (node.path(), node.value) for node in reference_find(text, document)
    ]


@pytest.mark.parametrize("text", ["$.to", "$.to[*]", "$[*]", "$[*].to", "$.to[*].cc", "$.to.cc"])
def test_names_and_children_need_no_library(text, monkeypatch):
    """Importing it takes time at every start; the paths of most policies are of this form."""
    monkeypatch.setattr(jsonpath, "_environment", None)

    assert compile_path(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "to", "$.", "$[", "$.to\n", "$[?search(@.x, 'a')]", "$[?match(@.x, 'a')]", " $.to"),
        *(
            "$.to | $.cc",
            "$.to & $.cc",
            "^.to",
            "$.~",
            "$[?@.x =~ /a/]",
            "$[?isinstance(@.x, 'a')]",
        ),
        *("$[?keys(@)]", "$[?startswith(@.x, 'a')]", "$[?@.x in ['a']]", "$..to.~", "$[?#.x]"),
    ],
)
def test_what_is_no_path_or_uses_a_backtracking_regex_is_refused(text):
    """The error is a ValueError that shows the text."""
    with pytest.raises(ValueError, match="is not a JSONPath"):
        compile_path(text)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"owner": "lake", "repo": "routing"}, [("$['repo']", "lake/routing")]),
        ({"owner": "lake", "repo": 7}, [("$['repo']", "lake/7")]),
        ({"owner": "lake", "repo": "../x/y"}, [("$['repo']", "lake/../x/y")]),
        ({"owner": "lake"}, []),
        ({"owner": "lake", "repo": ""}, []),
        ({"owner": "lake", "repo": ["a", "b"]}, []),
        ({"owner": "lake", "repo": {"name": "a"}}, []),
    ],
)
def test_a_receiver_in_several_arguments_is_all_of_them(arguments, found):
    """Where one is missing, or is not one text, nobody is named; a slash in a name joins none."""
    assert list(joined_path("$.owner / $.repo").find(arguments)) == found
    assert list(joined_path("$['a / b']").find({"a / b": 1})) == [("$['a / b']", 1)]
