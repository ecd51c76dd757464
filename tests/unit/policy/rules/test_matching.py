"""Calls that a rule applies to, by rule type: filters, windows of calls, scores, callers."""

import math

import pytest

from guard.core.model import Identity, PrincipalRung, Role, SessionRung
from guard.core.policy import Action
from guard.policy.rules.base import MappingOutline, PolicyOutline

SENDS = PolicyOutline((MappingOutline((), Role.SEND, has_targets=True),))
ALL = ["denied", "malformed", "missing", "external", "allowed", "internal"]
SEEN = {"standings": ["external"]}
SCORED = {"model": "prefix-13", "at_least": 0.5}


def known(principal, session):
    """Return a situation's identity on two rungs."""
    rungs = PrincipalRung[principal.upper()], SessionRung[session.upper()]
    return {"identity": Identity("p", "s", principal_rung=rungs[0], session_rung=rungs[1])}


RESTRICTING = {
    # For a restricting rule one target of a status is enough.
    "tool": [
        ({}, {}, "tool_role"),
        ({"roles": ["send"]}, {}, "tool_role"),
        ({"roles": ["recall", "list"]}, {}, None),
        ({"tools": ["mail_*"]}, {}, "tool_role"),
        ({"tools": ["memory_*", {"re2": "post"}]}, {}, None),
        ({"mapped": True}, {}, "tool_role"),
        ({"mapped": False}, {}, None),
        ({"mapped": False}, {"role": "other", "mapped": False}, "tool_unmapped"),
        ({"status": ["external"]}, {"standings": ["internal", "external"]}, "tool_role"),
        ({"status": ["external"]}, {"standings": ["internal"]}, None),
        ({"status": ["external"]}, {}, None),
    ],
    # An attacker hides the address among internal ones; the code names the worst status.
    "destination": [
        *(({"status": ALL}, {"standings": [one]}, f"destination_{one}") for one in ALL),
        (
            {"status": ["external"]},
            {"standings": ["internal"] * 50 + ["external"]},
            "destination_external",
        ),
    ],
    # This call counts where its role is counted; one full window is enough.
    "rate": [
        ({"at_most": 2}, {"session": ["send"]}, None),
        ({"at_most": 2}, {"session": ["send", "send"]}, "rate_exceeded"),
        ({"at_most": 2}, {"session": ["send"], "in_flight": ["send"]}, "rate_exceeded"),
        ({"at_most": 2}, {"session": ["recall", "recall"]}, None),
        ({"at_most": 2}, {"principal": ["send", "send"]}, "rate_exceeded"),
        ({"at_most": 2, "scope": "session"}, {"session": ["send", "send"]}, "rate_exceeded"),
        ({"at_most": 2, "scope": "principal"}, {"session": ["send", "send"]}, None),
        ({"at_most": 2, "counts": ["recall", "list"]}, {"session": ["recall", "list"]}, None),
        (
            {"at_most": 1, "counts": ["recall", "list"]},
            {"session": ["recall", "list"]},
            "rate_exceeded",
        ),
        ({"at_most": 0}, {}, "rate_exceeded"),
        # A client chooses the id of its session, however it was learnt; a recording does not.
        *(
            (
                {"at_most": 2, "scope": "session"},
                {
                    "principal": ["send", "send"],
                    "identity": Identity("p", "new", session_rung=rung),
                },
                None if rung is SessionRung.RECORDED else "rate_exceeded",
            )
            for rung in SessionRung
        ),
    ],
    "deny_loop": [
        ({"refusals": 3, "scope": scope}, {"refused_in_a_row": rows}, code)
        for scope, rows, code in [
            ("session", (2, 2), None),
            ("session", (2, 9), "deny_loop"),
            ("session", (3, 0), "deny_loop"),
            ("principal", (9, 2), None),
            ("principal", (0, 3), "deny_loop"),
            ("both", (2, 2), None),
            ("both", (0, 4), "deny_loop"),
        ]
    ],
    # The worse of session and principal wins, so a fresh session hides nothing; a call in flight
    # counts, as two parallel calls of one session must not miss each other.
    "sequence": [
        *(
            (
                {"after": ["recall"], "scope": scope},
                {"session": session, "principal": principal},
                code,
            )
            for scope, session, principal, code in [
                ("session", ["recall"], [], "recall_before_send"),
                ("session", [], ["recall"], None),
                ("principal", ["recall"], [], None),
                ("principal", [], ["recall"], "recall_before_send"),
                ("both", ["recall"], [], "recall_before_send"),
                ("both", [], ["recall"], "recall_before_send"),
                ("both", ["list", "draft"], ["send"], None),
            ]
        ),
        ({"after": ["recall"]}, {"in_flight": ["recall"]}, "recall_before_send"),
        ({"after": ["recall", "save"]}, {"session": ["save"]}, "sequence"),
        ({"after": ["recall"]}, {"role": "save", "session": ["recall"]}, "sequence"),
    ],
    "score": [
        (SCORED, {"scores": [0.49]}, None),
        (SCORED, {"scores": [0.5]}, "prefix_score"),
        (SCORED, {"scores": [0.1, 0.9]}, "prefix_score"),
        (SCORED, {"scores": [1.0]}, "prefix_score"),
        # A send that the filters leave out needs no score.
        ({**SCORED, "status": ["external"]}, {"standings": ["internal"]}, None),
    ],
    # The principal is looked at first; a rung that is high enough satisfies.
    "requires": [
        (needs, known(*rungs), code)
        for needs, rungs, code in [
            ({"session": "mcp_session"}, ("anonymous", "connection"), "session_rung_low"),
            ({"session": "mcp_session"}, ("anonymous", "meta"), "session_rung_low"),
            ({"session": "mcp_session"}, ("anonymous", "mcp_session"), None),
            ({"session": "mcp_session"}, ("anonymous", "guard_header"), None),
            ({"principal": "credential"}, ("anonymous", "guard_header"), "principal_rung_low"),
            ({"principal": "credential"}, ("credential", "connection"), None),
            (
                {"principal": "credential", "session": "meta"},
                ("anonymous", "connection"),
                "principal_rung_low",
            ),
            (
                {"principal": "credential", "session": "meta"},
                ("credential", "connection"),
                "session_rung_low",
            ),
            ({"principal": "credential", "session": "guard_header"}, ("recorded",) * 2, None),
        ]
    ],
}
ALLOWING = {
    # An allow speaks only where every target is of its status, and never for some of them.
    "tool": [
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
    "destination": [
        (
            {"status": ["internal", "allowed"]},
            {"standings": ["internal"] * 50 + ["external"]},
            False,
        ),
        ({"status": ["internal", "allowed"]}, {"standings": ["internal", "allowed"]}, True),
    ],
    # The earlier call must have been executed, in every window.
    "sequence": [
        ({"after": ["recall"]}, {"in_flight": ["recall"], "principal": ["recall"], **SEEN}, False),
        ({"after": ["recall"]}, {"session": ["recall"], **SEEN}, False),
        ({"after": ["recall"]}, {"session": ["recall"], "principal": ["recall"], **SEEN}, True),
    ],
}


def _cases(table):
    return [(kind, *case) for kind, cases in table.items() for case in cases]


@pytest.mark.parametrize(("kind", "fields", "call", "code"), _cases(RESTRICTING))
def test_a_restricting_rule_applies_where_it_says(rule, situation, kind, fields, call, code):
    """With the reason code of its type."""
    reason = rule(kind, **fields).match(situation(**call))
    assert (reason and reason.code) == code


@pytest.mark.parametrize(("kind", "fields", "call", "applies"), _cases(ALLOWING))
def test_an_allowing_rule_needs_all(rule, situation, kind, fields, call, applies):
    """One target or window that fits frees nothing."""
    assert (rule(kind, "allow", **fields).match(situation(**call)) is not None) is applies


@pytest.mark.parametrize(
    ("scores", "model"),
    [
        *(([], "prefix-13"), ([None], "prefix-13"), ([math.nan], "prefix-13")),
        *(([-0.1], "prefix-13"), ([1.1], "prefix-13"), ([0.9, math.nan], "prefix-13")),
        ([0.9], "other"),
    ],
)
def test_a_send_without_a_proper_score_is_an_error(rule, situation, scores, model):
    """A model that did not run must not look like one that found nothing."""
    with pytest.raises(ValueError, match="prefix-13"):
        rule("score", **SCORED).match(situation(scores=scores, model=model))


def test_a_reason_names_rule_effect_and_remedy_but_no_argument(rule, situation):
    """Evidence has standing, kind and path of a few targets; the destination itself stays out."""
    reason = rule("tool", "ask", remedy="call us").match(situation(standings=["external"] * 9))

    assert (reason.rule, reason.action, reason.remedy) == ("r", Action.ASK, "call us")
    told = {"standing": "external", "kind": "mail", "path": "$['to']"}
    assert (reason.evidence["target_count"], reason.evidence["targets"]) == (9, [told] * 5)
    assert "secret" not in str(reason)


@pytest.mark.parametrize(("counts", "useless"), [(["recall"], True), (["send", "other"], False)])
def test_a_rate_of_what_cannot_occur_is_a_problem(rule, counts, useless):
    """No tool mapping has the role."""
    assert bool(list(rule("rate", at_most=1, counts=counts).problems(SENDS))) is useless
