"""A rule type is one new file."""

import pytest

import guard.policy.rules
from guard.policy.rules import discover_rule_types
from guard.policy.rules.base import PolicyOutline, RuleConfig

NIGHT = '''
"""Rule type ``argument_count``, dropped in by a test."""
from typing import Literal
from guard.policy.rules.base import RuleConfig

class ArgumentCountRule(RuleConfig):
    type: Literal["{name}"]
    codes = frozenset({{"argument_count"}})
    at_least: int

    def judge(self, situation, targets):
        count = len(situation.call.call.arguments)
        return self.reason("argument_count", "", targets) if count >= self.at_least else None

    def problems(self, outline):
        if self.at_least < 0:
            yield "`at_least` is negative"
'''
POLICY = """version: 1
name: dropped-in
tools:
  - match: [mail_send]
    role: send
    destinations: ["$.to"]
rules:
  - {{id: allow, type: tool, effect: allow}}
  - {{id: many, type: argument_count, at_least: {at_least}, effect: block}}
"""


@pytest.fixture
def drop_in(tmp_path, monkeypatch):
    """Return a function that adds a file to the package's path, for this test only."""
    monkeypatch.setattr(
        guard.policy.rules, "__path__", [*guard.policy.rules.__path__, str(tmp_path)]
    )

    def add(module, name):
        (tmp_path / f"{module}.py").write_text(NIGHT.format(name=name), encoding="utf-8")

    return add


def test_a_dropped_in_file_is_a_rule_type_that_policies_can_use(drop_in, policy_from, situation):
    """No other file changes."""
    drop_in("argument_count_by_test", "argument_count")

    rule = policy_from(POLICY.format(at_least=1)).rules[1]

    assert rule.match(situation(standings=["external"])).code == "argument_count"


def test_two_types_with_one_name_are_an_error(drop_in):
    """Neither wins silently."""
    drop_in("another_tool", "tool")
    with pytest.raises(TypeError, match="rule type `tool` is defined by"):
        discover_rule_types()


def test_a_type_that_judges_nothing_raises_and_so_blocks(situation):
    """Forgetting ``judge`` must not look like a rule that does not match."""
    unfinished = RuleConfig.model_validate_json('{"id": "r", "effect": "allow"}')
    with pytest.raises(NotImplementedError):
        unfinished.match(situation("recall"))


def test_what_proves_nothing_good_cannot_allow():
    """Of each type that judges what is bad about a call, effect `allow` is an error."""
    types = discover_rule_types()
    allowing = {"argument", "destination", "expression", "provenance", "result", "sequence", "tool"}
    assert {name for name, kind in types.items() if not kind.cannot_allow} == allowing
    rule = types["deny_loop"].model_validate_json(
        '{"type": "deny_loop", "id": "r", "effect": "allow", "refusals": 1}'
    )
    assert list(rule.filter_problems(PolicyOutline(())))
