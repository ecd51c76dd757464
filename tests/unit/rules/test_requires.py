"""The rule type ``requires``."""

import pytest
from pydantic import ValidationError

from guard.core.model import Identity, PrincipalRung, SessionRung
from guard.rules import PolicyOutline


def known(principal, session):
    """Return an identity on two rungs."""
    return Identity(
        "p",
        "s",
        principal_rung=PrincipalRung[principal.upper()],
        session_rung=SessionRung[session.upper()],
    )


@pytest.mark.parametrize(
    ("needs", "principal", "session", "code"),
    [
        ({"session": "mcp_session"}, "anonymous", "connection", "session_rung_low"),
        ({"session": "mcp_session"}, "anonymous", "meta", "session_rung_low"),
        ({"session": "mcp_session"}, "anonymous", "mcp_session", None),
        ({"session": "mcp_session"}, "anonymous", "guard_header", None),
        ({"principal": "credential"}, "anonymous", "guard_header", "principal_rung_low"),
        ({"principal": "credential"}, "credential", "connection", None),
        (
            {"principal": "credential", "session": "meta"},
            "anonymous",
            "connection",
            "principal_rung_low",
        ),
        (
            {"principal": "credential", "session": "meta"},
            "credential",
            "connection",
            "session_rung_low",
        ),
        ({"principal": "credential", "session": "guard_header"}, "recorded", "recorded", None),
    ],
)
def test_a_caller_known_less_well_is_caught(rule, situation, needs, principal, session, code):
    """The principal is looked at first; a rung that is high enough satisfies."""
    reason = rule("requires", **needs).match(situation(identity=known(principal, session)))

    assert (reason and reason.code) == code


@pytest.mark.parametrize(
    "fields",
    [
        {"session": "recorded"},
        {"session": "connection"},
        {"principal": "anonymous"},
        {"principal": "root"},
        {"session": 3},
    ],
)
def test_a_rung_that_demands_nothing_or_does_not_exist_is_refused(rule, fields):
    """Everybody has the lowest rung, and nobody on the wire has the recorded one."""
    with pytest.raises(ValidationError):
        rule("requires", **fields)


@pytest.mark.parametrize(("effect", "fields"), [("block", {}), ("allow", {"session": "meta"})])
def test_a_rule_without_a_demand_is_a_problem(rule, effect, fields):
    """Neither an empty demand nor one that frees the unknown makes sense."""
    assert list(rule("requires", effect, **fields).problems(PolicyOutline(())))
