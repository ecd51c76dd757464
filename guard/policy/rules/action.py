"""Rule type ``action``: whether anybody asked for what a call changes.  Pure: no I/O.

Reason codes: ``action_unrequested`` (nobody asked for the action in this session, or for this
object of it) and ``action_tainted`` (only untrusted text names its object).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field

from guard.core.labels import ActionRung
from guard.policy.rules.base import ActionNames, RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation
    from guard.policy.rules.base import PolicyOutline

DETAILS: Final = {
    "not_requested": "no prompt of this session asks for this action ({action})",
    "no_prompt": "no prompt of the user is known that asks for this action ({action})",
    "other_object": "the user asked for this action ({action}) on another object",
    "refused": "the user said not to do this ({action})",
}
"""Sentences by cause."""
TAINTED: Final = "only untrusted text names the object of this action ({action})"


class ActionRule(RuleConfig):
    """Applies to calls whose declared action stands on one of the given rungs.

    The mapping of a tool declares its action.  A call without one is not concerned.
    """

    codes = frozenset({"action_unrequested", "action_tainted"})
    cannot_allow = "a requested action is no ground to allow a call"
    reads_actions: ClassVar[bool] = True
    type: Literal["action"]
    action_rungs: Annotated[tuple[Literal["unrequested", "tainted"], ...], Field(min_length=1)] = (
        "unrequested",
        "tainted",
    )
    """Rungs of the action ladder that the rule restricts."""
    actions: ActionNames | None = None
    """Actions that the rule restricts; left out, all."""
    without_prompts: Literal["apply", "skip"] = "apply"
    """Whether it applies to principals of whom no prompt is known: they have no prompt channel."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason, named after the rung of the action."""
        attested = situation.call.action
        if attested is None or attested.rung.label not in self.action_rungs:
            return None
        if self.actions is not None and attested.action not in self.actions:
            return None
        if self.without_prompts == "skip" and attested.why == "no_prompt":
            return None
        tainted = attested.rung is ActionRung.TAINTED
        detail = TAINTED if tainted else DETAILS[attested.why]
        about = targets if attested.object is None else (attested.object,)
        return self.reason(
            f"action_{attested.rung.label}",
            detail.format(action=attested.action.replace("_", " ")),
            about,
            action=attested.action,
        )

    def problems(self, outline: PolicyOutline) -> Iterable[str]:
        """Yield a rule about actions that no mapping declares."""
        if not any(mapping.action for mapping in outline.mappings):
            yield "no tool mapping declares an `action`, so the rule can never match"
