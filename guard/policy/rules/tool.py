"""Rule types ``tool``, ``destination``, ``definition``, ``undeclared``, ``action``.  No I/O.

Reason codes: ``tool_unmapped``, ``tool_role``, ``destination_`` and a status,
``tool_definition_changed``, ``argument_undeclared``, ``action_unrequested``, ``action_tainted``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from guard.core.declarations import CHANGED
from guard.core.json_values import is_empty
from guard.core.jsonpath import member_path
from guard.core.labels import ActionRung
from guard.core.model import DestinationStatus, Json
from guard.policy.rules.base import STATUS, ActionNames, PolicyOutline, RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target, TracedCall
    from guard.core.policy import Reason, Situation


class ToolRule(RuleConfig):
    """Applies wherever its filters do."""

    codes = frozenset({"tool_unmapped", "tool_role"})
    type: Literal["tool"]

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason:
        """Return the reason; the filters have decided already."""
        call = situation.call.classified
        if not call.mapped:
            return self.reason("tool_unmapped", "no tool mapping claims this tool", targets)
        return self.reason("tool_role", f"the tool has role {call.role.value}", targets)


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


class DefinitionRule(RuleConfig):
    """Applies to a call of a tool whose definition has changed without an approval."""

    codes = frozenset({CHANGED})
    cannot_allow = "a changed definition is no ground to allow a call"
    type: Literal["definition"]

    def lets_through(self, call: TracedCall) -> bool | None:
        """Return False where the definition has not changed."""
        return super().lets_through(call) if call.redefined else False

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason where the tool bears the mark of a change."""
        if not situation.call.redefined:
            return None
        return self.reason(
            CHANGED, "the tool's definition has changed since it was pinned", targets
        )


class UndeclaredRule(RuleConfig):
    """Applies to a call of a mapped tool with a value that no path of its mapping selects.

    What a mapping names in ``destinations``, ``body``, ``guarded``, ``ignore``, ``inert``,
    ``reply``, ``item`` or ``named_by`` is declared, with all that is in it.  Nothing (null, a
    blank text, an empty list or object) needs no declaration; `false` and 0 do.
    """

    codes = frozenset({"argument_undeclared"})
    cannot_allow = "an undeclared argument is no ground to allow a call"
    type: Literal["undeclared"]
    only: Literal["switches"] | None = None
    """Only values that are true or false: a switch may share, publish or send what the call is
    about; left out, a value of any kind."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason where the call says more than its mapping knows."""
        known = situation.call.classified
        mapping, arguments = known.mapping, dict(known.call.arguments)
        if mapping is None:
            return None
        named = {p for q in mapping.paths(known.memory_write) for p, _ in q.find(arguments)}
        if _declares_all(named, arguments, switches=self.only is not None):
            return None
        detail = "an argument that the tool's mapping does not name"
        return self.reason("argument_undeclared", detail, targets)


def _declares_all(named: set[str], arguments: Json, *, switches: bool) -> bool:
    """Return whether each value in a call's arguments stands at or below a declared path.

    Args:
        named: declared paths.
        arguments: of the call.
        switches: whether to look at nothing but what is true or false.
    """
    stack: list[tuple[str, Json]] = [("$", arguments)]
    while stack:
        path, value = stack.pop()
        if path in named:
            continue
        if isinstance(value, dict):
            stack += ((member_path(path, name), inner) for name, inner in value.items())
        elif isinstance(value, list):
            stack += ((f"{path}[{index}]", inner) for index, inner in enumerate(value))
        elif not is_empty(value) and (isinstance(value, bool) or not switches):
            return False
    return True


CAUSES: Final = {
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
    type: Literal["action"]
    action_rungs: Annotated[tuple[Literal["unrequested", "tainted"], ...], Field(min_length=1)] = (
        "unrequested",
        "tainted",
    )
    """Rungs of the action ladder that the rule restricts."""
    actions: ActionNames | None = None
    """Actions that the rule restricts; left out, all."""
    without_prompts: Literal["apply", "skip"] = "apply"
    """Effect on principals of whom a prompt is not known: they lack a prompt channel."""

    def judged_actions(self) -> frozenset[str] | None:
        """Return the actions that it restricts; None for all."""
        return None if self.actions is None else frozenset(self.actions)

    def lets_through(self, call: TracedCall) -> bool | None:
        """Return False where no rule asked for the attestation of the action."""
        return False if call.action is None else super().lets_through(call)

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
        detail = TAINTED if tainted else CAUSES[attested.why]
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
