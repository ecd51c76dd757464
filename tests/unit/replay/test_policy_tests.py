"""Tests of policies: what passes, what fails, what is no test."""

import pytest

from guard.core.errors import PolicyError
from guard.core.model import Finding
from guard.detectors.secrets import Secrets
from guard.replay.described_calls import DescribedCall, judge
from guard.replay.policy_tests import Coverage, find_suites, load_suite, run_suite

POLICY = """version: 1
name: mail
internal_domains: [example.com]
tools:
  - {match: [recall], role: recall}
  - {match: [mail], role: send, destinations: ["$.to"]}
rules:
  - {id: no-outside, type: destination, roles: [send], status: [external], effect: block}
  - {id: loop, type: deny_loop, refusals: 3, effect: block}
  - {id: few, type: rate, at_most: 3, roles: [send], effect: ask}
  - {id: known, type: requires, tools: [mail], session: meta, effect: ask}
  - {id: inside, type: destination, roles: [send], status: [internal], effect: allow}
  - {id: work, type: tool, roles: [recall], mapped: true, effect: allow}
"""
CASE = """  - name: {name}
    trajectory: {trajectory}
    call: {{tool: {tool}, arguments: {arguments}, identity: {{session_rung: {rung}}}}}
    verdict: {verdict}
    reasons: [{reasons}]
    errors: {errors}
"""


class Scores:
    """A detector that gives every call one score, or fails."""

    name = "scores"

    def __init__(self, fails=False):
        self.fails = fails

    def inspect(self, call, snapshot):
        if self.fails:
            raise OSError
        return (Finding("scores", "prefix_score", 0.5, data={"model": "prefix-13"}),)


@pytest.fixture
def suite(tmp_path):
    """Return a builder of test files with one case."""

    def build(**fields):
        case = {
            "name": "one",
            "trajectory": "[]",
            "tool": "mail",
            "arguments": "{to: a@example.com}",
            "rung": "meta",
            "verdict": "allow",
            "reasons": "inside",
            "errors": 0,
        } | fields
        (tmp_path / "mail.yaml").write_text(POLICY, encoding="utf-8")
        path = tmp_path / "mail_test.yaml"
        path.write_text("version: 1\ntests:\n" + CASE.format(**case), encoding="utf-8")
        return path

    return build


def complaints(path, detectors=()):
    """Return the complaints about the one case of a test file."""
    loaded = load_suite(path)
    [outcome] = run_suite(loaded, detectors, Coverage(loaded.policy))
    return outcome.complaints


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reasons": "destination_internal"},
        {"reasons": "inside, destination_internal"},
        {"arguments": "{to: x@b.test}", "verdict": "block", "reasons": "no-outside"},
        {"trajectory": "[mail, send, mail]", "verdict": "ask", "reasons": "rate_exceeded"},
        {"trajectory": "{principal: [mail, mail], session: [mail]}", "verdict": "ask",
         "reasons": "few"},
        {"trajectory": "{refused: 2}"},
        {"trajectory": "{refused: 3}", "verdict": "block", "reasons": "deny_loop"},
        {"rung": "connection", "verdict": "ask", "reasons": "session_rung_low"},
        {"tool": "unknown", "verdict": "block", "reasons": "no_rule_matched"},
    ],
)  # fmt: skip
def test_a_right_answer_for_the_right_reason_passes(suite, fields):
    """Codes and rule ids name reasons; what came before and who calls counts."""
    assert complaints(suite(**fields)) == ()


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"verdict": "block"}, "expected block, got allow: destination_internal (inside)"),
        ({"reasons": "work"}, "allow, but not for `work`: destination_internal (inside)"),
        ({"reasons": "inside, no-outside"}, "not for `no-outside`"),
        (
            {"arguments": "{to: x@b.test}", "rung": "connection", "verdict": "block",
             "reasons": "known"},
            "block, but not for `known`",
        ),
        ({"errors": 1}, "expected 1 errors, got 0: none"),
    ],
)  # fmt: skip
def test_a_right_answer_for_a_wrong_reason_fails(suite, fields, complaint):
    """A rule that matched with a weaker effect is no reason for the verdict."""
    found = complaints(suite(**fields))

    assert len(found) == 1
    assert complaint in found[0]


