"""``guard policy test | explain | diff``: exit codes and what they say."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.adapters.audit_log import AuditLogFile
from guard.core.ports import DecisionRecord
from guard.policy_files import load_policies
from guard.replay.described_calls import DescribedCall, judge

ROOT = Path(__file__).parents[3]
DEFAULT = ROOT / "policies" / "default.yaml"


def run(command, *arguments, text=None):
    """Run a command as its users do."""
    words = ["policy", command, *(str(argument) for argument in arguments)]
    return CliRunner().invoke(cli.app, words, input=text)


def test_the_tests_of_the_shipped_policies_pass():
    """What they promise is what they decide, and nearly all of them is tried."""
    result = run("test", ROOT / "policies", "--at-least", "0.9")

    assert result.exit_code == 0, result.stdout
    assert " 0 failed" in result.stdout


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


def test_json_lines_are_the_only_standard_output(failing):
    """A script reads one object per test."""
    result = run("test", failing, "--json")

    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["passed"] for line in lines] == [False] + [True] * (len(lines) - 1)
    assert lines[0]["reasons"][0]["rule"] == "allow-attested"


@pytest.mark.parametrize(("share", "code"), [("0.85", 0), ("1.0", 2)])
def test_coverage_below_the_share_exits_with_2(share, code):
    """The deny list of the default policy is empty, so its rule can never be used."""
    result = run("test", DEFAULT, "--at-least", share)

    assert result.exit_code == code
    assert "never used: rule `block-denied`" in result.stdout


@pytest.mark.parametrize("name", ["nothing_test.yaml", "empty", "broken_test.yaml"])
def test_invalid_tests_exit_with_3(tmp_path, name):
    """A missing file, a directory without tests, and a file that is none."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken_test.yaml").write_text("version: 1\ntest: []\n", encoding="utf-8")

    result = run("test", tmp_path / name)

    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        (
            {"tool": "send_email", "arguments": {"to": "a@example.com"}},
            0,
            ["allow: send_email", "allow by allow-attested", "internal (mail)"],
        ),
        (
            {"call": {"tool": "send_email", "arguments": {"to": "x@b.test"}},
             "trajectory": ["recall"]},
            2,
            ["ask by recall-before-unknown-send", '"after": ["recall"]', "did not apply"],
        ),
        ({"tool": "sh\x1b[2J"}, 2, ["ask: sh\\x1b[2J", "tool_unmapped"]),
    ],
)  # fmt: skip
def test_a_described_call_is_explained(document, code, words):
    """Verdict, mapping, standing of each destination, every reason with its evidence."""
    result = run("explain", "-", "-p", DEFAULT, text=json.dumps(document))

    assert result.exit_code == code
    assert all(word in result.stdout for word in words), result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"tool": 5}', '{"tool": "a", "tool": "b"}', '{"tool": "a", "x": 1}']
)
def test_what_is_no_call_exits_with_3(text):
    """JSON that two readers read differently is no call either."""
    assert run("explain", "-", "-p", DEFAULT, text=text).exit_code == 3


def test_a_call_without_a_policy_or_a_log_exits_with_3(tmp_path):
    """Neither a missing file nor a missing option is guessed."""
    assert run("explain", "-", text="{}").exit_code == 3
    assert run("explain", tmp_path / "none.json", "-p", DEFAULT).exit_code == 3
    assert run("explain", "0123456789abcdef", "-p", DEFAULT).exit_code == 3


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
    assert "ask by ask-unknown: provenance_unknown" in shown.stdout
    assert "secret@b.test" not in result.stdout + shown.stdout


def test_another_policy_is_not_taken_for_the_one_that_decided(log):
    """Its rules may have the same names and mean something else."""
    other = ROOT / "policies" / "examples" / "observe.yaml"
    result = run("explain", "0123456789abcdef", "--audit", log, "-p", other)

    assert "the policy given is not the one that decided" in result.stdout


def test_a_request_that_could_not_be_read_is_explained(log):
    """Its refusal has a decision id as well."""
    result = run("explain", "feedfeed", "--audit", log)

    assert result.exit_code == 2
    assert "bad_json" in result.stdout


@pytest.mark.parametrize("identifier", ["deadbeefdeadbeef", "../etc", "x y"])
def test_an_unknown_decision_exits_with_3(log, identifier):
    """It may be in a rotated file."""
    assert run("explain", identifier, "--audit", log).exit_code == 3


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


def test_a_side_of_many_files_is_compared_as_one_policy(traces, tmp_path):
    """All of a directory but the tests in it, beside what both sides share."""
    sides = tmp_path / "before", tmp_path / "after"
    for side in sides:
        side.mkdir()
        (side / "b.yaml").write_text("version: 1\nname: more\n", encoding="utf-8")
        (side / "b_test.yaml").write_text("version: 1\n", encoding="utf-8")
    partner = "version: 1\nname: partner\nallow: [partner.test]\n"
    (sides[1] / "a.yaml").write_text(partner, encoding="utf-8")

    flipped = run("diff", *sides, traces, "--policy", DEFAULT, "--json")

    [flip] = [json.loads(line) for line in flipped.stdout.splitlines()]
    assert (flip["run_id"], flip["before"], flip["after"]) == ("out", "ask", "allow")
    (sides[0] / "b.yaml").unlink()
    assert run("diff", *sides, traces, "--policy", DEFAULT).exit_code == 3


def test_a_flip_is_a_sentence_for_people(traces, tmp_path):
    """Without `--exit-code` a flip is news, not a failure."""
    after = tmp_path / "after.yaml"
    text = DEFAULT.read_text("utf-8").replace("allow: []", "allow: [partner.test]")
    after.write_text(text, encoding="utf-8")

    result = run("diff", DEFAULT, after, traces)

    assert result.exit_code == 0
    assert result.stdout == (
        "out call 0 send_email (send): ask (ask-unknown) -> allow (allow-attested)\n"
    )


def test_invalid_input_of_diff_exits_with_3(traces, tmp_path):
    """A broken policy and a broken trace are told apart from a failed replay."""
    broken = tmp_path / "broken.yaml"
    broken.write_text("version: 1\n", encoding="utf-8")

    assert run("diff", DEFAULT, broken, traces).exit_code == 3
    assert run("diff", DEFAULT, DEFAULT, broken).exit_code == 3
