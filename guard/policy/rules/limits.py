"""Rule types ``rate``, ``deny_loop`` and ``capacity``: calls beyond a limit.  Pure: no I/O.

Reason codes: ``rate_exceeded``, ``deny_loop``, ``capacity_exceeded``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field

from guard.core.model import ROLES, DestinationStatus, Role
from guard.policy.rules.base import PolicyOutline, RuleConfig, Scope, limit_windows
from guard.values.capacity import carried_bits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target, TracedCall
    from guard.core.policy import Reason, Situation
    from guard.core.trajectory import Window


class RateRule(RuleConfig):
    """Applies to a call beyond the first so many of its kind in a window.

    Calls are counted when they are asked for: refused ones and those in flight count too, so that
    neither trying nor hurrying pays.  A session's window ends when it was idle for
    ``state.session_idle``, a principal's for ``state.principal_window``.  A session's id is the
    client's choice and never begins a limit anew: each scope counts the principal's calls.
    """

    codes = frozenset({"rate_exceeded"})
    cannot_allow = "having called often is no ground to allow"
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
        """Yield counted roles that no tool mapping has."""
        for role in self.counts or ():
            if role not in outline.roles and role is not Role.OTHER:
                yield f"`counts` names role `{role}`, which no tool mapping has; remove it"


def _asked_for(window: Window, role: Role) -> int:
    # The executed count is asked too: it must hold even if a store lost its attempts.
    return max(window.attempted[ROLES.index(role)], window.trajectory.count(role))


class DenyLoopRule(RuleConfig):
    """Applies to a call after so many refusals in a row, counted since the last executed call.

    A loop that probes the policy, or that burns tokens on a call it will never get, ends with a
    plain word.  Leave harmless roles out of ``roles``: a call that is executed ends the row, and
    so lets the agent go on with something else.
    """

    codes = frozenset({"deny_loop"})
    cannot_allow = "having been refused is no ground to allow"
    type: Literal["deny_loop"]
    refusals: Annotated[int, Field(ge=1)]
    """Refusals in a row after which the rule applies."""
    scope: Scope = "session"
    """Owner of the refusals; with ``session`` and ``both``, which are the same on the wire, one of
    the two is enough."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if the row is long enough."""
        windows = limit_windows(situation, self.scope)
        row = max(window.refused_in_a_row for _, window in windows)
        if row < self.refusals:
            return None
        detail = f"{row} calls in a row were refused before this one"
        return self.reason("deny_loop", detail, targets, refused_in_a_row=row)


_NAMED: Final = frozenset({"url", "host"})
"""Kinds of destinations with a host name that is resolved."""


class CapacityRule(RuleConfig):
    """Rule about calls that could bring the data carried to an external host above a limit.

    The counter of a principal and a registered name ends when it was idle for
    ``state.principal_window``.
    """

    counts_capacity: ClassVar[bool] = True

    codes = frozenset({"capacity_exceeded"})
    cannot_allow = "an exceeded capacity cannot allow a call"
    type: Literal["capacity"]
    bits: Annotated[int, Field(ge=1)]
    """Bits that host names, paths and queries may carry to one registered name."""
    host_bits: Annotated[int | None, Field(ge=1)] = None
    """Bits that the labels of one host name may carry: every resolver on the way reads them."""

    def lets_through(self, call: TracedCall) -> bool | None:
        """Return False where nothing was carried, unless host names count."""
        none = self.host_bits is None and call.carried == 0
        return False if none else super().lets_through(call)

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if a host name, or a counter with this call, is beyond its limit."""
        most = self.host_bits
        if most is not None:
            hosts = (one.destination.host for one in targets if _counts(one))
            labels = max(map(carried_bits, hosts), default=0)
            if labels > most:
                detail = f"a host name could carry more than {most} bits"
                return self.reason("capacity_exceeded", detail, targets, bits=labels, limit=most)
        carried = situation.call.carried
        if carried <= self.bits:
            return None
        detail = f"the URLs of this principal could carry more than {self.bits} bits to one host"
        return self.reason("capacity_exceeded", detail, targets, bits=carried, limit=self.bits)


def _counts(target: Target) -> bool:
    """Return whether the name of a target's host reaches resolvers outside."""
    return target.status is DestinationStatus.EXTERNAL and target.destination.kind in _NAMED
