"""The policy as the PDP sees it: mappings, lists and compiled rules.  Pure: no I/O.

A :class:`Policy` is built by :mod:`guard.policy_files` from strict YAML and never changes; a reload
swaps the whole object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from guard.core.frozen import frozen
from guard.core.model import DestinationStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.calls import ClassifiedCall, TracedCall
    from guard.core.memory_policy import MemoryPolicy
    from guard.core.model import Destination, Finding, Json
    from guard.core.tool_mapping import ToolMapping
    from guard.core.trajectory import Snapshot
    from guard.core.verdict import Action, Mode, Reason


@frozen
class Situation:
    """Everything the PDP may look at for one call; nothing else reaches a rule."""

    call: TracedCall
    snapshot: Snapshot
    findings: tuple[Finding, ...]
    errors: tuple[str, ...] = ()
    """Errors met before the PDP was asked (state, detector); any of them is a block."""
    granted: bool = False
    """Whether a human granted exactly this call: what would be asked is then allowed."""

    @property
    def score(self) -> float | None:
        """The highest prefix score among the findings."""
        highest: float | None = None
        for finding in self.findings:
            score = finding.score if finding.code == "prefix_score" else None
            if score is not None and (highest is None or score > highest):
                highest = score
        return highest


@runtime_checkable
class Rule(Protocol):
    """One compiled rule.  A rule type is one file in ``guard/rules``."""

    @property
    def id(self) -> str: ...
    @property
    def effect(self) -> Action: ...

    def match(self, situation: Situation) -> Reason | None:
        """Return why the rule applies, or None.  May raise: an error blocks the call."""
        ...


@runtime_checkable
class JudgesResults(Protocol):
    """A rule that withholds results."""

    @property
    def id(self) -> str: ...
    def match_result(self, call: ClassifiedCall, content: Json) -> Reason | None:
        """Return why a result must not be released, or None.  May raise: it is withheld."""
        ...


@dataclass(frozen=True, slots=True)
class StateLimits:
    """Bounds of the state kept for a session; all times in seconds."""

    session_idle: int = 24 * 3600
    principal_window: int = 24 * 3600
    labels: int = 90 * 24 * 3600
    """How long a value that a principal read in untrusted text stays labelled, at least."""
    approval: int = 3600
    """How long a question can be approved, and a grant be used."""


def nothing(destination: Destination) -> bool:
    """Return False: an empty list matches no destination."""
    del destination
    return False


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """What a forward listener may be used for at all, before any rule is asked."""

    ports: frozenset[int] = frozenset({80, 443})
    """Ports that clients may name."""
    may_be_private: Callable[[Destination], bool] = nothing
    """Hosts that may have a private or loopback address; networks open what lies in them."""
    passes_through: Callable[[Destination], bool] = nothing
    """Hosts whose TLS is not opened; each tunnel to one is a single ``http.connect`` call."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A validated policy."""

    name: str
    digest: str
    """sha256 (hex) of the canonical policy, in every verdict."""
    mode: Mode
    tools: tuple[ToolMapping, ...]
    is_internal: Callable[[Destination], bool]
    is_allowed: Callable[[Destination], bool]
    is_denied: Callable[[Destination], bool]
    rules: tuple[Rule, ...]
    limits: StateLimits = StateLimits()
    memory: MemoryPolicy | None = None
    """The memory gate; None where the policy has none, and rules alone decide on saves."""
    http_tools: object = field(default=None, compare=False)
    """The table of plain HTTP requests that are calls of tools; only its protocol reads it."""
    egress: EgressLimits = EgressLimits()
    traces_private: bool = False
    """Whether a rule looks for private text in bodies."""
    detectors: frozenset[str] = frozenset()
    """Names of the detectors that its rules need, of those that are asked on demand."""
    guarded_kinds: frozenset[str] | None = None
    """Kinds of guarded values that some rule looks at; only they are traced.  None: all."""
    paths: tuple[str, ...] = ()
    """The files it was read from."""
    result_rules: tuple[JudgesResults, ...] = field(init=False, compare=False)
    """Those of the rules that speak about results."""
    _memo: dict[str, ToolMapping | None] = field(default_factory=dict, compare=False, repr=False)
    _about: dict[object, tuple[Rule, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        """Pick the rules about results once."""
        picked = tuple(rule for rule in self.rules if isinstance(rule, JudgesResults))
        object.__setattr__(self, "result_rules", picked)

    def mapping(self, tool: str) -> ToolMapping | None:
        """Return the first mapping that claims the tool, in file order."""
        if tool in self._memo:
            return self._memo[tool]
        found: ToolMapping | None = None
        for mapping in self.tools:
            if mapping.matches(tool):
                found = mapping
                break
        if len(self._memo) < MEMO_LIMIT:
            self._memo[tool] = found
        return found

    def rules_about(self, call: TracedCall) -> tuple[Rule, ...]:
        """Return the rules to ask about a call: all but some that would say nothing of it.

        INVARIANT (filters): ``concerns`` of a rule looks at nothing of a call that is not in
        ``key``.  A rule without it, or where it fails, is always asked.
        """
        if len(call.targets) > KEY_TARGETS:
            return self.rules
        targets = tuple([(t.standing, t.attestation and t.attestation.rung) for t in call.targets])
        known = call.classified
        # Which mapping it is follows from the tool's name.
        marks = known.mapping is None, call.redefined, bool(call.guarded)
        key = (known.call.tool, known.role, marks, targets)
        found = self._about.get(key)
        if found is None or found is self.rules:
            # Worked out where a call comes a second time: most that differ never do.
            again = found is not None
            found = tuple([r for r in self.rules if _concerns(r, call)]) if again else self.rules
            if again or len(self._about) < MEMO_LIMIT:
                self._about[key] = found
        return found

    def standing(self, destination: Destination) -> DestinationStatus:
        """Return where a destination stands.  A deny beats every allow."""
        if destination.kind == "malformed":
            return DestinationStatus.MALFORMED
        if destination.kind == "missing":
            return DestinationStatus.MISSING
        if self.is_denied(destination):
            return DestinationStatus.DENIED
        if self.is_internal(destination):
            return DestinationStatus.INTERNAL
        return (
            DestinationStatus.ALLOWED
            if self.is_allowed(destination)
            else DestinationStatus.EXTERNAL
        )


def _concerns(rule: Rule, call: TracedCall) -> bool:
    concerns = getattr(rule, "concerns", None)
    try:
        return concerns is None or concerns(call) is not False
    except BaseException:  # noqa: BLE001  (asked, it raises again, and that blocks the call)
        return True


MEMO_LIMIT: Final = 4096
"""Distinct tool names remembered; a client that invents names must not grow the process."""
KEY_TARGETS: Final = 8
"""Destinations up to which it is remembered which rules a call like this one concerns."""
