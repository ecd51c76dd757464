"""Rule type ``result``: withholds a result on the evidence of the detectors that it names."""

import pytest

from guard.core.calls import ClassifiedCall
from guard.core.errors import PolicyError
from guard.core.mappings import ToolMapping
from guard.core.model import Finding, Identity, Role, ToolCall
from guard.core.policy import Action, decide_result

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
