"""Rule type ``requires``: demands that the caller is known well enough.  Pure: no I/O.

One row of an action-authority table: which roles need which rung of identity.  Reason codes:
``session_rung_low``, ``principal_rung_low``.
"""

from __future__ import annotations

from collections.abc import Iterable  # noqa: TC003  (pydantic reads annotations)
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import PlainSerializer, PlainValidator

from guard.core.model import PrincipalRung, SessionRung
from guard.core.verdict import Action
from guard.rules import RuleConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Json, Target
    from guard.core.policy import Situation
    from guard.core.verdict import Reason
    from guard.rules import PolicyOutline

RungT = TypeVar("RungT", bound=IntEnum)


def _rung(ladder: type[RungT]) -> Callable[[Json], RungT]:
    names = {rung.name.lower(): rung for rung in ladder if rung.name != "RECORDED" and rung > 0}

    def read(value: Json) -> RungT:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"must be one of {', '.join(f'`{name}`' for name in names)}")
        return names[value]

    return read


SessionName = Literal["traceparent", "meta", "mcp_session", "guard_header"]
_label: Any = PlainSerializer(lambda rung: rung.name.lower())
Session = Annotated[
    SessionRung, PlainValidator(_rung(SessionRung), json_schema_input_type=SessionName), _label
]
Principal = Annotated[
    PrincipalRung,
    PlainValidator(_rung(PrincipalRung), json_schema_input_type=Literal["credential"]),
    _label,
]


class RequiresRule(RuleConfig):
    """Applies to a call whose caller is known less well than the rule demands.

    A recorded trace says who called and counts as known.  The rungs of a session are, weakest
    first: ``connection``, ``traceparent``, ``meta``, ``mcp_session``, ``guard_header``; those of a
    principal: ``anonymous``, ``credential``.
    """

    type: Literal["requires"]
    session: Session | None = None
    """The lowest session rung that is enough; ``connection``, which everybody has, is not named."""
    principal: Principal | None = None
    """The lowest principal rung that is enough: ``credential``."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if the caller is known less well."""
        identity = situation.call.call.identity
        if self.principal is not None and identity.principal_rung < self.principal:
            return self._low("principal", identity.principal_rung, self.principal, targets)
        if self.session is not None and identity.session_rung < self.session:
            return self._low("session", identity.session_rung, self.session, targets)
        return None

    def _low(self, what: str, has: IntEnum, needs: IntEnum, targets: tuple[Target, ...]) -> Reason:
        found, wanted = has.name.lower(), needs.name.lower()
        detail = f"the {what} is known by {found} only, {wanted} is needed"
        return self.reason(f"{what}_rung_low", detail, targets, has=found, needs=wanted)

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield a rule that demands nothing, and one that allows."""
        if self.session is None and self.principal is None:
            yield "nothing is required; give `session` or `principal`"
        if self.effect is Action.ALLOW:
            yield "the rule speaks where identity is lacking; use effect `ask` or `block`"
