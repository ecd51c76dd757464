"""Rule type ``definition``: matches calls of tools that are not what they were.  Pure: no I/O.

A tool's definition is pinned when its server first lists it.  One that is listed otherwise later
bears a mark until an operator approves it (``guard tools diff | approve``).  Reason code:
``tool_definition_changed``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from guard.core.declarations import CHANGED
from guard.core.policy import Action
from guard.policy.rules.base import RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target
    from guard.core.model import Role
    from guard.core.policy import Reason, Situation
    from guard.policy.rules.base import PolicyOutline


class DefinitionRule(RuleConfig):
    """Applies to a call of a tool whose definition has changed without an approval."""

    looks_at_guarded = False
    codes = frozenset({CHANGED})
    type: Literal["definition"]

    def may_concern(self, role: Role, *, mapped: bool, is_egress: bool, redefined: bool) -> bool:
        """Return False for a tool that is as it was."""
        return redefined and super().may_concern(
            role, mapped=mapped, is_egress=is_egress, redefined=redefined
        )

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason where the tool bears the mark of a change."""
        if not situation.call.redefined:
            return None
        return self.reason(
            CHANGED, "the tool's definition has changed since it was pinned", targets
        )

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield that a changed definition is no ground to allow a call."""
        if self.effect is Action.ALLOW:
            yield "a changed definition is no ground to allow a call; use effect `ask` or `block`"
