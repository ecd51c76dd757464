"""Rule type ``result``: withholds results in which a detector finds instructions.  Pure: no I/O.

It decides on the evidence of the detectors that it names, and never on calls.  The agent gets a
refusal in place of a withheld result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from guard.core.policy import FAILED, INJECTION, TOO_LARGE, Action
from guard.policy.rules.base import RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import ClassifiedCall, Target
    from guard.core.policy import Evidence, Reason, Situation
    from guard.policy.rules.base import PolicyOutline


REMOVED: Final = "injection_text"
"""Name of the removed reader; policies from before it was removed mean it by default."""


class ResultRule(RuleConfig):
    """Applies to a result in which a detector finds instructions, or which none can search."""

    codes = frozenset({INJECTION, TOO_LARGE, FAILED})
    type: Literal["result"]
    finds: Annotated[
        tuple[str, ...],
        Field(
            min_length=1,
            description="Detectors that search the results: `instruction_patterns`, or the name "
            "that `guard detectors add` was given.",
        ),
    ] = (REMOVED,)

    @property
    def detectors(self) -> frozenset[str]:
        """The detectors that the rule names."""
        return frozenset(self.finds)

    def match(self, situation: Situation) -> Reason | None:  # noqa: ARG002  (a rule about results)
        """Return None: the rule does not judge calls."""
        return None

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:  # noqa: ARG002  (as above)
        """Return None, as for :meth:`match`."""
        return None

    def asks(self, call: ClassifiedCall) -> frozenset[str]:
        """Return the detectors that search the result of a call."""
        return self.detectors if self.filters_match(call) else frozenset()

    def match_result(self, call: ClassifiedCall, evidence: Evidence) -> Reason | None:
        """Return the reason of the first finding, or None.

        Raises:
            KeyError: a detector was not asked; the result is withheld then.
        """
        for name in self.finds if self.filters_match(call) else ():
            found = evidence[name]
            if found is not None:
                return self.reason(found.code, found.detail, ())
        return None

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield effects that a result cannot have, and filters that concern calls."""
        if self.effect is not Action.BLOCK:
            yield "a result is withheld or released; use effect `block`"
        if self.status is not None or self.rungs is not None:
            yield "a result has no destinations; remove `status` and `rungs`"