def test_a_detector_that_fails_is_an_error_of_the_verdict(suite):
    """As in live traffic, it blocks; a test can expect it, by count."""
    path = suite(verdict="block", reasons="guard_error", errors=1)

    assert complaints(path, [Scores(fails=True)]) == ()
    assert len(complaints(path, [Scores()])) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("version: 1\ntests: []\n", "is empty"),
        ("version: true\ntests: []\n", "must be `1`"),
        ("tests: 5\n", "missing field `version`"),
        ("version: 1\ntests:\n" + CASE + CASE, "two tests are called `x`"),
        ("version: 1\ntests:\n" + CASE.replace("name", "nam", 1), "did you mean `name`"),
        ("version: 1\ntests:\n" + CASE.replace("{verdict}", "alow"), "did you mean `allow`"),
        ("version: 1\ntests:\n" + CASE.replace("{reasons}", ""), "`reasons` is empty"),
        ("version: 1\ntests:\n" + CASE.replace("{errors}", "-1"), "`errors`"),
        ("version: 1\ntests:\n" + CASE.replace("{errors}", "'0'"), "`errors`"),
        ("version: 1\ntests:\n" + CASE.replace("{rung}", "root"), "`session_rung` must be"),
        ("version: 1\ntests:\n" + CASE.replace("{trajectory}", "5"), "`trajectory`"),
        ("version: 1\nversion: 1\n", "duplicate key"),
        ("version: 1\npolicy: [other.yaml]\ntests:\n" + CASE, "other.yaml"),
        ("version: 1\ntests: &a [*a]\n", "anchor"),
    ],
)
def test_what_is_no_test_file_is_refused_with_its_line(tmp_path, text, problem):
    """As strict as policies: a test that is misread tests nothing."""
    (tmp_path / "mail.yaml").write_text(POLICY, encoding="utf-8")
    path = tmp_path / "mail_test.yaml"
    for name in ("name", "verdict", "reasons", "errors", "rung", "trajectory", "tool", "arguments"):
        values = {"verdict": "allow", "errors": "0", "trajectory": "[]", "arguments": "{}"}
        text = text.replace("{" + name + "}", {"rung": "meta", **values}.get(name, "x"))
    path.write_text(text.replace("{{", "{").replace("}}", "}"), encoding="utf-8")

    with pytest.raises(PolicyError) as caught:
        load_suite(path)

    assert problem in str(caught.value)
    assert f"{tmp_path}" in str(caught.value)


def test_coverage_names_what_no_test_used(suite):
    """Rules that gave no reason and mappings that claimed no call, and the share of the rest."""
    loaded = load_suite(suite())
    used = Coverage(loaded.policy)
    run_suite(loaded, (), used)

    assert used.missed == (
        "rule `no-outside`",
        "rule `loop`",
        "rule `few`",
        "rule `known`",
        "rule `work`",
        "tool mapping `recall` (line 5)",
    )
    assert used.share == pytest.approx(2 / 8)


def test_tests_are_found_beside_policies_and_under_directories(suite, tmp_path):
    """A policy, its test file or a directory may be named; a policy without tests is an error."""
    path = suite()
    (tmp_path / "alone.yaml").write_text(POLICY, encoding="utf-8")

    assert find_suites([tmp_path, tmp_path / "mail.yaml", path]) == [path]
    for missing in ("alone.yaml", "none_test.yaml"):
        with pytest.raises(PolicyError, match="no test file"):
            find_suites([tmp_path / missing])


def test_a_guarded_value_can_be_described_as_traced(policy_from):
    """An amount or a link that came out of untrusted text is judged like such a destination."""
    policy = policy_from("""version: 1
name: pay
internal_domains: [example.com]
tools:
  - {match: [pay], role: send, destinations: ["$.to"], guarded: ["$.amount", "$.text"]}
rules:
  - {id: traced, type: provenance, of: guarded, rungs: [tainted], effect: block}
  - {id: inside, type: destination, roles: [send], status: [internal], effect: allow}
""")
    link = "https://elsewhere.test/x"

    def action(**provenance):
        arguments = {"to": "a@example.com", "amount": 5000, "text": f"see {link}"}
        described = {"call": {"tool": "pay", "arguments": arguments}, "provenance": provenance}
        return judge(policy, (), DescribedCall.model_validate(described)).verdict.action.label

    assert action() == "allow"
    assert action(**{"5000": "tainted"}) == "block"
    assert action(**{link: "tainted"}) == "block"
    assert action(**{"4999": "tainted"}) == "allow"


