"""Rule type ``tool``: matches calls by what the tool is, whatever they carry.  Pure: no I/O.

Reason codes: ``tool_unmapped`` (no mapping claims the tool), ``tool_role`` (every other match).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from guard.policy.rules.base import RuleConfig

if TYPE_CHECKING:
    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation


class ToolRule(RuleConfig):
    """Applies wherever its filters do."""

    looks_at_guarded = False
    codes = frozenset({"tool_unmapped", "tool_role"})
    type: Literal["tool"]

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason:
        """Return the reason; the filters have decided already."""
        call = situation.call.classified
        if not call.mapped:
            return self.reason("tool_unmapped", "no tool mapping claims this tool", targets)
        return self.reason("tool_role", f"the tool has role {call.role.value}", targets)
