"""Rule type ``deny_loop``: stops an agent that is refused again and again.  Pure: no I/O.

Reason code: ``deny_loop``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from guard.core.policy import Action
from guard.policy.rules.base import RuleConfig, Scope, limit_windows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation
    from guard.policy.rules.base import PolicyOutline


class DenyLoopRule(RuleConfig):
    """Applies to a call after so many refusals in a row, counted since the last executed call.

    A loop that probes the policy, or that burns tokens on a call it will never get, ends with a
    plain word.  Leave harmless roles out of ``roles``: a call that is executed ends the row, and
    so lets the agent go on with something else.
    """

    looks_at_guarded = False
    codes = frozenset({"deny_loop"})
    type: Literal["deny_loop"]
    refusals: Annotated[int, Field(ge=1)]
    """Refusals in a row after which the rule applies."""
    scope: Scope = "session"
    """Whose refusals; with ``session`` and ``both``, which are the same on the wire, one of the two
    is enough."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if the row is long enough."""
        windows = limit_windows(situation, self.scope)
        row = max(window.refused_in_a_row for _, window in windows)
        if row < self.refusals:
            return None
        detail = f"{row} calls in a row were refused before this one"
        return self.reason("deny_loop", detail, targets, refused_in_a_row=row)

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield a rule that allows."""
        if self.effect is Action.ALLOW:
            yield "having been refused is no ground to allow; use effect `ask` or `block`"
