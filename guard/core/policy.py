"""The policy as the PDP sees it: mappings, lists and compiled rules.  Pure: no I/O.

A :class:`Policy` is built by :mod:`guard.policy_files` from strict YAML and never changes; a reload
swaps the whole object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from guard.core.frozen import frozen
from guard.core.model import DestinationStatus, Integrity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from guard.core.memory_policy import MemoryPolicy
    from guard.core.model import ClassifiedCall, Destination, Finding, Json, Role
    from guard.core.tool_patterns import ToolPattern
    from guard.core.trajectory import Snapshot
    from guard.core.verdict import Action, Mode, Reason


@frozen
class Situation:
    """Everything the PDP may look at for one call; nothing else reaches a rule."""

    call: ClassifiedCall
    snapshot: Snapshot
    findings: tuple[Finding, ...]
    errors: tuple[str, ...] = ()
    """Errors met before the PDP was asked (state, detector); any of them is a block."""
    granted: bool = False
    """Whether a human granted exactly this call: what would be asked is then allowed."""

    @property
    def score(self) -> float | None:
        """The highest prefix score among the findings."""
        found = [f.score for f in self.findings if f.code == "prefix_score"]
        return max([score for score in found if score is not None], default=None)


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


class PathQuery(Protocol):
    """A compiled JSONPath (RFC 9535): the values it selects, with their normalised paths."""

    text: str

    def find(self, document: Json) -> Iterable[tuple[str, Json]]: ...


@dataclass(frozen=True, slots=True)
class FieldLabel:
    """A part of a result with a label of its own."""

    path: PathQuery
    label: Integrity


@dataclass(frozen=True, slots=True)
class MessageFields:
    """Where messages are in a result, and what a user may call each by."""

    each: PathQuery
    id: PathQuery
    sender: PathQuery
    names: tuple[PathQuery, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkFields:
    """Where in a result messages with links are, and by what a user may name their place."""

    each: PathQuery
    text: PathQuery
    sender: PathQuery
    place: PathQuery | None = None
    """In the arguments: the channel or the person whose messages are read."""


@dataclass(frozen=True, slots=True)
class ToolMapping:
    """What the policy says of the tools that one pattern claims."""

    pattern: str
    """The globs or expressions as written, for messages."""
    matches: Callable[[str], bool]
    role: Role
    destinations: tuple[PathQuery, ...] = ()
    body: tuple[PathQuery, ...] = ()
    ignore: tuple[PathQuery, ...] = ()
    """Arguments that are neither; what is declared nowhere is looked through for destinations."""
    source: Integrity = Integrity.UNTRUSTED
    """Label of what its results contain."""
    fields: tuple[FieldLabel, ...] = ()
    """Parts of its results that have a label of their own."""
    store: str = ""
    """Name of the memory it reads or writes, empty where it is none."""
    item: PathQuery | None = None
    """Where the arguments name the item of that memory."""
    guarded: tuple[PathQuery, ...] = ()
    """Arguments whose values are traced like destinations."""
    reply: PathQuery | None = None
    """Where the arguments name the message that is answered."""
    messages: MessageFields | None = None
    """Where in its results messages are."""
    private: bool = False
    """Whether what it returns must not go out to whom nobody vouches for."""
    links: LinkFields | None = None
    """Messages whose links count word for word where the user named their sender or place."""
    named_by: PathQuery | None = None
    """Where the arguments name the page that is read; one that the user named vouches for the
    addresses on it that bear its name."""
    may_be_nobody: bool = False
    """A send without a destination sends nothing (a calendar entry without guests)."""
    line: int = 0
    patterns: tuple[ToolPattern, ...] = ()
    """One by one what ``pattern`` and ``matches`` join."""

    def claimant(self, tool: str) -> str:
        """Return the one pattern, as written, that claims a tool this mapping claims."""
        return next((p.text for p in self.patterns if p.matches(tool) is True), self.pattern)


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
        try:
            return self._memo[tool]
        except KeyError:
            found = next((m for m in self.tools if m.matches(tool)), None)
            if len(self._memo) < MEMO_LIMIT:
                self._memo[tool] = found
            return found

    def rules_about(self, call: ClassifiedCall) -> tuple[Rule, ...]:
        """Return the rules to ask about a call: all but some that would say nothing of it.

        INVARIANT (filters): ``concerns`` of a rule looks at nothing of a call that is not in
        ``key``.  A rule without it, or where it fails, is always asked.
        """
        if len(call.targets) > KEY_TARGETS:
            return self.rules
        targets = tuple([(t.standing, t.attestation and t.attestation.rung) for t in call.targets])
        marks = call.mapped, call.may_be_nobody, call.redefined, bool(call.guarded)
        key = (call.call.tool, call.role, marks, targets)
        found = self._about.get(key)
        if found is None:
            found = tuple(rule for rule in self.rules if _concerns(rule, call))
            if len(self._about) < MEMO_LIMIT:
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


def _concerns(rule: Rule, call: ClassifiedCall) -> bool:
    concerns = getattr(rule, "concerns", None)
    try:
        return concerns is None or concerns(call) is not False
    except BaseException:  # noqa: BLE001  (asked, it raises again, and that blocks the call)
        return True


MEMO_LIMIT: Final = 4096
"""Distinct tool names remembered; a client that invents names must not grow the process."""
KEY_TARGETS: Final = 8
"""Destinations up to which it is remembered which rules a call like this one concerns."""
