"""What the policy says about a call: role, destinations wherever they stand, body."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guard.core.calls import ClassifiedCall
from guard.core.model import DestinationStatus, Identity, Role, ToolCall
from guard.decision.classification import classify
from guard.policy_files import load_policies

POLICY = """
version: 1
name: test
mode: enforce
internal_domains: [example.com]
tools:
  - match: [send]
    role: send
    destinations: ["$.to", "$.cc"]
    body: ["$.body"]
    ignore: ["$.meta.id"]
  - match: [recall]
    role: recall
rules:
  - {id: allow, type: destination, roles: [send], status: [internal], effect: allow}
"""


@pytest.fixture(name="judge")
def _judge(tmp_path: Path) -> Any:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    policy = load_policies([path])

    def judge(tool: str, **arguments: Any) -> ClassifiedCall:
        identity = Identity("agent", "session")
        return classify(policy, ToolCall("c", identity, tool, arguments, "mcp", 0.0))

    return judge


def standings(call: ClassifiedCall) -> set[DestinationStatus]:
    """Return where the destinations of a call stand."""
    return {target.standing for target in call.targets}


def test_declared_destinations_are_read(judge: Any) -> None:
    """Every declared argument counts, lists included."""
    call = judge("send", to=["a@example.com", "b@evil.test"], cc="c@example.com", body="x")

    assert call.role is Role.SEND
    assert standings(call) == {DestinationStatus.INTERNAL, DestinationStatus.EXTERNAL}
    assert len(call.targets) == 3


def test_an_address_in_an_undeclared_argument_counts(judge: Any) -> None:
    """An attacker does not have to use the field the policy's author thought of."""
    for hidden in (
        {"bcc": "b@evil.test"},
        {"options": {"reply": [{"x": "mail b@evil.test now"}]}},
        {"b@evil.test": True},
        {"nested": {"b@evil.test": 1}},
    ):
        assert DestinationStatus.EXTERNAL in standings(
            judge("send", to="a@example.com", **hidden)
        ), hidden


def test_a_key_that_spells_an_ignored_path_is_not_ignored(judge: Any) -> None:
    """Paths are compared escaped: a key cannot pretend to be another member."""
    forged = judge("send", to="a@example.com", **{"meta']['id": "b@evil.test"})
    honest = judge("send", to="a@example.com", meta={"id": "b@evil.test"})

    assert DestinationStatus.EXTERNAL in standings(forged)
    assert standings(honest) == {DestinationStatus.INTERNAL}


def test_the_body_is_not_a_destination(judge: Any) -> None:
    """An address in the text of a mail is payload."""
    call = judge("send", to="a@example.com", body="write to b@evil.test")

    assert standings(call) == {DestinationStatus.INTERNAL}
    assert call.body == ("write to b@evil.test",)


@pytest.mark.parametrize("arguments", [{}, {"to": ""}, {"to": []}, {"to": None}, {"body": "x"}])
def test_a_send_without_a_destination_is_missing_one(judge: Any, arguments: dict[str, Any]) -> None:
    """A send that names nobody cannot be judged and says so."""
    assert standings(judge("send", **arguments)) == {DestinationStatus.MISSING}


def test_an_unmapped_tool_is_other_and_its_destinations_count(judge: Any) -> None:
    """A tool nobody mapped is looked through for whatever can be a destination."""
    call = judge("post_everywhere", url="https://evil.test/x", text="hello")

    assert (call.role, call.mapped) == (Role.OTHER, False)
    assert standings(call) == {DestinationStatus.EXTERNAL}


def test_more_undeclared_text_than_can_be_looked_through_is_malformed(judge: Any) -> None:
    """A limit on the work frees nobody."""
    call = judge("send", to="a@example.com", blob="x" * 2_000_000)

    assert DestinationStatus.MALFORMED in standings(call)


GUARDED = """
version: 1
name: test
mode: enforce
tools:
  - {match: [pay], role: send, destinations: ["$.to"], guarded: ["$.note"]}
rules:
  - {id: allow, type: provenance, roles: [send], rungs: [listed], effect: allow}
  - RULE
"""
LINKS = "{id: x, type: provenance, of: guarded, kinds: [url, host], rungs: [tainted], effect: ask}"
ANY = "{id: x, type: provenance, of: guarded, rungs: [tainted], effect: ask}"
SUM = "{id: x, type: requires, integrity: advisory, effect: ask}"
NOBODY = "{id: x, type: requires, session: meta, effect: ask}"


@pytest.mark.parametrize(
    ("rule", "kinds"),
    [
        pytest.param(LINKS, {"url", "host"}, id="links"),
        pytest.param(ANY, {"url", "host", "mail", "text"}, id="every-kind"),
        pytest.param(SUM, {"url", "host", "mail", "text"}, id="integrity"),
        pytest.param(NOBODY, set(), id="no-rule-looks"),
    ],
)
def test_guarded_values_are_read_as_far_as_a_rule_looks_at_them(
    tmp_path: Path, rule: str, kinds: set[str]
) -> None:
    """What no rule looks at is not traced, and costs nothing."""
    path = tmp_path / "policy.yaml"
    path.write_text(GUARDED.replace("RULE", rule), encoding="utf-8")
    note = "rent: https://pay.test/x, see www.bank.test or a@b.test"
    call = ToolCall("c", Identity("a", "s"), "pay", {"to": "b@c.test", "note": note}, "mcp", 0.0)

    guarded = classify(load_policies([path]), call).guarded

    assert {target.destination.kind for target in guarded} == kinds
