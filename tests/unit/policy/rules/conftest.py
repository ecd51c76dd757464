"""Builders for situations; a rule sees nothing else."""

import pytest

from guard.core.calls import ClassifiedCall, Target, untraced
from guard.core.mappings import ToolMapping
from guard.core.model import Destination, DestinationStatus, Finding, Identity, Role, ToolCall
from guard.core.policy import Situation
from guard.core.trajectory import Snapshot, Trajectory, Window


def _window(roles, in_flight=(), refused_in_a_row=0):
    trajectory = Trajectory.of(roles)
    attempted = list(trajectory.executed)
    for role in in_flight:
        attempted[list(Role).index(role)] += 1
    return Window(trajectory, tuple(attempted), refused_in_a_row=refused_in_a_row)


@pytest.fixture
def situation():
    """Return a builder of situations."""

    def build(
        role="send",
        standings=(),
        *,
        tool="mail_send",
        mapped=True,
        session=(),
        principal=(),
        in_flight=(),
        scores=(),
        facts=None,
        model="prefix-13",
        arguments=None,
        identity=None,
        refused_in_a_row=(0, 0),
    ):
        arguments = {"to": "x"} if arguments is None else arguments
        call = ToolCall("id", identity or Identity("p", "s"), tool, arguments, "mcp", 0.0)
        targets = tuple(
            Target(
                Destination("mail", f"secret{i}@x.example", "x.example"),
                DestinationStatus(s),
                "$['to']",
            )
            for i, s in enumerate(standings)
        )
        snapshot = Snapshot(
            _window(map(Role, session), map(Role, in_flight), refused_in_a_row[0]),
            _window(map(Role, principal), (), refused_in_a_row[1]),
        )
        findings = tuple(
            Finding("d", "prefix_score", score, data={"model": model}, facts=facts or {})
            for score in scores
        )
        mapping = ToolMapping(tool, bool, Role(role)) if mapped else None
        classified = ClassifiedCall(call, Role(role), mapping, targets=targets)
        return Situation(untraced(classified), snapshot, findings)

    return build


@pytest.fixture
def rule():
    """Return a builder of rules from what a policy would write."""
    import json

    from guard.policy.rules import discover_rule_types

    types = discover_rule_types()

    def build(kind, effect="block", **fields):
        raw = {"id": "r", "type": kind, "effect": effect, **fields}
        return types[kind].model_validate_json(json.dumps(raw))

    return build
