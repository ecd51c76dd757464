"""The rule types ``content`` and ``result``: what detectors find in a call and in a result."""

from dataclasses import replace

import pytest

from guard.core.calls import ClassifiedCall
from guard.core.errors import PolicyError
from guard.core.mappings import ToolMapping
from guard.core.model import Finding, Identity, Role, ToolCall
from guard.core.policy import Action, decide_result
from guard.detectors import DetectorResources
from guard.detectors.secrets import Secrets
from guard.policy.rules.content import LIMIT

TOKEN = "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"


@pytest.fixture
def looked_at(situation):
    """Return a builder of situations with what the detector of secrets finds."""
    detector = Secrets.create(DetectorResources())

    def build(arguments):
        made = situation(arguments=arguments)
        return replace(made, findings=tuple(detector.inspect(made.call, made.snapshot)))

    return build


@pytest.mark.parametrize(
    "arguments",
    [
        {"body": f"the key is {TOKEN}"},
        {"deep": [{"list": ["x", TOKEN]}]},
        {"api_key": "Zx81mQ02nV73bT64"},
        {"body": TOKEN.encode().hex()},
    ],
)
def test_it_applies_to_what_stands_anywhere_in_the_arguments(rule, looked_at, arguments):
    """At any depth, in any coding, or told by its name."""
    reason = rule("content", finds=["secret_found"]).match(looked_at(arguments))

    assert reason.code == "secret_found"
    assert TOKEN not in f"{reason.detail}{reason.evidence}"


@pytest.mark.parametrize("effect", ["ask", "redact"])
def test_what_is_too_large_to_search_is_a_reason_and_never_redacted(rule, situation, effect):
    """A limit must not be a way out, and nobody knows what would be left."""
    huge = situation(arguments={"body": "a " * LIMIT + TOKEN})
    reason = rule("content", finds=["secret_found"], effect=effect).match(huge)

    assert reason.code == "too_large_to_inspect"
    assert reason.action is (Action.ASK if effect == "ask" else Action.BLOCK)


NAME = "instruction_patterns"
FOUND = Finding(NAME, "injection_in_result", None, "an order")
RULES = """\
version: 1
name: results
mode: enforce
tools:
  - {match: ["fetch*"], role: retrieve}
rules:
  - {id: allow, type: tool, effect: allow}
  - {id: quiet, type: result, finds: [instruction_patterns], effect: block, tools: ["fetch*"]}
"""


def called(tool):
    """Return a call of a tool."""
    call = ToolCall("1", Identity("p", "s"), tool, {}, "mcp", 1.0)
    return ClassifiedCall(call, Role.RETRIEVE, ToolMapping("*", bool, Role.RETRIEVE))


@pytest.mark.parametrize(
    ("tool", "evidence", "codes"),
    [
        ("fetch_page", {NAME: FOUND}, ["injection_in_result"]),
        ("fetch_page", {NAME: None}, None),
        ("fetch_page", {"other": FOUND, NAME: None}, None),
        ("clock", {NAME: FOUND}, None),
        # Evidence that is missing withholds.
        ("fetch_page", {}, ["rule_error"]),
    ],
)
def test_a_result_is_withheld_on_a_finding(policy_from, tool, evidence, codes):
    """A finding of a named detector in the result of a selected tool, and missing evidence."""
    verdict = decide_result(policy_from(RULES), called(tool), evidence)

    assert (verdict and [reason.code for reason in verdict.reasons]) == codes
    assert verdict is None or verdict.action is Action.BLOCK


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("effect: block, tools", "effect: ask, tools"), "withheld or released"),
        (("[instruction_patterns]", "[prompt-guard]"), "unknown detector `prompt-guard`"),
        (("finds: [instruction_patterns], ", ""), "unknown detector `injection_text`"),
    ],
)
def test_a_rule_that_cannot_work_is_an_error(policy_from, change, problem):
    """An effect that a result cannot have, and a detector that is not installed."""
    with pytest.raises(PolicyError, match=problem):
        policy_from(RULES.replace(*change))
