"""A rule type is one new file."""

import re
import sys
from pathlib import Path

import pytest

import guard.policy.rules
from guard.policy import PolicyError, load_policies
from guard.policy.rules import discover_rule_types
from guard.policy.rules.base import RuleConfig

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

    before = set(sys.modules)
    yield add
    for module in set(sys.modules) - before:
        if module.startswith("guard.policy.rules."):
            monkeypatch.delitem(sys.modules, module)
            monkeypatch.delattr(
                guard.policy.rules, module.removeprefix("guard.policy.rules."), raising=False
            )


def test_the_shipped_rule_types_are_found():
    """Each file gives its one type."""
    assert {"tool", "destination", "sequence", "score"} <= set(discover_rule_types())


def test_a_dropped_in_file_is_a_rule_type_that_policies_can_use(drop_in, tmp_path, situation):
    """No other file changes."""
    drop_in("argument_count_by_test", "argument_count")
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(at_least=1), encoding="utf-8")

    rule = load_policies([path]).rules[1]

    assert rule.match(situation(standings=["external"])).code == "argument_count"


def test_its_own_problems_are_reported_like_any_other(drop_in, tmp_path):
    """``problems`` of a rule type becomes file, line and rule id."""
    drop_in("argument_count_by_test", "argument_count")
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(at_least=-1), encoding="utf-8")

    with pytest.raises(PolicyError) as caught:
        load_policies([path])

    assert str(caught.value) == f"{path}:9: rule `many`: `at_least` is negative"


def test_two_types_with_one_name_are_an_error(drop_in):
    """Neither wins silently."""
    drop_in("another_tool", "tool")
    with pytest.raises(TypeError, match="rule type `tool` is defined by"):
        discover_rule_types()


def test_a_type_without_a_name_is_an_error(drop_in, tmp_path):
    """A rule type says what policies call it."""
    drop_in("nameless", "x")
    path = tmp_path / "nameless.py"
    text = path.read_text(encoding="utf-8").replace('type: Literal["x"]', "type: str")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TypeError, match="must declare"):
        discover_rule_types()


def test_a_type_without_reason_codes_is_an_error(drop_in, tmp_path):
    """What no type declares could not be told apart in the metrics."""
    drop_in("codeless", "x")
    path = tmp_path / "codeless.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"(?m)^    codes = .*$", "", text), encoding="utf-8")
    with pytest.raises(TypeError, match="must declare its reason codes"):
        discover_rule_types()


def test_a_type_that_judges_nothing_raises_and_so_blocks(situation):
    """Forgetting ``judge`` must not look like a rule that does not match."""
    unfinished = RuleConfig.model_validate_json('{"id": "r", "effect": "allow"}')
    with pytest.raises(NotImplementedError):
        unfinished.match(situation("recall"))


def test_the_package_holds_nothing_but_rule_types():
    """Every file in the package defines exactly one."""
    paths = Path(guard.policy.rules.__file__).parent.glob("*.py")
    files = {path.stem for path in paths} - {"__init__", "base"}
    modules = {t.__module__.rpartition(".")[2] for t in discover_rule_types().values()}
    assert files == modules


def test_a_rule_type_that_says_nothing_of_guarded_values_may_look_at_them_all(drop_in, tmp_path):
    """Only a type that says that it never looks saves the tracing: forgetting it is safe."""
    drop_in("argument_count_by_test", "argument_count")
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(at_least=1), encoding="utf-8")

    assert load_policies([path]).needs.guarded_kinds is None
