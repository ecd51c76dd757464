"""Actions in what people read: the explanation, the audit line and the question."""

import json

import pytest

from guard.core.ports import DecisionRecord
from guard.policy import load_policies
from guard.provenance.approvals import Approvals
from guard.provenance.questions import questioned
from guard.replay.described_calls import SEAL, CallEntry, DescribedCall, judge
from guard.replay.explanation import explained, lines_of
from guard.settings import policies_directory
from guard.telemetry.audit_log import AuditLogFile

OBJECT = {"document_id": "`report`\n.txt", "to": "team@example.com"}


@pytest.fixture(scope="module")
def policy():
    """The policy that the guard starts with."""
    return load_policies([policies_directory() / "default.yaml"])


def judged(policy, *prompts):
    """Return the judgement on a call in a session with some prompts."""
    call = CallEntry(tool="share_document", arguments=OBJECT)
    return judge(policy, [], DescribedCall(prompts=prompts, call=call))


def question(policy, found):
    """Return the question about a judged call, as it is read from the store."""
    approvals = Approvals(SEAL)
    [(record, _)] = approvals.requests(policy, [(found.call, found.verdict)])
    raw = record.entries[0][1]
    asked = approvals.read(found.call.call.identity.tenant, found.call.call.id, raw)
    return questioned([asked]).text()


def audit_line(tmp_path, found):
    """Return the audit line of a judgement, parsed."""
    log = AuditLogFile(tmp_path / "audit.jsonl")
    log.decision(DecisionRecord(found.call.classified, found.verdict, 0.0, {}, found.call.action))
    log.close()
    return json.loads((tmp_path / "audit.jsonl").read_text("utf-8"))


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("What is new?", "not_requested"),
        ("Do not share anything.", "refused"),
        ("Share the file with Ann.", ""),
    ],
)
def test_action_and_rung_are_shown_everywhere(policy, tmp_path, prompt, why):
    """An unrequested action is named in the question with one plain cause."""
    found = judged(policy, prompt)
    change = explained(policy, found)["change"]

    assert change["action"] == "share"
    assert change["rung"] == ("unrequested" if why else "requested")
    assert audit_line(tmp_path, found)["change"] == change
    assert any(change["rung"] in line for line in lines_of(explained(policy, found)))
    asked = question(policy, found) if why else ""
    assert "\n" not in asked
    assert ("share “`report` .txt” with “team@example.com”" in asked) is bool(why)
    assert ("Nobody asked for this" in asked) is (why == "not_requested")
