"""The rule type ``destination``."""

import pytest

ALL = ["denied", "malformed", "missing", "external", "allowed", "internal"]


@pytest.mark.parametrize("status", ALL)
def test_the_code_names_the_status(rule, situation, status):
    """Each status has one reason code."""
    reason = rule("destination", status=ALL).match(situation(standings=[status]))
    assert reason.code == f"destination_{status}"


def test_one_external_recipient_among_many_is_enough_to_block(rule, situation):
    """An attacker hides the address among internal ones."""
    blocked = rule("destination", status=["external"]).match(
        situation(standings=["internal"] * 50 + ["external"])
    )
    assert blocked.evidence["target_count"] == 1


def test_one_external_recipient_among_many_is_enough_not_to_allow(rule, situation):
    """The same call is not allowed by the rule for internal ones."""
    allowing = rule("destination", "allow", status=["internal", "allowed"])
    assert allowing.match(situation(standings=["internal"] * 50 + ["external"])) is None
    assert (
        allowing.match(situation(standings=["internal", "allowed"])).code == "destination_allowed"
    )
