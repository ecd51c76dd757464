"""Hints about actions: what `guard init` proposes and what `guard policy check` warns about."""

import pytest

from guard.policy import load_policies
from guard.policy.suggested_action import suggested_action

POLICY = """
version: 1
name: hints
tools:
  - {{match: [{tool}], role: {role}{action}}}
{reads}
rules:
{rules}
  - {{id: work, type: tool, effect: allow, mapped: true}}
"""
ACTION_RULE = "  - {id: asked, type: action, effect: ask}"
READS = "  - {match: [read_page], role: retrieve}"


@pytest.mark.parametrize(
    ("name", "annotations", "method", "action"),
    [
        ("change_password", {}, "", "change_credential"),
        ("update_user_password", {"readOnlyHint": True}, "", "change_credential"),
        ("deleteFile", {}, "", "delete"),
        ("tidy", {"destructiveHint": True}, "", "delete"),
        ("send_it", {"destructiveHint": True}, "", "delete"),
        ("get_it", {"destructiveHint": True}, "", "delete"),
        ("users", {}, "DELETE", "delete"),
        ("users", {}, "PATCH", "overwrite"),
        ("get_order", {}, "", None),
        ("list_payments", {"destructiveHint": False}, "", None),
    ],
)
def test_the_gravest_action_is_suggested(name, annotations, method, action):
    """By annotation, method and name; a hint that a tool only reads takes nothing back."""
    assert suggested_action(name, annotations, method) == action


@pytest.mark.parametrize(
    ("rules", "role", "action", "warned"),
    [
        (ACTION_RULE, "other", "", True),
        (ACTION_RULE, "other", ", action: delete", False),
        (ACTION_RULE, "retrieve", "", False),
        ("", "other", "", False),
    ],
)
def test_a_change_without_an_action_is_warned_about(tmp_path, rules, role, action, warned):
    """Only where a rule about actions exists, and the tool does not only read."""
    more = '  - {match: [do_buy], role: other, action: buy, object: ["$.x"]}\n' + READS
    found = warnings(tmp_path, rules=rules, role=role, action=action, reads=more)

    assert any("remove_user" in one and "action: delete" in one for one in found) is warned


@pytest.mark.parametrize("reads", ["", READS])
def test_values_that_nothing_records_are_warned_about(tmp_path, reads):
    """Without a tool that reads, no value is ever tainted."""
    rules = ACTION_RULE + (
        "\n  - {id: bait, type: provenance, of: guarded, rungs: [tainted], effect: ask}"
    )
    action = ', action: delete, object: ["$.user"]'
    found = warnings(tmp_path, rules=rules, role="other", action=action, reads=reads)

    assert sum("no tool has results" in one for one in found) == (0 if reads else 2)


def warnings(tmp_path, **parts):
    """Return the messages of the warnings about a policy."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(tool="remove_user", **parts), "utf-8")
    return [one.message for one in load_policies([path]).source.warnings]
