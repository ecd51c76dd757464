"""Rule type ``capacity``: matches calls by how much a host could have been told.  Pure: no I/O.

What is sent in pieces, each too small to be seen, adds up: the bits that the URLs of a principal
could carry to hosts under one registered name (:mod:`guard.content.capacity`) are counted when the
calls are asked for, refused ones and those in flight included.  Reason code: ``capacity_exceeded``.
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


class CapacityRule(RuleConfig):
    """Applies to a call with which an external host could have been told more than so many bits.

    The counter of a principal and a registered name ends when it was idle for
    ``state.principal_window``.
    """

    counts_capacity: ClassVar[bool] = True

    looks_at_guarded = False
    codes = frozenset({"capacity_exceeded"})
    type: Literal["capacity"]
    bits: Annotated[int, Field(ge=1)]
    """Bits that host names, paths and queries may carry to one registered name."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if a counter, this call included, is beyond the limit."""
        carried = situation.call.carried
        if carried <= self.bits:
            return None
        detail = f"the URLs of this principal could have told a host more than {self.bits} bits"
        return self.reason("capacity_exceeded", detail, targets, bits=carried, limit=self.bits)

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield a rule that allows."""
        if self.effect is Action.ALLOW:
            yield "the amount of data never justifies `allow`; use effect `ask` or `block`"
