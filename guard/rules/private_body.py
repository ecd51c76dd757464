"""Rule type ``private_body``: speaks for sends that carry private text.  Pure: no I/O.

Private is what a tool whose mapping says ``private`` has returned to this principal.  Reason code:
``private_in_body``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from guard.core.policy import Action
from guard.rules.base import RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation
    from guard.rules.base import PolicyOutline


class PrivateBodyRule(RuleConfig):
    """Applies to a send whose body has passages that a private source has returned.

    A passage is a run of five words, or a number or code; encodings are undone.  With ``rungs`` it
    applies to sends to whom nobody vouches for.
    """

    traces_private: ClassVar[bool] = True

    looks_at_guarded = False
    codes = frozenset({"private_in_body"})
    type: Literal["private_body"]
    at_least: Annotated[int, Field(ge=1)] = 1
    """How many passages there have to be."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason, with the call that the first passage came from."""
        private = situation.call.private
        if private is None or private.passages < self.at_least:
            return None
        return self.reason(
            "private_in_body",
            "the body has text from a private source",
            targets,
            passages=private.passages,
            call=private.record.call,
            source=private.record.source,
        )

    def problems(self, outline: PolicyOutline) -> Iterable[str]:
        """Yield a rule that allows, and one without a source of private text."""
        if self.effect is Action.ALLOW:
            yield "private text is no ground to allow a call; use effect `ask` or `block`"
        if not any(mapping.private for mapping in outline.mappings):
            yield "no tool mapping says `private: true`, so nothing is private"
