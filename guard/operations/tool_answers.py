"""Answers for an unmapped tool: those that its pinned definition allows, and a mapping of it.

A definition is the server's own words: it can forbid an answer, and only a person gives one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from guard.core.tool_answers import Cover
from guard.policy.proposal import ListedTool, is_addressed, suggested_action
from guard.provenance.errands import NEVER

if TYPE_CHECKING:
    from guard.memory.pins import Pin
    from guard.provenance.approvals import ApprovalRequest, AskedCall, Grant


UNMAPPED: Final = "tool_unmapped"
"""Reason code of a call of an unmapped tool."""


def tool_of(pin: Pin | None) -> ListedTool | None:
    """Return a tool as its pin has it; None where its definition is not kept."""
    try:
        found = json.loads(pin.text) if pin is not None else None
    except ValueError:
        return None
    if pin is None or not isinstance(found, dict):
        return None
    schema, annotations = found.get("inputSchema"), found.get("annotations")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return ListedTool(
        pin.tool,
        properties if isinstance(properties, dict) else {},
        annotations if isinstance(annotations, dict) else {},
        pin.digests[0],
    )


def refusal(cover: Cover, call: AskedCall, tool: ListedTool | None) -> str:
    """Return why an answer for a tool cannot be kept; empty where it can."""
    if UNMAPPED not in call.reasons:
        return f"the policy maps `{call.tool}`; change its mapping instead"
    if tool is None or call.definition:
        return f"no approved definition of `{call.tool}` is pinned, so that no change revokes it"
    action, reads = suggested_action(tool.name, tool.annotations), cover is Cover.READS
    addressed = (name for name, schema in tool.properties.items() if is_addressed(name, schema))
    named = next((name for name in addressed if repr(name) in call.outline), "")
    destroys = tool.annotations.get("destructiveHint") is True
    writes = destroys or tool.annotations.get("readOnlyHint") is False
    problems = (
        (not reads and action in NEVER, f"`{call.tool}` looks like {action}; map it in the policy"),
        (reads and writes, f"the server says that `{call.tool}` does not only read"),
        (reads and action is not None, f"`{call.tool}` looks like {action}: it does not only read"),
        (reads and bool(named), f"argument `{named}` of `{call.tool}` can name who receives"),
        (reads and bool(call.receivers), f"this call of `{call.tool}` reaches somebody"),
    )
    return next((problem for is_so, problem in problems if is_so), "")


def unkept(asked: ApprovalRequest, grant: Grant) -> str:
    """Return why a remembered answer would be kept nowhere; empty where it is kept."""
    for call in asked.calls:
        one = len(asked.calls) == 1 and asked.people <= 1
        if grant.limit and not (one and call.action == "pay"):
            return f"`{call.tool}` is not one payment that one person approves; leave the limit out"
        if grant.cover is None and UNMAPPED in call.reasons:
            return (
                f"no mapping claims `{call.tool}`: its recipients alone cannot be remembered; "
                "answer for the tool (--tool, --read-only), map it, or approve it once"
            )
        if grant.cover is None and not (grant.folders or call.receivers or call.change):
            instead = "the directory (--directory)" if call.folders else "approve it once"
            return f"`{call.tool}` has no recipient to remember; {instead}"
    return ""
