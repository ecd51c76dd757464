"""``guard policy test | explain | diff``: exit codes and what they say."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.core.ports import DecisionRecord
from guard.policy import load_policies
from guard.replay.described_calls import DescribedCall, judge
from guard.telemetry.audit_log import AuditLogFile

ROOT = Path(__file__).parents[3]
DEFAULT = ROOT / "policies" / "default.yaml"


def run(command, *arguments, text=None):
    """Run a command as its users do."""
    words = ["policy", command, *(str(argument) for argument in arguments)]
    return CliRunner().invoke(cli.app, words, input=text)


@pytest.fixture
def failing(tmp_path):
    """Return a copy of the default policy whose first test is wrong."""
    (tmp_path / "p.yaml").write_text(DEFAULT.read_text("utf-8"), encoding="utf-8")
    path = tmp_path / "p_test.yaml"
    text = (ROOT / "policies" / "default_test.yaml").read_text("utf-8")
    path.write_text(text.replace("verdict: allow", "verdict: block", 1), encoding="utf-8")
    return path


def test_a_failing_test_exits_with_2_and_says_why(failing):
    """File, line, name, what was expected, what came and for which reason."""
    result = run("test", failing)

    assert result.exit_code == 2
    assert f"{failing}:4: mail to colleagues goes out: expected block, got allow" in result.stdout
    assert "(allow-attested)" in result.stdout
    assert " passed, 1 failed" in result.stdout


@pytest.fixture
def log(tmp_path):
    """Return an audit log with one refusal in it, and its decision id."""
    policy = load_policies([DEFAULT])
    call = {"tool": "send_email", "arguments": {"to": "secret@b.test"}}
    judged = judge(policy, (), DescribedCall(call=call))
    path = tmp_path / "audit.jsonl"
    audit = AuditLogFile(path)
    audit.event("guard.unreadable", {"decision_id": "feedfeed", "code": "bad_json",
                                     "action": "block"})  # fmt: skip
    audit.decision(DecisionRecord(judged.call.classified, judged.verdict, 0.001, {}))
    audit.close()
    text = path.read_text("utf-8").replace('"described"', '"0123456789abcdef"')
    path.write_text(text + "not json 0123456789abcdef\n", encoding="utf-8")
    return path


def test_a_decision_is_explained_from_the_log(log):
    """Its reasons, where its destinations stood, and the words of the policy that decided."""
    result = run("explain", "0123456789abcdef", "--audit", log, "-p", DEFAULT, "--json")

    document = json.loads(result.stdout)
    assert result.exit_code == 2
    assert {r["rule"] for r in document["reasons"]} >= {"ask-unknown"}
    assert document["targets"][0]["standing"] == "external"
    assert "note" not in document
    shown = run("explain", "0123456789abcdef", "--audit", log)
    assert "code: provenance_unknown\n  rule: ask-unknown" in shown.stdout
    assert "secret@b.test" not in result.stdout + shown.stdout


def test_another_policy_is_not_taken_for_the_one_that_decided(log):
    """Its rules may have the same names and mean something else."""
    other = ROOT / "policies" / "examples" / "observe.yaml"
    result = run("explain", "0123456789abcdef", "--audit", log, "-p", other)

    assert "the policy given is not the one that decided" in result.stdout


@pytest.fixture
def traces(tmp_path):
    """Return two runs: one sends inside, the other outside."""
    path = tmp_path / "runs.jsonl"
    with path.open("w", encoding="utf-8") as sink:
        for name, to in (("in", "a@example.com"), ("out", "x@partner.test")):
            call = {"i": 0, "session": "s", "tool": "send_email", "args": {"to": to}}
            sink.write(json.dumps({"run_id": name, "calls": [call]}) + "\n")
    return path


def test_every_verdict_that_flips_is_listed_with_its_rules(traces, tmp_path):
    """Allowing a partner frees exactly the send to it."""
    after = tmp_path / "after.yaml"
    text = DEFAULT.read_text("utf-8").replace("allow: []", "allow: [partner.test]")
    after.write_text(text, encoding="utf-8")

    same = run("diff", DEFAULT, DEFAULT, traces, "--exit-code")
    flipped = run("diff", DEFAULT, after, traces, "--exit-code", "--json")

    assert (same.exit_code, same.stdout) == (0, "")
    assert "2 runs, 2 calls: no flip" in same.stderr
    assert flipped.exit_code == 2
    [flip] = [json.loads(line) for line in flipped.stdout.splitlines()]
    assert (flip["run_id"], flip["before"], flip["after"]) == ("out", "ask", "allow")
    assert flip["before_by"] == ["ask-unknown"]
    assert flip["after_by"] == ["allow-attested"]
