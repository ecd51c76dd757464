"""Rule type ``rate``: matches calls by how many came before them.  Pure: no I/O.

Reason code: ``rate_exceeded``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from guard.core.model import ROLES, Role
from guard.core.policy import Action
from guard.policy.rules.base import RuleConfig, Scope, limit_windows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation
    from guard.core.trajectory import Window
    from guard.policy.rules.base import PolicyOutline


class RateRule(RuleConfig):
    """Applies to a call beyond the first so many of its kind in a window.

    Calls are counted when they are asked for: refused ones and those in flight count too, so that
    neither trying nor hurrying pays.  A session's window ends when it was idle for
    ``state.session_idle``, a principal's for ``state.principal_window``.  A session's id is the
    client's choice and never begins a limit anew: each scope counts the principal's calls.
    """

    looks_at_guarded = False
    codes = frozenset({"rate_exceeded"})
    type: Literal["rate"]
    at_most: Annotated[int, Field(ge=0)]
    """Calls that one window may have of the counted roles, this call included."""
    counts: Annotated[tuple[Role, ...], Field(min_length=1)] | None = None
    """Roles that are counted together; left out, the role of the call itself."""
    scope: Scope = "both"
    """The window.  ``session`` and ``both`` are the same on the wire, and apply as soon as one of
    the two is full; in a recording ``session`` is the session alone."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if a window of the scope is full."""
        counted = self.counts or (situation.call.classified.role,)
        own = int(situation.call.classified.role in counted)
        for name, window in limit_windows(situation, self.scope):
            before = sum(_asked_for(window, role) for role in counted)
            if before + own > self.at_most:
                names = ", ".join(role.value for role in counted)
                detail = f"more than {self.at_most} calls of role {names} in this {name}'s window"
                return self.reason(
                    "rate_exceeded", detail, targets, window=name, before=before, limit=self.at_most
                )
        return None

    def problems(self, outline: PolicyOutline) -> Iterable[str]:
        """Yield a rule that allows, and counted roles that no tool mapping has."""
        if self.effect is Action.ALLOW:
            yield "having called often is no ground to allow; use effect `ask` or `block`"
        for role in self.counts or ():
            if role not in outline.roles and role is not Role.OTHER:
                yield f"`counts` names role `{role}`, which no tool mapping has; remove it"


def _asked_for(window: Window, role: Role) -> int:
    # The executed count is asked too: it must hold even if a store lost its attempts.
    return max(window.attempted[ROLES.index(role)], window.trajectory.count(role))
