"""The rule type ``undeclared``."""

from dataclasses import replace

import pytest

from guard.core.jsonpath import compile_path, joined_path
from guard.core.mappings import ArgumentRules, MessageReading, ToolMapping
from guard.core.model import Role

MAPPING = ToolMapping(
    "mail_send",
    "mail_send".__eq__,
    Role.SEND,
    destinations=(joined_path("$.owner / $.repo"), compile_path("$.to[*].mail")),
    body=(compile_path("$.body"),),
    arguments=ArgumentRules(ignore=(compile_path("$.files[*].path"),)),
    reading=MessageReading(reply=compile_path("$.thread")),
)
NAMED = {
    "owner": "o",
    "repo": "r",
    "body": {"text": ["x"]},
    "thread": 7,
    "to": [{"mail": "a@b.test"}],
}


@pytest.fixture
def judged(rule, situation):
    """Return what the rule says of some arguments."""

    def judge(arguments, mapping=MAPPING):
        found = situation(arguments=arguments)
        classified = replace(found.call.classified, mapping=mapping)
        known = replace(found, call=replace(found.call, classified=classified))
        return rule("undeclared", "ask").match(known)

    return judge


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"owner": None, "cc": "", "labels": [], "options": {"a": [None]}},
        {"files": [{"path": "a"}, {"path": "b"}]},
        {"repo": "without its owner"},
    ],
)
def test_what_the_mapping_names_or_what_is_nothing_is_declared(judged, more):
    """All that is at or below a path of it, each part of a joined one, and empty values."""
    assert judged({**NAMED, **more}) is None


@pytest.mark.parametrize(
    "more",
    [
        {"collaborator_ids": [4711]},
        {"public": False},
        {"count": 0},
        {"files": [{"path": "a"}, {"path": "b", "mode": "x"}]},
        {"files": {"a": "x"}},
        {"to": [{"mail": "a@b.test", "name": "x"}]},
        {"Body": "x"},
        {"body'": "x"},
    ],
)
def test_anything_else_is_told(judged, more):
    """Whatever its name or place: another spelling of a declared one included."""
    assert judged({**NAMED, **more}).code == "argument_undeclared"


def test_a_tool_that_nobody_mapped_is_another_rules_business(judged):
    """Of it nothing is declared."""
    assert judged({"x": 1}, mapping=None) is None
