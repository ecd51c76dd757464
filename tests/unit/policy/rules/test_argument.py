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
    ],
)
def test_a_test_reads_values_as_json_does(rule, situation, test, value, applies):
    """Types count, whole texts match, lists and objects stand for what is in them."""
    judged = situation(arguments={"v": value})

    assert (rule("argument", path="$.v", **test).match(judged) is not None) is applies


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


def test_an_allowing_rule_needs_every_value_and_one(rule, situation):
    """One good value frees no bad one, and nothing frees nothing."""
    allowing = rule("argument", "allow", path="$.v[*]", equals="ok")

    def applies(*values):
        return allowing.match(situation("other", arguments={"v": list(values)})) is not None

    assert [applies("ok"), applies("ok", "ok"), applies("ok", "no"), applies()] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("negate", "value", "code"),
    [
        ({"negate": True}, "a", None),
        ({"negate": True}, "z", "argument"),
        ({"negate": True}, ["a", "z"], "argument"),
        ({"negate": True}, None, "argument_missing"),
        ({"negate": False}, "a", "argument"),
        ({}, "a", "argument"),
    ],
)
def test_a_negated_rule_restricts_to_a_list(rule, situation, negate, value, code):
    """Whatever is not on the list is caught, a missing value too."""
    arguments = {} if value is None else {"v": value}
    reason = rule("argument", path="$.v", **{"in": ["a", "b"]}, **negate).match(
        situation(arguments=arguments)
    )

    assert (reason and reason.code) == code


def test_a_negated_allow_says_nothing_of_what_is_missing(rule, situation):
    """An absent value is no reason to allow."""
    allowing = rule("argument", "allow", path="$.v", equals="a", negate=True)

    assert allowing.match(situation("other", arguments={})) is None
    assert allowing.match(situation("other", arguments={"v": "b"})) is not None


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


def test_a_catastrophic_regex_costs_linear_time(rule, situation):
    """RE2 answers at once where a backtracking engine would not end."""
    judged = situation(arguments={"v": "a" * 200_000 + "b"})

    assert rule("argument", path="$.v", re2="(a|aa)+").match(judged) is None


def test_a_reason_shows_no_value(rule, situation):
    """Audit lines and refusals are built from reasons."""
    reason = rule("argument", path="$.v", glob="secret*").match(
        situation(arguments={"v": "secret-7"})
    )

    assert "secret" not in repr(reason)


@pytest.mark.parametrize("value", [None, "", " ", [], {}, [None, {"x": ""}]])
def test_an_empty_value_counts_as_a_value_that_is_left_out(rule, situation, value):
    """A client must not meet a demand with a value that says nothing."""
    judged, absent = situation(arguments={"v": value}), situation(arguments={})
    for test in ({"equals": "x"}, {"in": [None, "x"]}, {"max": 5}, {"glob": "*"}):
        for effect, negate in itertools.product(("allow", "ask"), (True, False)):
            one = rule("argument", path="$.v", effect=effect, negate=negate, **test)
            found, expected = one.match(judged), one.match(absent)
            assert (found and found.code) == (expected and expected.code)
