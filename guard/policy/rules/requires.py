"""Rule type ``requires``: demands that caller and values are known well enough.  Pure: no I/O.

One row of an action-authority table: which roles need which rung of identity, and which integrity
of the values they act on.  Reason codes: ``session_rung_low``, ``principal_rung_low``,
``integrity_low``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import PlainSerializer, PlainValidator

from guard.core.labels import Rung
from guard.core.model import Integrity, PrincipalRung, SessionRung
from guard.policy.field_types import one_of
from guard.policy.rules.base import PolicyOutline, RuleConfig

if TYPE_CHECKING:
    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation


def _rung(ladder: type[IntEnum]) -> Any:
    return one_of(
        {rung.name.lower(): rung for rung in ladder if rung.name != "RECORDED" and rung > 0}
    )


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

Needed = Annotated[
    Integrity,
    PlainValidator(
        _rung(Integrity), json_schema_input_type=Literal["advisory", "authenticated", "trusted"]
    ),
    _label,
]
INTEGRITY: Final = {
    Rung.LISTED: Integrity.TRUSTED,
    Rung.GRANTED: Integrity.TRUSTED,
    Rung.PROMPTED: Integrity.TRUSTED,
    Rung.ESTABLISHED: Integrity.AUTHENTICATED,
    Rung.REPLY: Integrity.AUTHENTICATED,
    Rung.REMEMBERED: Integrity.AUTHENTICATED,
    Rung.CLAIMED: Integrity.ADVISORY,
}
"""Label that a rung of the attestation ladder gives a value; every other rung gives untrusted."""


class RequiresRule(RuleConfig):
    """Applies to a call whose caller, or whose values, are known less well than the rule demands.

    A recorded trace says who called and counts as known.  The rungs of a session are, weakest
    first: ``connection``, ``traceparent``, ``meta``, ``mcp_session``, ``guard_header``; those of a
    principal: ``anonymous``, ``credential``.
    """

    codes = frozenset({"session_rung_low", "principal_rung_low", "integrity_low"})
    cannot_allow = "the rule speaks where identity is lacking"
    type: Literal["requires"]
    session: Session | None = None
    """The lowest session rung that is enough; ``connection``, which everybody has, is not named."""
    principal: Principal | None = None
    """The lowest principal rung that is enough: ``credential``."""
    integrity: Needed | None = None
    """The lowest integrity of every destination and guarded value that is enough: ``trusted``
    (listed, granted, named by the user), ``authenticated`` (a reply, authenticated memory),
    ``advisory``."""

    def guarded_kinds(self) -> frozenset[str] | None:
        """Return the kinds of guarded values that this rule looks at; None: all."""
        return frozenset() if self.integrity is None else None

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if the caller, or a value, is known less well."""
        identity = situation.call.call.identity
        if self.principal is not None and identity.principal_rung < self.principal:
            return self._low("principal", identity.principal_rung, self.principal, targets)
        if self.session is not None and identity.session_rung < self.session:
            return self._low("session", identity.session_rung, self.session, targets)
        return self._low_integrity(situation.call.guarded, targets)

    def _low_integrity(
        self, guarded: tuple[Target, ...], targets: tuple[Target, ...]
    ) -> Reason | None:
        if self.integrity is None:
            return None
        # A value is worth the minimum over what it was made of, and a call that over its values.
        found = min((_integrity(t) for t in (*targets, *guarded)), default=Integrity.TRUSTED)
        if found >= self.integrity:
            return None
        has, needs = found.name.lower(), self.integrity.name.lower()
        detail = f"a value in the call is {has} only, {needs} is needed"
        return self.reason("integrity_low", detail, targets, has=has, needs=needs)

    def _low(self, what: str, has: IntEnum, needs: IntEnum, targets: tuple[Target, ...]) -> Reason:
        found, wanted = has.name.lower(), needs.name.lower()
        detail = f"the {what} is known by {found} only, {wanted} is needed"
        return self.reason(f"{what}_rung_low", detail, targets, has=found, needs=wanted)

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield a rule that demands nothing, and one that allows."""
        if self.session is None and self.principal is None and self.integrity is None:
            yield "nothing is required; give `session`, `principal` or `integrity`"


def _integrity(target: Target) -> Integrity:
    """Return the integrity of a value; a value without an attestation is untrusted."""
    if target.attestation is None:
        return Integrity.UNTRUSTED
    return INTEGRITY.get(target.attestation.rung, Integrity.UNTRUSTED)
