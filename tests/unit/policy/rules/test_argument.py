"""The rule type ``argument``."""

import itertools

import pytest
from pydantic import ValidationError


@pytest.mark.parametrize(
    ("test", "value", "applies"),
    [
        ({"equals": "rm"}, "rm", True),
        ({"equals": "rm"}, "rm ", False),
        ({"equals": 1}, 1, True),
        ({"equals": 1}, 1.0, True),
        ({"equals": 1}, "1", False),
        ({"equals": 1}, True, False),
        ({"equals": True}, True, True),
        ({"equals": True}, 1, False),
        ({"equals": False}, False, True),
        ({"equals": False}, 0, False),
        ({"in": [None, "x"]}, None, True),
        ({"in": ["a", 2]}, 2, True),
        ({"in": ["a", 2]}, "b", False),
        ({"glob": "report-*"}, "report-7", True),
        ({"glob": "report-*"}, "my report-7", False),
        ({"re2": "(?i)rm .*"}, "RM -rf", True),
        ({"re2": "rm"}, "rm -rf", False),
        ({"min": 1000}, 1000, True),
        ({"min": 1000}, 999.9, False),
        ({"max": 5}, 5, True),
        ({"min": 1, "max": 5}, 6, False),
        ({"min": 1, "max": 5}, 3, True),
        ({"equals": "b"}, ["a", "b"], True),
        ({"equals": "b"}, [{"x": ["b"]}], True),
        ({"equals": "b"}, {"b": "key only"}, False),
        ({"equals": "b"}, [], False),
        # RE2 answers at once where a backtracking engine would not end.
        ({"re2": "(a|aa)+"}, "a" * 200_000 + "b", False),
        ({"glob": "secret*"}, "secret-7", True),
    ],
)
def test_a_test_reads_values_as_json_does(rule, situation, test, value, applies):
    """Types count, whole texts match, lists stand for what is in them; no reason shows a value."""
    reason = rule("argument", path="$.v", **test).match(situation(arguments={"v": value}))

    assert (reason is not None) is applies
    assert "secret" not in repr(reason)


@pytest.mark.parametrize(
    ("test", "value"),
    [
        ({"min": 1000}, "9000"),
        ({"max": 5}, True),
        ({"glob": "a*"}, 5),
        ({"min": 1}, [5, "5"]),
        ({"equals": 1}, list(range(2, 20_000))),
    ],
    ids=["text", "bool", "number", "mixed list", "too many"],
)
@pytest.mark.parametrize("effect", ["block", "allow"])
def test_what_a_test_cannot_read_is_an_error(rule, situation, test, value, effect):
    """An amount written as a text must not slip under a limit; errors block."""
    with pytest.raises(ValueError, match="value"):
        rule("argument", effect, path="$.v", **test).match(
            situation("other", arguments={"v": value})
        )


LISTED = {"in": ["a", "b"]}
OFF_LIST = {**LISTED, "negate": True}
NOT_A = {"equals": "a", "negate": True}


@pytest.mark.parametrize(
    ("effect", "test", "arguments", "code"),
    [
        # One good value frees no bad one, and nothing frees nothing.
        ("allow", {"equals": "ok"}, {"v": ["ok"]}, "argument"),
        ("allow", {"equals": "ok"}, {"v": ["ok", "ok"]}, "argument"),
        ("allow", {"equals": "ok"}, {"v": ["ok", "no"]}, None),
        ("allow", {"equals": "ok"}, {"v": []}, None),
        ("allow", NOT_A, {}, None),
        ("allow", NOT_A, {"v": "b"}, "argument"),
        # Whatever is not on the list is caught, a missing value too.
        ("block", OFF_LIST, {"v": "a"}, None),
        ("block", OFF_LIST, {"v": "z"}, "argument"),
        ("block", OFF_LIST, {"v": ["a", "z"]}, "argument"),
        ("block", OFF_LIST, {}, "argument_missing"),
        ("block", {**LISTED, "negate": False}, {"v": "a"}, "argument"),
        ("block", LISTED, {"v": "a"}, "argument"),
    ],
)
def test_an_allowing_rule_needs_every_value_and_a_negated_one_catches_the_rest(
    rule, situation, effect, test, arguments, code
):
    """An absent value is no reason to allow."""
    reason = rule("argument", effect, path="$.v", **test).match(
        situation("send" if effect == "block" else "other", arguments=arguments)
    )

    assert (reason and reason.code) == code


@pytest.mark.parametrize(
    "fields",
    [
        {"path": "v["},
        {"path": 5},
        {"path": "$.v", "re2": "("},
        {"path": "$.v", "re2": "(a)\\1"},
        {"path": "$.v", "glob": 5},
        {"path": "$.v", "in": []},
        {"path": "$.v", "equals": [1]},
        {"path": "$.v", "min": "1"},
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(rule, fields):
    """Paths, expressions and limits are checked when the policy is loaded."""
    with pytest.raises(ValidationError):
        rule("argument", **fields)


@pytest.mark.parametrize("value", [None, "", " ", [], {}, [None, {"x": ""}]])
def test_an_empty_value_counts_as_a_value_that_is_left_out(rule, situation, value):
    """A client must not meet a demand with a value that says nothing."""
    judged, absent = situation(arguments={"v": value}), situation(arguments={})
    for test in ({"equals": "x"}, {"in": [None, "x"]}, {"max": 5}, {"glob": "*"}):
        for effect, negate in itertools.product(("allow", "ask"), (True, False)):
            one = rule("argument", path="$.v", effect=effect, negate=negate, **test)
            found, expected = one.match(judged), one.match(absent)
            assert (found and found.code) == (expected and expected.code)
