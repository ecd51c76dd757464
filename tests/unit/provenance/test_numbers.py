"""Numbers of a result are labelled where some rule asks where a guarded number came from."""

from pathlib import Path

import pytest

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.model import Identity, Role, ToolCall
from guard.policy import load_policies
from guard.provenance.intake import portable, result_writes
from guard.provenance.seal import Seal

POLICY = """
version: 1
name: test
mode: enforce
tools:
  - {match: [pay], role: send, destinations: ["$.to"], guarded: ["$.amount"]}
rules:
  - {id: allow, type: provenance, roles: [send], rungs: [listed], effect: allow}
  - {id: x, type: provenance, of: guarded, KINDS rungs: [tainted], effect: ask}
"""
SEAL = Seal(bytes(32))


@pytest.mark.parametrize(
    ("kinds", "asked"),
    [("kinds: [url, host],", False), ("kinds: [url, number],", True), ("", True)],
    ids=["links", "numbers", "every kind"],
)
def test_a_number_is_labelled_where_a_rule_asks_about_numbers(
    tmp_path: Path, kinds: str, *, asked: bool
) -> None:
    """Wherever the result is read; no other policy ever looks a number up."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.replace("KINDS", kinds), encoding="utf-8")
    policy = load_policies([path])
    call = ClassifiedCall(ToolCall("c", Identity("a", "s"), "read", {}, "mcp", 0.0), Role.RETRIEVE)
    result = ToolResult(untraced(call), "the amount is 4711.50 or 815", 0.0)

    here, _ = result_writes(SEAL, policy, result)
    elsewhere, _ = result_writes(SEAL, *portable(policy, result))
    labelled = {mark for write in here for mark, _ in write.entries}

    assert here == elsewhere
    assert (SEAL.fingerprint("number:4711.5") in labelled) is asked
    assert (SEAL.fingerprint("number:815") in labelled) is asked
