"""A call described in a file: what was called before it, who calls, what is called.  Pure: no I/O.

``guard test`` and ``guard explain`` judge described calls through the same classification,
detectors and PDP as live traffic; only the state store is replaced by what the description says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from guard.core.calls import ClassifiedCall, untraced, with_suspects
from guard.core.labels import Attestation, Rung
from guard.core.model import ROLES, Identity, PrincipalRung, Role, SessionRung, ToolCall
from guard.core.pdp import decide
from guard.core.policy import Situation
from guard.core.ports import DetectorOnDemand
from guard.core.trajectory import Snapshot, Trajectory, Window
from guard.decision.classification import classify
from guard.destinations.amounts import number_value
from guard.destinations.canonical import read_destinations
from guard.destinations.values import leaf_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.calls import Target, TracedCall
    from guard.core.model import Finding, Json
    from guard.core.policy import Policy
    from guard.core.ports import Detector
    from guard.core.verdict import Verdict

PROTOCOL: Final = "described"
SessionRungName = Literal[
    "connection", "traceparent", "meta", "mcp_session", "guard_header", "recorded"
]
PrincipalRungName = Literal["anonymous", "credential", "recorded"]
ProvenanceName = Literal[
    "listed",
    "granted",
    "prompted",
    "reply",
    "remembered",
    "claimed",
    "unknown",
    "tainted",
    "denied",
]


Names = Annotated[tuple[str, ...], Field(strict=False)]
"""A list; not strict, because the short form of a trajectory has left JSON when it is read."""


class DescribedEntry(BaseModel):
    """Base of the entries: strict, and nothing but what is named."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class IdentityEntry(DescribedEntry):
    """How well the caller is known; left out, not at all."""

    principal_rung: PrincipalRungName = "anonymous"
    session_rung: SessionRungName = "connection"


class CallEntry(DescribedEntry):
    """The call itself."""

    tool: Annotated[str, Field(min_length=1)]
    arguments: dict[str, Any] = {}
    session: str = "session"
    principal: str = "principal"
    identity: IdentityEntry = IdentityEntry()
    protocol: str = PROTOCOL
    redefined: bool = False
    """Whether the tool's definition has changed since it was pinned."""


class TrajectoryEntry(DescribedEntry):
    """What was called before.  Each item is a role, or the name of a tool that the policy maps."""

    session: Names = ()
    """Executed before in this session."""
    principal: Names = ()
    """Executed by this principal in earlier sessions."""
    refused: Annotated[int, Field(ge=0)] = 0
    """Calls like this one that were refused in a row just before it."""


class DescribedCall(DescribedEntry):
    """A call with the road to it."""

    trajectory: TrajectoryEntry = TrajectoryEntry()
    provenance: dict[str, ProvenanceName] = {}
    """Rung of the attestation ladder by destination or guarded value; the others are listed or
    unknown."""
    call: CallEntry

    @field_validator("trajectory", mode="before")
    @classmethod
    def _session_only(cls, value: Json) -> Json:
        # A list is the usual case: what this session did.
        return {"session": value} if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the guard thinks of a described call, and everything it looked at."""

    call: ClassifiedCall
    snapshot: Snapshot
    findings: tuple[Finding, ...]
    verdict: Verdict


def judge(policy: Policy, detectors: Sequence[Detector], described: DescribedCall) -> Judgement:
    """Judge a described call as live traffic is judged.

    Raises:
        ValueError: the trajectory names what is neither a role nor a mapped tool.
    """
    call = tool_call(described.call)
    errors: list[str] = []
    try:
        classified = classify(policy, call)
    except Exception as error:  # noqa: BLE001  (as in live traffic: whatever it is, it blocks)
        classified = ClassifiedCall(call, Role.OTHER)
        errors.append(f"classify: {type(error).__name__}")
    traced = replace(_traced(classified, described.provenance), redefined=described.call.redefined)
    snapshot = _snapshot(policy, described.trajectory, classified.role)
    findings: list[Finding] = []
    for detector in detectors:
        if isinstance(detector, DetectorOnDemand) and detector.name not in policy.detectors:
            continue
        try:
            findings.extend(detector.inspect(classified, snapshot))
        except Exception as error:  # noqa: BLE001  (as above)
            errors.append(f"detector `{detector.name}`: {type(error).__name__}")
    situation = Situation(traced, snapshot, tuple(findings), tuple(errors))
    return Judgement(classified, snapshot, tuple(findings), decide(policy, situation))


def _traced(classified: ClassifiedCall, rungs: Mapping[str, str]) -> TracedCall:
    """Return the call with the rungs that its description gives to values in it."""
    call = untraced(classified)
    if not rungs:
        return call
    by_text = {text: Attestation(Rung[name.upper()], "described") for text, name in rungs.items()}
    by_destination = {
        destination: attestation
        for text, attestation in by_text.items()
        for destination in read_destinations(text)
    }

    by_value = {
        number_value(text) or leaf_value(text): attestation for text, attestation in by_text.items()
    }

    def traced(target: Target) -> Target:
        found = by_destination.get(target.destination)
        if target.destination.kind in {"text", "number"}:
            found = by_value.get(target.destination.canonical)
        return replace(target, attestation=found or target.attestation)

    targets = with_suspects(map(traced, classified.targets), map(traced, classified.suspects))
    return replace(call, targets=targets, guarded=tuple(map(traced, call.guarded)))


def tool_call(entry: CallEntry) -> ToolCall:
    """Return the call that an entry describes."""
    identity = Identity(
        entry.principal,
        entry.session,
        principal_rung=PrincipalRung[entry.identity.principal_rung.upper()],
        session_rung=SessionRung[entry.identity.session_rung.upper()],
    )
    return ToolCall("described", identity, entry.tool, entry.arguments, entry.protocol, at=0.0)


def _snapshot(policy: Policy, entry: TrajectoryEntry, role: Role) -> Snapshot:
    session = tuple(_role(policy, name) for name in entry.session)
    earlier = tuple(_role(policy, name) for name in entry.principal)
    return Snapshot(
        _window(session, entry.refused, role), _window(earlier + session, entry.refused, role)
    )


def _role(policy: Policy, name: str) -> Role:
    if name in set(Role):
        return Role(name)
    mapping = policy.mapping(name)
    if mapping is None:
        raise ValueError(
            f"`{name}` in `trajectory` is neither a role nor a tool that the policy maps"
        )
    return mapping.role


def _window(roles: tuple[Role, ...], refused: int, role: Role) -> Window:
    trajectory = Trajectory.of(roles)
    refusals = tuple(refused if one is role else 0 for one in ROLES)
    return Window(
        trajectory=trajectory,
        attempted=tuple(map(sum, zip(trajectory.executed, refusals, strict=True))),
        refused=refusals,
        refused_in_a_row=refused,
    )
