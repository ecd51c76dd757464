"""The rule type ``tool`` and the filters that every rule type shares."""

import pytest

from guard.core.policy import Action


@pytest.mark.parametrize(
    ("filters", "call", "applies"),
    [
        ({}, {}, True),
        ({"roles": ["send"]}, {}, True),
        ({"roles": ["recall", "list"]}, {}, False),
        ({"tools": ["mail_*"]}, {}, True),
        ({"tools": ["memory_*", {"re2": "post"}]}, {}, False),
        ({"mapped": True}, {}, True),
        ({"mapped": False}, {}, False),
        ({"mapped": False}, {"role": "other", "mapped": False}, True),
        ({"status": ["external"]}, {"standings": ["internal", "external"]}, True),
        ({"status": ["external"]}, {"standings": ["internal"]}, False),
        ({"status": ["external"]}, {}, False),
    ],
)
def test_a_restricting_rule_applies_where_all_its_filters_do(
    rule, situation, filters, call, applies
):
    """For a restricting rule one target of a status is enough."""
    assert (rule("tool", **filters).match(situation(**call)) is not None) is applies


@pytest.mark.parametrize(
    ("filters", "call", "applies"),
    [
        ({}, {"role": "recall"}, True),
        ({}, {"standings": []}, False),
        ({}, {"standings": ["external"]}, True),
        ({}, {"standings": ["external", "denied"]}, False),
        ({}, {"standings": ["malformed"]}, False),
        ({}, {"standings": ["missing"]}, False),
        ({"status": ["internal"]}, {"standings": ["internal", "internal"]}, True),
        ({"status": ["internal"]}, {"standings": ["internal", "external"]}, False),
        ({"status": ["internal"]}, {"role": "draft"}, False),
        ({"status": ["denied"]}, {"standings": ["denied"]}, False),
    ],
)
def test_an_allowing_rule_needs_every_target(rule, situation, filters, call, applies):
    """An allow speaks only where every target is of its standings, and never for some of them."""
    matched = rule("tool", "allow", **filters).match(situation(**call))
    assert (matched is not None) is applies


def test_a_reason_names_rule_effect_and_remedy_but_no_argument(rule, situation):
    """Evidence has standing, kind and path of a few targets; the destination itself stays out."""
    reason = rule("tool", "ask", remedy="call us").match(situation(standings=["external"] * 9))

    assert (reason.code, reason.rule, reason.action) == ("tool_role", "r", Action.ASK)
    assert reason.remedy == "call us"
    assert reason.evidence["target_count"] == 9
    assert (
        reason.evidence["targets"]
        == [{"standing": "external", "kind": "mail", "path": "$['to']"}] * 5
    )
    assert "secret" not in str(reason)
