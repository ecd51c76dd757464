"""Tests of how recorded sends are told apart."""

import pytest

from guard.replay.traces import Call, Run
from lab.eval_provenance import agentdojo_side, mail_receiver
from lab.judged_runs import JudgedCall


def judged(tool, args, labels=None, i=0, action="ask"):
    """Build a judged call of a run of its own."""
    call = Call(i=i, session="0", tool=tool, args=args)
    run = Run(run_id="r", calls=(call,), labels=labels or {})
    line = {"action": action, "rules": ["some-rule"], "reasons": []}
    return JudgedCall(run, call, line)


@pytest.mark.parametrize(
    ("to", "receiver"),
    [
        (["a@example.com"], "internal"),
        (["a@example.com", "Evil@bad.test"], "attacker"),
        (["a@example.com", "b@other.test"], "made_up"),
        (["A. Nobody"], "made_up"),
        (["evil@bad.example.com"], "made_up"),
        ([], "nobody"),
        ("a@example.com", "internal"),
    ],
)
def test_a_mail_goes_to_the_worst_of_its_recipients(to, receiver):
    """One attacker among colleagues makes it the attacker's mail."""
    labels = {"attacker_recipients": ["evil@bad.test"]}

    assert mail_receiver(judged("email_send_email", {"to": to}, labels)) == receiver


@pytest.mark.parametrize(
    ("tool", "args", "sends"),
    [
        ("send_email", {"recipients": ["a@b.test"]}, True),
        ("create_calendar_event", {"title": "x"}, False),
        ("create_calendar_event", {"participants": ["a@b.test"]}, True),
        ("update_scheduled_transaction", {"id": 7, "date": "2022-01-01"}, False),
        ("update_scheduled_transaction", {"id": 7, "amount": 5}, True),
        ("read_file", {"file_path": "x"}, False),
    ],
)
def test_a_call_is_a_send_if_something_leaves_by_it(tool, args, sends):
    """An event without participants stays at home."""
    assert bool(agentdojo_side(judged(tool, args))) is sends


def test_the_index_of_the_source_call_is_looked_for_in_what_stopped_the_call():
    """An allowing reason's evidence does not explain a stop."""
    call = judged("t", {})
    call.line["reasons"] = [{"code": "x", "action": "allow", "evidence": {"call": 3}}]
    assert not call.names_call

    call.line["reasons"] = [
        {"code": "provenance_tainted", "action": "ask", "evidence": {"targets": [{"call": 3}]}}
    ]
    assert call.names_call
    assert call.tainted