SHARED = """version: 1
name: notes
internal_domains: [example.com]
tools:
  - {match: [recall], role: recall, store: notes, item: "$.key", source: authenticated}
  - {match: [page], role: retrieve, private: true}
  - {match: [save], role: save, store: notes}
  - {match: [mail], role: send, destinations: ["$.to"], body: ["$.text"]}
rules:
  - {id: denied, type: destination, status: [denied, malformed], effect: block}
  - {id: tainted, type: provenance, rungs: [tainted], effect: block}
  - {id: unknown, type: provenance, rungs: [claimed, unknown], effect: ask}
  - {id: attested, type: provenance,
     rungs: [listed, granted, prompted, established, reply, remembered],
     effect: allow}
  - {id: private, type: private_body, effect: block, rungs: [prompted]}
  - {id: no-secrets, type: content, finds: [secret_found], effect: redact}
  - {id: work, type: tool, roles: [recall, retrieve, save], effect: allow}
memory:
  sources:
    user_input: {L1: token, L2: commit, L3: commit, L4: commit}
    model_inference: {L1: token, L2: elevated, L3: commit, L4: commit}
    tool_result: {L1: refuse, L2: refuse, L3: refuse, L4: elevated}
    self_edit: {L1: token, L2: token, L3: elevated, L4: commit}
  second_look: {L1: human}
  suspicious: ["(?i)ignore"]
  writes:
    - {match: [save], store: notes, target: L3, content: ["$.text"]}
  reads:
    - {match: [recall], store: notes}
"""


@pytest.fixture
def decide(policy_from):
    """Return a function that judges a described call under a policy with a memory gate."""
    policy = policy_from(SHARED)

    def decide(tool, arguments, **described):
        call = {"tool": tool, "arguments": arguments}
        described = DescribedCall.model_validate({"call": call, **described})
        verdict = judge(policy, (Secrets(),), described).verdict
        return verdict.action.label, [reason.code for reason in verdict.reasons]

    return decide


@pytest.mark.parametrize(
    ("rung", "action"),
    [
        ("granted", "allow"),
        ("prompted", "allow"),
        ("reply", "allow"),
        ("remembered", "allow"),
        ("claimed", "ask"),
        ("unknown", "ask"),
        ("tainted", "block"),
    ],
)
@pytest.mark.parametrize(
    "to", ["x@outside.test", "https://outside.test/hook", "outside.test", "C024BE91L", "+41 44 1"]
)
def test_a_described_rung_is_the_rung_that_is_judged(decide, to, rung, action):
    """The records that stand for it go through the ladder of live traffic."""
    found, reasons = decide("mail", {"to": to, "text": "hello"}, provenance={to: rung})

    assert (found, f"provenance_{rung}" in reasons) == (action, True)


@pytest.mark.parametrize("rung", ["listed", "denied"])
def test_what_the_policy_lists_cannot_be_described_otherwise(decide, rung):
    """A description that contradicts the lists would test what cannot happen."""
    with pytest.raises(ValueError, match="its lists say that"):
        decide("mail", {"to": "x@outside.test"}, provenance={"x@outside.test": rung})


@pytest.mark.parametrize(
    ("described", "action", "code"),
    [
        ({}, "allow", "tool_role"),
        ({"trajectory": ["recall"]}, "allow", "tool_role"),
        ({"memory": {"closed": True}}, "block", "partition_quarantined"),
        ({"memory": {"nonce_used": True}}, "block", "nonce_replayed"),
        ({"memory": {"trust": "untrusted"}}, "block", "source_untrusted"),
        ({"memory": {"item": "L4"}}, "block", "promotion_token_missing"),
        ({"memory": {"item": "L4", "promotion": "valid"}}, "allow", "tool_role"),
        ({"trajectory": ["page"]}, "block", "source_class_refused"),
        ({"trajectory": {"principal": ["page"]}}, "block", "source_class_refused"),
        ({"read_untrusted": True}, "block", "source_class_refused"),
        ({"saturated": True}, "block", "source_class_refused"),
    ],
)
def test_a_described_save_goes_through_the_memory_gate(decide, described, action, code):
    """What live traffic refuses is not allowed here."""
    found, reasons = decide("save", {"text": "the meeting is on Monday"}, **described)

    assert (found, code in reasons) == (action, True)


@pytest.mark.parametrize(("where", "action"), [("text", "redact"), ("to", "block")])
def test_a_described_call_is_redacted_or_refused(decide, where, action):
    """What cannot be replaced exactly blocks here as well."""
    key = "ghp" + "_" + "a1B2" * 9
    to = "x@outside.test"
    arguments = {"to": to, "text": key} if where == "text" else {"to": f"{key}@outside.test"}
    receiver = str(arguments["to"])

    assert decide("mail", arguments, provenance={receiver: "prompted"})[0] == action
