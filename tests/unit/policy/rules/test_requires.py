"""The rule type ``requires``."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from guard.core.labels import Attestation, Rung
from guard.core.model import Identity, PrincipalRung, SessionRung
from guard.policy.rules.base import PolicyOutline


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


def test_a_rule_without_a_demand_is_a_problem(rule):
    """An empty demand makes no sense."""
    assert list(rule("requires").problems(PolicyOutline(())))


def on(built, *rungs, guarded=()):
    """Return the situation with its destinations, and guarded values, on these rungs."""

    def placed(target, rung):
        return replace(target, attestation=rung and Attestation(rung, "test"))

    target = built.call.targets[0]
    call = replace(
        built.call,
        targets=tuple(placed(target, rung) for rung in rungs),
        guarded=tuple(placed(target, rung) for rung in guarded),
    )
    return replace(built, call=call)


@pytest.mark.parametrize(
    ("needs", "rungs", "guarded", "caught"),
    [
        ("trusted", [Rung.LISTED, Rung.GRANTED, Rung.PROMPTED], [], False),
        ("trusted", [Rung.REMEMBERED], [], True),
        ("authenticated", [Rung.REPLY, Rung.REMEMBERED], [], False),
        ("authenticated", [Rung.PROMPTED, Rung.CLAIMED], [], True),
        ("advisory", [Rung.CLAIMED], [], False),
        ("advisory", [Rung.UNKNOWN], [], True),
        ("advisory", [Rung.TAINTED], [], True),
        ("advisory", [None], [], True),
        ("trusted", [Rung.LISTED], [Rung.TAINTED], True),
        ("trusted", [], [], False),
    ],
)
def test_the_weakest_value_of_a_call_must_be_of_enough_integrity(
    rule, situation, needs, rungs, guarded, caught
):
    """A call is worth the minimum over its destinations and guarded values."""
    built = on(situation(standings=["external"]), *rungs, guarded=guarded)

    reason = rule("requires", integrity=needs).match(built)

    assert (reason is not None) == caught
    assert reason is None or reason.code == "integrity_low"


@pytest.mark.parametrize("value", ["untrusted", "TRUSTED", 3])
def test_an_integrity_that_demands_nothing_or_does_not_exist_is_refused(rule, value):
    """Everything is at least untrusted."""
    with pytest.raises(ValidationError):
        rule("requires", integrity=value)
