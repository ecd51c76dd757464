"""Rule type ``sequence``: speaks for calls by what was called before them.  Pure: no I/O.

Reason codes: ``recall_before_send`` (a send after a recall, the rule of Leong, arXiv:2606.30566),
``sequence`` (every other match).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from guard.core.model import ROLES, Role
from guard.core.policy import Action
from guard.rules.base import RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation
    from guard.core.trajectory import Window
    from guard.rules.base import PolicyOutline


class SequenceRule(RuleConfig):
    """Applies to a call if a tool of one of the roles in ``after`` was called before it.

    For a restricting rule, a call that is in flight counts like an executed one (two parallel
    calls see each other), and one window of the scope is enough: the worse wins.  For an allowing
    rule only executed calls count, in every window of the scope.
    """

    looks_at_guarded = False
    codes = frozenset({"recall_before_send", "sequence"})
    type: Literal["sequence"]
    after: Annotated[tuple[Role, ...], Field(min_length=1)]
    """Roles, one of which came before."""
    scope: Literal["session", "principal", "both"] = "both"
    """Before in this session, in the principal's window, or in one of the two."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if one of the roles came before."""
        snapshot = situation.snapshot
        windows = {
            "session": (snapshot.session,),
            "principal": (snapshot.principal,),
            "both": (snapshot.session, snapshot.principal),
        }[self.scope]
        before: list[Role] = []
        for role in self.after:
            if self._seen(windows, role):
                before.append(role)
        if not before:
            return None
        is_rbs = situation.call.classified.role is Role.SEND and Role.RECALL in before
        names = ", ".join(role.value for role in before)
        detail = f"this {situation.call.classified.role.value} comes after: {names}"
        return self.reason(
            "recall_before_send" if is_rbs else "sequence",
            detail,
            targets,
            after=[role.value for role in before],
        )

    def _seen(self, windows: tuple[Window, ...], role: Role) -> bool:
        place, allowing = ROLES.index(role), self.effect is Action.ALLOW
        for window in windows:
            # The executed count is asked too: it must hold even if a store lost its attempts.
            came = window.trajectory.executed[place] > 0 or (
                not allowing and window.possible(role) > 0
            )
            if came is not allowing:
                return came
        return allowing

    def problems(self, outline: PolicyOutline) -> Iterable[str]:
        """Yield roles in ``after`` that no tool mapping has: nothing would ever come before."""
        for role in self.after:
            if role not in outline.roles and role is not Role.OTHER:
                yield (
                    f"`after` names role `{role}`, which no tool mapping has; map a tool to it "
                    "or remove it"
                )
