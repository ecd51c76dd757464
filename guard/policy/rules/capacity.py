"""Rule type ``capacity``: matches calls by the data that URLs could carry to a host.  Pure: no I/O.

Small pieces of data add up. The guard counts the bits that the URLs of a principal could carry to
hosts under one registered name (:mod:`guard.values.capacity`), of refused calls and calls in
flight as well. Reason code: ``capacity_exceeded``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field

from guard.core.model import DestinationStatus
from guard.core.policy import Action
from guard.policy.rules.base import RuleConfig
from guard.values.capacity import carried_bits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation
    from guard.policy.rules.base import PolicyOutline

_NAMED: Final = frozenset({"url", "host"})
"""Kinds of destinations with a host name that is resolved."""


class CapacityRule(RuleConfig):
    """Rule about calls that could bring the data carried to an external host above a limit.

    The counter of a principal and a registered name ends when it was idle for
    ``state.principal_window``.
    """

    counts_capacity: ClassVar[bool] = True

    looks_at_guarded = False
    codes = frozenset({"capacity_exceeded"})
    type: Literal["capacity"]
    bits: Annotated[int, Field(ge=1)]
    """Bits that host names, paths and queries may carry to one registered name."""
    host_bits: Annotated[int | None, Field(ge=1)] = None
    """Bits that the labels of one host name may carry: every resolver on the way reads them."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if a host name, or a counter with this call, is beyond its limit."""
        labels = max(
            (carried_bits(one.destination.host) for one in targets if _counts(one)), default=0
        )
        if self.host_bits is not None and labels > self.host_bits:
            detail = f"a host name could carry more than {self.host_bits} bits"
            return self.reason(
                "capacity_exceeded", detail, targets, bits=labels, limit=self.host_bits
            )
        carried = situation.call.carried
        if carried <= self.bits:
            return None
        detail = f"the URLs of this principal could carry more than {self.bits} bits to one host"
        return self.reason("capacity_exceeded", detail, targets, bits=carried, limit=self.bits)

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield a rule that allows."""
        if self.effect is Action.ALLOW:
            yield "an exceeded capacity cannot allow a call; use effect `ask` or `block`"


def _counts(target: Target) -> bool:
    """Return whether the name of a target's host reaches resolvers outside."""
    return target.status is DestinationStatus.EXTERNAL and target.destination.kind in _NAMED
