"""Base class, filters and field types of every rule type.  Pure: no I/O.

A rule type is a :class:`RuleConfig` with a ``type: Literal["name"]`` and a ``judge``; its fields
are what a policy may write.  The validated object is itself the compiled rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from guard.core.labels import RUNGS, Attestation, Rung
from guard.core.mappings import ActionName
from guard.core.model import DestinationStatus, Json, Role, SessionRung
from guard.core.policy import Action, FolderRule, Reason, Situation
from guard.core.tool_patterns import ToolPattern
from guard.policy.field_types import one_of
from guard.provenance.ladder import attestation_of

if TYPE_CHECKING:
    from guard.core.calls import ClassifiedCall, Target, TracedCall
    from guard.core.trajectory import Window

NEVER_ALLOWED: Final = frozenset(
    {DestinationStatus.DENIED, DestinationStatus.MALFORMED, DestinationStatus.MISSING}
)
"""Status of destinations that a rule cannot allow."""
STATUS: Final = AliasChoices("status", "standing")
"""The field and its old spelling, of which the digest of a policy is taken: it stays what it was.
"""


Scope = Literal["session", "principal", "both"]


def limit_windows(situation: Situation, scope: Scope) -> tuple[tuple[str, Window], ...]:
    """Return the windows of a limit, each with its name; one that is full is enough.

    The client chooses the ids of its sessions, so a limit of scope ``session`` holds for the
    principal as well: a new id must not reset it.  Only in a recording sessions stand.
    """
    session = ("session", situation.snapshot.session)
    principal = ("principal", situation.snapshot.principal)
    if scope == "principal":
        return (principal,)
    recorded = situation.call.call.identity.session_rung is SessionRung.RECORDED
    return (session,) if scope == "session" and recorded else (session, principal)


Effect = Annotated[
    Action,
    PlainValidator(
        one_of({one.label: one for one in Action}),
        json_schema_input_type=Literal["allow", "redact", "ask", "block"],
    ),
    PlainSerializer(lambda action: action.label),
]
Pattern = Annotated[
    ToolPattern,
    PlainValidator(ToolPattern.parse, json_schema_input_type=str | dict[Literal["re2"], str]),
    PlainSerializer(lambda pattern: pattern.source),
]


RungLabel: Any = Literal[RUNGS]
ActionNames = Annotated[tuple[ActionName, ...], Field(min_length=1)]
RungName = Annotated[
    Rung,
    PlainValidator(
        one_of({name: Rung[name.upper()] for name in RUNGS}), json_schema_input_type=RungLabel
    ),
    PlainSerializer(lambda rung: rung.label),
]


@dataclass(frozen=True, slots=True)
class MappingOutline:
    """Part of a tool mapping that a rule may read when the policy is checked."""

    patterns: tuple[ToolPattern, ...]
    role: Role
    has_targets: bool
    """True if its calls can have destinations."""
    private: bool = False
    """True if its results are private."""
    action: str = ""
    """Its action, empty if the mapping declares none."""


@dataclass(frozen=True, slots=True)
class PolicyOutline:
    """Part of a policy that a rule may read when the policy is checked."""

    mappings: tuple[MappingOutline, ...]
    facts: frozenset[str] = frozenset()
    """Names that detectors declare."""

    @property
    def roles(self) -> frozenset[Role]:
        """Roles that some mapping has."""
        return frozenset(mapping.role for mapping in self.mappings)


OF_A_POLICY: Final = ConfigDict(
    extra="forbid",
    strict=True,
    frozen=True,
    arbitrary_types_allowed=True,
    defer_build=True,
    use_attribute_docstrings=True,
)
"""Validation of each part of a policy: strict, and without a validator of its own, as a policy is
validated as a whole."""


class RuleConfig(BaseModel):
    """Base of every rule type: the filters that all rules share.

    A restricting rule concerns a call if *any* of its targets has one of the ``status`` values;
    an allowing rule only if *all* have, and there is one.  Without ``status``, an allowing rule
    concerns a call whose every target could be allowed, and a send only if it has a target.
    """

    model_config = OF_A_POLICY

    codes: ClassVar[frozenset[str]]
    """The reason codes it may give: values that labels of metrics may take."""
    can_redact: ClassVar[bool] = False
    """True if the type says what to redact; ``effect: redact`` is an error otherwise."""
    cannot_allow: ClassVar[str] = ""
    """Reason why the type cannot allow a call; empty for one that may have effect ``allow``."""

    traces_private: ClassVar[bool] = False
    """True if it looks for private text in bodies."""

    counts_capacity: ClassVar[bool] = False
    """True if it asks how much hosts could have been told."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    """Unique in the policy; it appears in audit lines, metrics and refusals."""
    effect: Effect
    """Effect on calls that the rule applies to; the strictest effect wins."""
    roles: Annotated[tuple[Role, ...], Field(min_length=1)] | None = None
    """Only calls of tools with one of these roles.  An unmapped tool has role ``other``."""
    tools: Annotated[tuple[Pattern, ...], Field(min_length=1)] | None = None
    """Only calls of tools whose name one of these patterns claims."""
    mapped: bool | None = None
    """Only calls of mapped tools (true), or only of unmapped ones (false)."""
    status: Annotated[tuple[DestinationStatus, ...], Field(min_length=1)] | None = Field(
        None, validation_alias=STATUS
    )
    """Only calls with destinations of this status; see above for any and all."""
    rungs: Annotated[tuple[RungName, ...], Field(min_length=1)] | None = None
    """Only calls with destinations on these rungs of the ladder; any and all as above."""
    remedy: Annotated[str, Field(max_length=500)] = ""
    """Advice for the agent in a refusal; it must not name the contents of a list."""
    description: Annotated[str, Field(max_length=2000)] = ""
    """For people who read the policy."""

    @property
    def detectors(self) -> frozenset[str]:
        """Names of the detectors whose findings it needs, of those that are asked on demand."""
        return frozenset()

    @property
    def facts(self) -> frozenset[str]:
        """Names of the facts that it reads; the detectors that declare them are asked."""
        return frozenset()

    def match(self, situation: Situation) -> Reason | None:
        """Return why the rule applies, or None.  May raise: an error blocks the call."""
        targets = self.targets_of(situation.call)
        return None if targets is None else self.judge(situation, targets)

    def concerns(self, call: TracedCall) -> bool | None:
        """Return what the filters say of a call; see :meth:`Policy.rules_about`.

        Returns:
            False where they keep it out, True where they let all of its destinations through;
            None where they have to be asked about each such call.
        """
        mine, base = type(self), RuleConfig
        own = (mine.match, mine.targets_of, mine.filters_match)
        is_plain = own == (base.match, base.targets_of, base.filters_match)
        return self.lets_through(call) if is_plain else None

    def lets_through(self, call: TracedCall) -> bool | None:
        """Return what :meth:`targets_of` says of a call, as :meth:`concerns`."""
        targets = self.targets_of(call)
        if targets is None:
            return False
        return True if len(targets) == len(call.targets) else None

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if the rule applies to a call that its filters let through.

        Args:
            situation: the call, the state before it, the findings.
            targets: the destinations the rule is about: those with its status, or all.
        """
        raise NotImplementedError

    def judged_actions(self) -> frozenset[str] | None:
        """Return the actions that it judges; None for all."""
        return frozenset()

    @property
    def reads_actions(self) -> bool:
        """True if it judges the action of a call."""
        return self.judged_actions() != frozenset()

    def folders(self) -> FolderRule | None:
        """Return what a person can answer for a directory; None for nothing."""
        return None

    def traces_pieces(self) -> bool:
        """Return whether the rule asks how much of a private text was told in pieces."""
        return False

    def guarded_kinds(self) -> frozenset[str] | None:
        """Return the kinds of guarded values that this rule looks at; None: all.

        Tracing them costs look-ups in every call, so only a type that looks at them overrides this.
        """
        return frozenset()

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (for overriding)
        """Yield the reasons why this rule is useless or unsafe in its policy; each is an error."""
        return ()

    def reason(
        self,
        code: str,
        detail: str,
        targets: tuple[Target, ...],
        attested: Attestation | None = None,
        **data: Json,
    ) -> Reason:
        """Return a reason with this rule's id, effect and remedy, and no argument text.

        Args:
            code: one of ``codes``.
            detail: in words.
            targets: the values that it is about.
            attested: where the worst of them came from, where that is what the rule judges.
            data: what else there is to say of it.
        """
        return Reason(code, self.id, self.effect, detail, data, self.remedy, targets, attested)

    def targets_of(self, call: TracedCall) -> tuple[Target, ...] | None:
        """Return the destinations of a call that the rule is about; None where it is not."""
        known, roles = call.classified, self.roles
        is_egress = roles is not None and known.role not in roles and call.is_egress
        if not self.filters_match(known, is_egress=is_egress):
            return None
        status, rungs, targets = self.status, self.rungs, call.targets
        filtered = status is not None or rungs is not None
        allowing = self.effect is Action.ALLOW
        # A send without destinations has to be one that the policy allows.
        lacks = known.role is Role.SEND and not known.may_lack_receivers
        if allowing and not targets and (filtered or lacks):
            return None
        selected: list[Target] = []
        for target in targets:
            if allowing and target.status in NEVER_ALLOWED:
                return None
            if (status is None or target.status in status) and (
                rungs is None or (target.attestation or attestation_of(target)).rung in rungs
            ):
                selected.append(target)
        if filtered and (not selected or (allowing and len(selected) != len(targets))):
            return None
        return tuple(selected)

    def filters_match(self, call: ClassifiedCall, *, is_egress: bool = False) -> bool:
        """Return whether role, mapping and tool name pass the rule's filters.

        A call that reaches somebody outside is a send besides: rules about sends match it as well.
        Those that restrict leave a tool that nobody mapped to the rules about such tools.
        """
        roles = self.roles
        if roles is not None and call.role not in roles:
            restricts = self.effect is not Action.ALLOW
            if not is_egress or Role.SEND not in roles or (restricts and not call.mapped):
                return False
        if self.mapped is not None and call.mapped is not self.mapped:
            return False
        if self.tools is None:
            return True
        tool = call.call.tool
        for pattern in self.tools:
            if pattern.matches(tool):
                return True
        return False

    def filter_problems(self, outline: PolicyOutline) -> Iterator[str]:
        """Yield what is wrong with the shared filters in this policy."""
        if self.effect is Action.REDACT and not self.can_redact:
            yield "effect `redact` needs a rule type that says what to redact; use `ask` or `block`"
        if self.effect is Action.ALLOW and self.cannot_allow:
            yield f"{self.cannot_allow}; use effect `ask` or `block`"
        if self.effect is Action.ALLOW and Rung.DENIED in (self.rungs or ()):
            yield "a destination on rung `denied` can never be allowed; remove it"
        if self.effect is Action.ALLOW and self.status is not None:
            for status in sorted(NEVER_ALLOWED & set(self.status)):
                yield f"a destination that is `{status}` can never be allowed; remove it"
        if not self._can_match(outline):
            yield (
                "the rule can never match: no tool passes its `roles`, `tools` and `mapped`, with "
                "`destinations` where it needs some; map one or remove the rule"
            )

    def _can_match(self, outline: PolicyOutline) -> bool:
        unmapped = (
            self.mapped is not True
            and (self.roles is None or Role.OTHER in self.roles)
            and not any(p.is_everything for m in outline.mappings for p in m.patterns)
        )
        return unmapped or (
            self.mapped is not False and any(self._meets(m) for m in outline.mappings)
        )

    def _meets(self, mapping: MappingOutline) -> bool:
        return (
            (self.roles is None or mapping.role in self.roles)
            and ((self.status is None and self.rungs is None) or mapping.has_targets)
            and (
                self.tools is None
                or any(mine.overlaps(its) for mine in self.tools for its in mapping.patterns)
            )
        )
