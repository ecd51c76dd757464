"""Rule type ``destination``: matches calls by the status of their destinations.  Pure: no I/O.

Reason codes: ``destination_denied``, ``destination_malformed``, ``destination_missing``,
``destination_external``, ``destination_allowed``, ``destination_internal``: the worst status
among the destinations the rule is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from guard.core.model import DestinationStatus
from guard.policy.rules.base import STATUS, RuleConfig

if TYPE_CHECKING:
    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation

WORST_FIRST: Final = tuple(DestinationStatus)
"""``DestinationStatus`` is declared worst first."""

DETAILS: Final = {
    DestinationStatus.DENIED: "a destination is on the deny list",
    DestinationStatus.MALFORMED: "a destination cannot be read one way only",
    DestinationStatus.MISSING: (
        "the call sends and names no destination where the policy looks for one"
    ),
    DestinationStatus.EXTERNAL: "a destination is neither internal nor on the allowlist",
    DestinationStatus.ALLOWED: "every destination is internal or on the allowlist",
    DestinationStatus.INTERNAL: "every destination is internal",
}


class DestinationRule(RuleConfig):
    """Applies to calls with destinations of the given status."""

    looks_at_guarded = False
    codes = frozenset(f"destination_{status.value}" for status in DestinationStatus)
    type: Literal["destination"]
    status: Annotated[tuple[DestinationStatus, ...], Field(min_length=1)] = Field(
        validation_alias=STATUS
    )
    """The status that the rule is about: of any of a call's destinations for a restricting rule, of
    all for an allowing one."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:  # noqa: ARG002  (the filters have looked at the call)
        """Return the reason, named after the worst status among the targets."""
        worst = min((target.status for target in targets), key=WORST_FIRST.index)
        return self.reason(f"destination_{worst.value}", DETAILS[worst], targets)
