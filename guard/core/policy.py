"""The policy as the PDP sees it, the decision, and the verdict.  Pure: no I/O.

A :class:`Policy` is built by :mod:`guard.policy` from strict YAML and never changes; a reload
swaps the whole object.  :func:`decide` judges one :class:`Situation` under it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from guard.core.frozen import frozen
from guard.core.labels import VOUCHING, Attestation, Channel
from guard.core.model import Destination, DestinationStatus, Finding, Json, Role, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from guard.core.calls import ClassifiedCall, Target, TracedCall
    from guard.core.errors import PolicyProblem
    from guard.core.mappings import (
        MemoryPolicy,
        PropagationSettings,
        SelectionPolicy,
        ServerEntry,
        ToolMapping,
    )
    from guard.core.remedies import Remedy
    from guard.core.trajectory import Snapshot


class Action(IntEnum):
    """Effect on a call.  The greater wins: block > ask > redact > allow.

    There is no default value and none may be added: whoever builds a verdict says which.
    """

    ALLOW = 0
    REDACT = 1
    ASK = 2
    BLOCK = 3

    label: str
    """The name used in policies, audit lines and metrics."""
    forwards: bool
    """True if the call (as it is, or redacted) is forwarded to the tool."""

    def __init__(self, value: int) -> None:
        self.label = self.name.lower()
        self.forwards = value <= 1


class Mode(StrEnum):
    """Mode of a policy: its verdicts are carried out, or only recorded."""

    ENFORCE = "enforce"
    MONITOR = "monitor"


@frozen
class Reason:
    """Why a verdict is what it is: one rule that matched, or one error."""

    code: str
    """From a closed set: the reason's kind, e.g. ``destination_external``, ``rule_error``."""
    rule: str
    """Id of the rule, empty for what the guard decides without a rule."""
    action: Action
    detail: str = ""
    """For the audit and the agent; never argument text, never the contents of a list."""
    data: Mapping[str, Json] = field(default_factory=dict)
    """Further details of the reason, by name; without argument text."""
    remedy: str = ""
    """The kind of step that would help, for the agent."""
    targets: tuple[Target, ...] = field(default=(), repr=False)
    """The values of the call that it is about; nothing shows them whole."""
    attested: Attestation | None = field(default=None, repr=False)
    """Attestation of the worst of them, if the rule judges attestations."""

    @property
    def evidence(self) -> dict[str, Json]:
        """All that an explanation or a replay tells of it; no value, no argument text.

        Made when it is asked for: of a live decision nobody asks.
        """
        found: dict[str, Json] = {} if self.attested is None else _origin_of(self.attested)
        found.update(self.data)
        if self.targets:
            found["targets"] = [*map(_told_of, self.targets[:EVIDENCE_TARGETS])]
            found["target_count"] = len(self.targets)
        return found


EVIDENCE_TARGETS: Final = 5
"""Targets told of one reason; a call can have thousands."""
EVIDENCE_PATH: Final = 64
"""Characters of an argument path kept; the keys in it are the caller's text."""


def _told_of(target: Target) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "standing": str(target.status),
        "kind": target.destination.kind,
        "path": target.path[:EVIDENCE_PATH],
    }
    return fields if target.attestation is None else fields | _origin_of(target.attestation)


def _origin_of(attestation: Attestation) -> dict[str, Json]:
    """Return what a reason says of an attestation; no value, no text."""
    document: dict[str, Json] = {"rung": attestation.rung.label, "why": attestation.why}
    if attestation.vector:
        document["vector"] = attestation.vector
    if attestation.saturated:
        document["saturated"] = True
    if attestation.record is not None:
        document["call"] = attestation.record.call
        document["source"] = attestation.record.source
        document["session"] = "this" if attestation.same_session else "earlier"
    return document


@frozen
class Verdict:
    """The answer of the PDP to one call."""

    action: Action
    mode: Mode
    reasons: tuple[Reason, ...]
    """Every rule that matched, the winning action's first."""
    policy: str
    """Digest of the policy that was asked."""
    errors: tuple[str, ...] = ()
    """Errors on the way; any error makes the action a block."""
    score: float | None = None
    """The prefix classifier's score where it was evaluated."""
    decided_by: tuple[str, ...] = ()
    """Ids of the rules whose effect is the action."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """Facts of detectors about the call, by name, for the audit and for explanations."""
    instead: Json = None
    """Content that is released in place of a result that is withheld in part."""
    remedies: tuple[Remedy, ...] = ()
    """Steps of an agent after a refusal, in the order in which to try them."""

    def blocked(self, reason: Reason, *errors: str) -> Verdict:
        """Return it as a block for one more reason."""
        return replace(
            self,
            action=Action.BLOCK,
            reasons=(reason, *self.reasons),
            errors=(*self.errors, *errors),
            decided_by=(),
        )

    def asked(self, reason: Reason) -> Verdict:
        """Return it as one that a person is asked about for one more reason, unless it is worse."""
        if self.action >= Action.ASK:
            return self
        return replace(self, action=Action.ASK, reasons=(reason, *self.reasons), decided_by=())

    @property
    def enforced(self) -> Action:
        """Action that the PEP carries out: in monitor mode everything passes, and is recorded."""
        return Action.ALLOW if self.mode is Mode.MONITOR else self.action

    @property
    def would_have_blocked(self) -> bool:
        """True if monitor mode let a call pass that enforce mode would have refused."""
        return self.mode is Mode.MONITOR and not self.action.forwards


def blocked_for(policy: Policy | None, *reasons: Reason, errors: tuple[str, ...] = ()) -> Verdict:
    """Return a block under a policy, or in enforce mode without one."""
    mode, digest = (Mode.ENFORCE, "") if policy is None else (policy.mode, policy.digest)
    return Verdict(Action.BLOCK, mode, reasons, digest, errors)


def worst(actions: tuple[Action, ...]) -> Action:
    """Return the action that wins; nothing to choose from is a block."""
    return max(actions, default=Action.BLOCK)


@frozen
class Situation:
    """Everything the PDP may look at for one call; nothing else reaches a rule."""

    call: TracedCall
    snapshot: Snapshot
    findings: tuple[Finding, ...]
    errors: tuple[str, ...] = ()
    """Errors met before the PDP was asked (state, detector); any of them is a block."""
    granted: bool = False
    """True if a human granted exactly this call: an ask is then an allow."""

    @property
    def score(self) -> float | None:
        """The highest prefix score among the findings."""
        highest: float | None = None
        for finding in self.findings:
            score = finding.score if finding.code == "prefix_score" else None
            if score is not None and (highest is None or score > highest):
                highest = score
        return highest

    @property
    def facts(self) -> dict[str, Json]:
        """The facts in the findings, by name."""
        facts: dict[str, Json] = {}
        for found in self.findings:
            if found.facts:
                facts.update(found.facts)
        return facts


@runtime_checkable
class Rule(Protocol):
    """One compiled rule.  A rule type is one file in ``guard/policy/rules``."""

    @property
    def id(self) -> str: ...
    @property
    def effect(self) -> Action: ...

    def match(self, situation: Situation) -> Reason | None:
        """Return why the rule applies, or None.  May raise: an error blocks the call."""
        ...

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return likewise, of a call all of whose destinations the filters let through."""
        ...


@runtime_checkable
class JudgesResults(Protocol):
    """A rule that withholds results."""

    @property
    def id(self) -> str: ...
    def asks(self, call: ClassifiedCall) -> frozenset[str]:
        """Return the detectors whose evidence in the result of a call the rule needs."""
        ...

    def match_result(self, call: ClassifiedCall, evidence: Evidence) -> Reason | None:
        """Return why a result must not be released, or None.  May raise: it is withheld."""
        ...


INJECTION: Final = "injection_in_result"
TOO_LARGE: Final = "result_too_large"
FAILED: Final = "detector_failed"
Evidence: TypeAlias = "Mapping[str, Finding | None]"
"""Finding of each detector that searched a result, by the detector's name."""

_Asked: TypeAlias = "tuple[tuple[Rule, bool], ...]"
"""Rules to ask, each with whether its filters let all destinations through: ``judge`` is asked
then, else ``match``, which looks at them one by one."""


@dataclass(frozen=True, slots=True)
class StateLimits:
    """Bounds of the state kept for a session; all times in seconds."""

    session_idle: int = 24 * 3600
    principal_window: int = 24 * 3600
    memory_read: int = 3600
    labels: int = 90 * 24 * 3600
    """Least time for which a value that a principal read in untrusted text stays labelled."""
    approval: int = 3600
    """Time within which a question can be approved, and a grant be used."""
    established: int = 90 * 24 * 3600
    """Time for which a principal may send again to a receiver that its user named, or that a person
    approved to be remembered."""
    audit: int = 0
    """Least time for which lines of the audit log are kept; 0: for good."""


@dataclass(frozen=True, slots=True)
class ApprovalRules:
    """Limits of approvals: approvers, and frequency of asks; all times in seconds."""

    two_people: frozenset[str] | None = frozenset()
    """Ids of the rules whose asks two people have to approve; None: every ask."""
    own: bool = False
    """True if somebody may approve what is asked in his own name."""
    asks: int = 0
    """Asks of a principal within ``within`` after which it is paused; 0: it never is."""
    within: int = 600
    lasts: int = 3600
    """Length of a pause."""
    break_glass: int = 0
    """For how long two people may let a principal do what would be asked, at most; 0: they may
    not."""
    changes: bool = False
    """True if two people have to agree to a change of the policy that is made on the console."""
    incidents: bool = False
    """True if two people have to agree to what an incident gives back or writes."""


@dataclass(frozen=True, slots=True)
class Elicitation:
    """Asks that the person at an agent's client may answer, and the way to ask."""

    by: str
    """``url``: on the console's page, which the client opens; ``form``: in the client."""
    rules: frozenset[str] | None = None
    """Ids of rules all of whose asks these are; None: every rule."""
    principals: frozenset[str] | None = None
    """Principals whose agents these are; None: all."""


@dataclass(frozen=True, slots=True)
class AskSettings:
    """Treatment of a call that needs approval, besides its refusal; all times in seconds."""

    hold: int = 0
    """Time for which it is held open for an answer; 0: it is refused at once."""
    quiet: int = 20
    """Time for which it is held open if its client can be told nothing meanwhile and does not say
    how long it waits."""
    elicit: tuple[Elicitation, ...] = ()
    """Asks that the person at the client may answer; the first entry that his client can follow
    counts."""

    def elicits(self, principal: str, rules: frozenset[str]) -> list[str]:
        """Return how the person at a principal's client may be asked about what rules ask."""
        found: list[str] = []
        for one in self.elicit:
            of_rules = one.rules is None or (bool(rules) and rules <= one.rules)
            if of_rules and (one.principals is None or principal in one.principals):
                found.append(one.by)
        return found


_NOTHING: Final[Callable[[Destination], bool]] = frozenset[object]().__contains__
"""Test that no destination passes."""


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """Limits of forward listeners, checked before any rule."""

    ports: frozenset[int] = frozenset({80, 443})
    """Ports that clients may name."""
    may_be_private: Callable[[Destination], bool] = _NOTHING
    """Hosts that may have a private or loopback address; networks open what lies in them."""
    passes_through: Callable[[Destination], bool] = _NOTHING
    """Hosts whose TLS is not opened; each tunnel to one is a single ``http.connect`` call."""


@dataclass(frozen=True, slots=True)
class DestinationLists:
    """Destinations that the policy lists."""

    is_internal: Callable[[Destination], bool] = _NOTHING
    is_allowed: Callable[[Destination], bool] = _NOTHING
    is_denied: Callable[[Destination], bool] = _NOTHING
    allowed_until: tuple[tuple[Callable[[Destination], bool], float], ...] = ()
    """Destinations allowed for a while, each with its end in seconds since the epoch."""
    established: Mapping[
        tuple[str, str], tuple[tuple[Callable[[Destination], bool], float], ...]
    ] = field(default_factory=dict)
    """Recipients of earlier sends, by principal and tool, each with its end."""


@dataclass(frozen=True, slots=True)
class ActionPolicy:
    """Reader of requested actions, and actions that the operator lists."""

    words: Callable[[str], tuple[str, ...]] | None = None
    """Returns the actions that a sentence names; None if no rule is about actions."""
    reaches: Callable[[str], bool | None] | None = None
    """Returns whether a sentence asks for an action that reaches the values in it; None if it names
    no action."""
    listed: tuple[tuple[str, Callable[[str], bool]], ...] = ()
    """Actions that need no request, each with the tools for which it is listed."""
    judged: frozenset[str] | None = None
    """Actions that some rule judges; None: all."""

    def judges(self, action: str) -> bool:
        """Return whether a rule judges an action: of no other the attestation is looked up."""
        return self.words is not None and (self.judged is None or action in self.judged)

    def lists(self, action: str, tool: str) -> bool:
        """Return whether an action is listed for a tool."""
        return any(name == action and matches(tool) for name, matches in self.listed)


class FolderRule(NamedTuple):
    """Rule about paths whose question a person may answer for a directory."""

    id: str
    claims: Callable[[str], bool]
    """Returns whether it is about a tool."""
    paths: Callable[[Mapping[str, Json]], tuple[str, ...]]
    """Returns the paths among the arguments of a call that it asks about."""


@dataclass(frozen=True, slots=True)
class PolicyNeeds:
    """Evidence that the rules of a policy need, and the recording that it requires."""

    requires_recording: bool = False
    """True if a call goes out only after it is recorded."""

    traces_private: bool = False
    """True if a rule looks for private text in bodies."""
    traces_pieces: bool = False
    """True if a rule counts private text that a recipient received in pieces."""
    counts_capacity: bool = False
    """True if a rule bounds the data that could have reached a host."""
    detectors: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """Detectors on demand, by name, with the tools they inspect; None for every tool."""
    guarded_kinds: frozenset[str] | None = None
    """Kinds of guarded values that some rule reads; None for all."""
    actions: ActionPolicy = ActionPolicy()
    delegated: frozenset[str] = frozenset()
    """Actions whose recipient a named document may supply."""
    shared_hosts: frozenset[str] | None = None
    """Hosts of several owners; None if a URL in a prompt attests this page only."""
    several_owners: frozenset[str] | None = None
    """Hosts of several owners, of which no errand grant covers the whole site; None: it covers the
    URL only."""
    folders: tuple[FolderRule, ...] = ()

    def portable(self, call: ToolCall) -> PolicyNeeds:
        """Return the needs of one call, to be pickled: vocabularies and patterns stay here."""
        tool = call.tool
        listed = tuple(
            (name, frozenset([tool]).__contains__)
            for name, claims in self.actions.listed
            if claims(tool)
        )
        words = None if self.actions.words is None else _no_actions
        actions = ActionPolicy(words=words, listed=listed, judged=self.actions.judged)
        folders = tuple(
            FolderRule(
                one.id,
                frozenset([tool]).__contains__,
                partial(_known_paths, one.paths(call.arguments)),
            )
            for one in self.folders
            if one.claims(tool)
        )
        return replace(self, actions=actions, folders=folders)


def _known_paths(found: tuple[str, ...], arguments: Mapping[str, Json]) -> tuple[str, ...]:
    """Return paths that were found before."""
    del arguments
    return found


def _no_actions(sentence: str) -> tuple[str, ...]:
    """Return no action: prompts are read where the vocabulary is."""
    del sentence
    return ()


@dataclass(frozen=True, slots=True)
class PolicySource:
    """Files of a policy, and their warnings."""

    paths: tuple[str, ...] = ()
    """Files of the policy."""
    warnings: tuple[PolicyProblem, ...] = field(default=(), compare=False)
    """Entries that load and may mean less than their author thinks."""
    frame: str = field(default="", compare=False)
    """sha256 (hex) of the sections that hold for everybody at once: bounds, memory gate, stores,
    HTTP tools, propagation, egress, approvals.  Two policies of one frame can be compared."""


class Directory(NamedTuple):
    """Directory that a tool returns."""

    tool: str
    kinds: frozenset[str]
    """Kinds of values in it; empty for every kind."""
    service: str
    """Name of its service; empty if the policy names none."""


@dataclass(slots=True)
class PolicyIndex:
    """Answers that many calls need, computed once from a policy."""

    replays: bool
    """True if the answers of some store are replayed."""
    derives: bool
    """True if some store derives structure by itself."""
    remembers: bool
    """True if what memories have to say may change a verdict, without a gate."""
    has_standing: bool
    """True if the state of principals counts: paused, or under a break-glass."""
    has_directories: bool
    """True if some result field is a directory or an own record."""
    directories: tuple[Directory, ...]
    """Directories whose tool a mapping has by its plain name."""
    closed: frozenset[tuple[str, str]]
    """Server and service of the complete directories."""
    result_rules: tuple[JudgesResults, ...]
    """Rules on results."""
    every: _Asked
    """Every rule, to be asked with its filters."""
    mappings: dict[str, ToolMapping | None] = field(default_factory=dict)
    """Mappings by server and tool."""
    alike: dict[object, _Asked | None] = field(default_factory=dict)
    """Rules for calls with the same key; None after the first of them."""


def _index(policy: Policy) -> PolicyIndex:
    declared = (one for tool in policy.tools for one in tool.fields)
    replays = any(one.ranked or one.derives for one in policy.selections.values())
    return PolicyIndex(
        replays=replays,
        remembers=replays or policy.propagation is not None,
        derives=any(one.derives for one in policy.selections.values()),
        has_standing=bool(policy.approvals.asks or policy.approvals.break_glass),
        has_directories=any(one.channel in VOUCHING for one in declared),
        directories=tuple(
            Directory(name.text, one.kinds, tool.service)
            for tool in policy.tools
            for one in tool.fields
            if one.channel is Channel.DIRECTORY
            for name in tool.declared.patterns
            if name.text.replace("-", "_").isidentifier()
        ),
        closed=frozenset(
            (tool.server, tool.service)
            for tool in policy.tools
            if (tool.server or tool.service) and any(one.complete for one in tool.fields)
        ),
        result_rules=tuple(rule for rule in policy.rules if isinstance(rule, JudgesResults)),
        every=tuple((rule, False) for rule in policy.rules),
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """A validated policy."""

    name: str
    digest: str
    """sha256 (hex) of the canonical policy, in every verdict."""
    mode: Mode
    tools: tuple[ToolMapping, ...]
    rules: tuple[Rule, ...]
    destinations: DestinationLists = DestinationLists()
    limits: StateLimits = StateLimits()
    approvals: ApprovalRules = ApprovalRules()
    ask: AskSettings = AskSettings()
    fold: Callable[[str], str] | None = None
    """Folds values that the policy declares to be one recipient; None folds nothing."""
    memory: MemoryPolicy | None = None
    """Memory gate; None leaves saves to the rules."""
    selections: Mapping[str, SelectionPolicy] = field(default_factory=dict)
    """Structure that counts, by store."""
    propagation: PropagationSettings | None = None
    """Records of the spread of items; None keeps none."""
    http_tools: object = field(default=None, compare=False)
    """Table of plain HTTP requests that are calls of tools; only its protocol reads it."""
    egress: EgressLimits = EgressLimits()
    needs: PolicyNeeds = PolicyNeeds()
    servers: tuple[ServerEntry, ...] = ()
    """Servers that have tool mappings of their own."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Scheme, host and port of tools that are plain HTTP requests, by name."""
    source: PolicySource = PolicySource()
    index: PolicyIndex = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Build the index."""
        object.__setattr__(self, "index", _index(self))

    def mapping(self, tool: str, listener: str = "", upstream: str = "") -> ToolMapping | None:
        """Return the mapping that claims a tool: its own server's first, then in file order.

        Args:
            tool: its name.
            listener: by which it is called.
            upstream: the server it is called at, as its definitions are pinned.
        """
        found_at = self.server(listener, upstream) if self.servers else None
        server = found_at.name if found_at is not None else ""
        key = f"{server}/{tool}"
        if key in self.index.mappings:
            return self.index.mappings[key]
        found: ToolMapping | None = None
        for mapping in self.tools:
            if mapping.server in {"", server} and mapping.matches(tool):
                if mapping.server == server:
                    found = mapping
                    break
                found = found or mapping
        if len(self.index.mappings) < MEMO_LIMIT:
            self.index.mappings[key] = found
        return found

    def about(
        self, call: ToolCall, mapping: ToolMapping | None, memory: MemoryPolicy | None
    ) -> Policy:
        """Return as much of it as reads one call, to be pickled: no rules, and one mapping.

        Args:
            call: that is read.
            mapping: of its tool, without patterns; None where no mapping claims it.
            memory: as much of its memory section as is about the call.
        """
        found_at = self.server(call.server, call.upstream)
        key = f"{found_at.name if found_at is not None else ''}/{call.tool}"
        receivers = call.identity.principal, call.tool
        part = replace(
            self,
            tools=() if mapping is None else (mapping,),
            rules=(),
            destinations=replace(
                self.destinations,
                established={receivers: self.destinations.established[receivers]}
                if receivers in self.destinations.established
                else {},
            ),
            memory=memory,
            selections={},
            propagation=None,
            http_tools=None,
            needs=self.needs.portable(call),
            source=PolicySource(),
        )
        part.index.mappings[key] = mapping
        part.index.replays, part.index.derives = self.index.replays, self.index.derives
        part.index.has_directories = self.index.has_directories
        return part

    def names_server(self, mapping: ToolMapping) -> bool:
        """Return whether a mapping is about the tools of one server, which the policy says."""
        return any(one.is_placed for one in self.servers if one.name == mapping.server)

    def server(self, listener: str, upstream: str) -> ServerEntry | None:
        """Return the first declared server that is at a listener and an upstream."""
        return next((one for one in self.servers if one.is_at(listener, upstream)), None)

    def rules_about(self, call: TracedCall) -> _Asked:
        """Return the rules to ask about a call: all but some that would say nothing of it.

        INVARIANT (filters): ``concerns`` of a rule looks at nothing of a call that is not in
        ``key``.  A rule without it, or where it fails, is always asked.
        """
        known, targets = call.classified, call.targets
        mapping = known.mapping
        seen, key = False, tuple[object, ...]()
        if len(targets) <= KEY_TARGETS:
            # The mapping follows from the tool's name and its server.
            parts: list[object] = [
                known.call.tool,
                known.role,
                mapping and mapping.server,
                known.contested,
                known.answered,
                call.redefined,
                bool(call.guarded),
                call.action is None,
                call.carried > 0,
            ]
            for target in targets:
                parts += target.status, target.attestation and target.attestation.rung
            key = tuple(parts)
            found = self.index.alike.get(key)
            if found is not None:
                return found
            seen = key in self.index.alike
        rules = self.index.every
        if seen:
            # Worked out where a call comes a second time: most that differ never do.
            asked = [(rule, _concerns(rule, call)) for rule in self.rules]
            rules = tuple([(rule, found is True) for rule, found in asked if found is not False])
            self.index.alike[key] = rules
        elif key and len(self.index.alike) < MEMO_LIMIT:
            self.index.alike[key] = None
        return rules

    def allowed_now(self, targets: tuple[Target, ...], at: float) -> tuple[Target, ...]:
        """Return destinations with those allowed that an entry allows until later than now."""

        def allows(destination: Destination) -> bool:
            return any(
                at < ends and matches(destination)
                for matches, ends in self.destinations.allowed_until
            )

        return tuple(
            replace(one, status=DestinationStatus.ALLOWED)
            if one.status is DestinationStatus.EXTERNAL and allows(one.destination)
            else one
            for one in targets
        )

    def status_of(self, destination: Destination) -> DestinationStatus:
        """Return the status of a destination.  A deny beats every allow."""
        if destination.kind == "malformed":
            return DestinationStatus.MALFORMED
        if destination.kind == "missing":
            return DestinationStatus.MISSING
        if self.destinations.is_denied(destination):
            return DestinationStatus.DENIED
        if self.destinations.is_internal(destination):
            return DestinationStatus.INTERNAL
        return (
            DestinationStatus.ALLOWED
            if self.destinations.is_allowed(destination)
            else DestinationStatus.EXTERNAL
        )


def _concerns(rule: Rule, call: TracedCall) -> bool | None:
    concerns = getattr(rule, "concerns", None)
    try:
        return None if concerns is None else concerns(call)
    except BaseException:  # noqa: BLE001  (asked, it raises again, and that blocks the call)
        return None


MEMO_LIMIT: Final = 4096
"""Distinct tool names remembered; a client that invents names must not grow the process."""
KEY_TARGETS: Final = 8
"""Destinations up to which it is remembered which rules a call like this one concerns."""


_ACTION: Final = attrgetter("action")
_RULE_AND_CODE: Final = attrgetter("rule", "code")


def decide(policy: Policy | None, situation: Situation) -> Verdict:
    """Return the verdict of a policy on a call.

    Every rule is asked, in whatever order; the worst action wins.  No policy, no rule that matches
    the call, an error before the decision or an error in any rule is a block.

    INVARIANT (order): the verdict does not depend on the order of the rules.
    INVARIANT (monotone): adding a rule that blocks never frees a call.
    """
    if policy is None:
        reason = Reason("no_policy", "", Action.BLOCK, "no policy is loaded")
        return Verdict(Action.BLOCK, Mode.ENFORCE, (reason,), policy="", score=situation.score)
    reasons: list[Reason] = []
    errors = list(situation.errors)
    if errors:
        reasons = [
            Reason("guard_error", "", Action.BLOCK, error, remedy="retry later") for error in errors
        ]
    allowed = _ask_rules(policy, situation, reasons, errors)
    if not situation.granted and reasons:
        reasons += _asked_without_rule(situation.call, allowed, max(map(_ACTION, reasons)))
    if not reasons:
        reasons.append(
            Reason(
                "no_rule_matched",
                "",
                Action.BLOCK,
                "no rule of the policy matches this call",
                remedy="ask the operator for a rule that covers this tool",
            )
        )
    if len(reasons) > 1:
        reasons.sort(key=_RULE_AND_CODE)
        reasons.sort(key=_ACTION, reverse=True)
    action = reasons[0].action
    decided_by: list[str] = []
    for reason in reasons:
        if reason.action is action and reason.rule:
            decided_by.append(reason.rule)
    return Verdict(
        action,
        policy.mode,
        tuple(reasons),
        policy.digest,
        tuple(errors),
        situation.score,
        tuple(decided_by),
        situation.facts,
    )


def _asked_without_rule(call: TracedCall, allowed: set[Role], worst: Action) -> Iterator[Reason]:
    """Yield why a call is asked about, whatever its policy's rules are.

    Args:
        call: judged.
        allowed: roles of calls that the rules which allow it are about.
        worst: action of its rules.
    """
    if call.classified.contested:
        yield Reason(
            "tool_contested",
            "",
            Action.ASK,
            "another server has a tool of this name, and the policy does not say whose it is",
            remedy="ask the operator to map the tool under `servers`, or to approve this decision",
        )
    # It is two things at once: what its tool does, and a send.
    if call.is_egress and {call.classified.role, Role.SEND} - allowed and worst < Action.ASK:
        yield Reason(
            "egress_not_allowed",
            "",
            Action.ASK,
            "it reaches somebody outside, and no rule allows both that and its role",
            remedy="leave the address out, or ask the operator to approve this decision",
        )


def _ask_rules(
    policy: Policy, situation: Situation, reasons: list[Reason], errors: list[str]
) -> set[Role]:
    """Append the reason of each rule that applies; one that raises blocks.

    Returns the roles of calls that the rules which allow this one are about.
    """
    allowed: set[Role] = set()
    call = situation.call
    for rule, whole in policy.rules_about(call):
        try:
            reason = rule.judge(situation, call.targets) if whole else rule.match(situation)
        except BaseException as error:  # noqa: BLE001  (a rule that raises must block)
            errors.append(f"rule `{rule.id}`: {type(error).__name__}")
            reasons.append(Reason("rule_error", rule.id, Action.BLOCK, type(error).__name__))
        else:
            if reason is None:
                continue
            if situation.granted and reason.action is Action.ASK:
                # A human's grant answers what a rule would ask, once.
                reason = replace(reason, code="granted", action=Action.ALLOW)
            reasons.append(reason)
            if reason.action is Action.ALLOW:
                allowed.update(getattr(rule, "roles", None) or Role)
    return allowed


def decide_result(policy: Policy, call: ClassifiedCall, evidence: Evidence) -> Verdict | None:
    """Return the block of a result that a rule withholds, None where it is released.

    A rule that raises withholds, as does one that lacks the evidence of a detector.
    """
    reasons: list[Reason] = []
    errors: list[str] = []
    for rule in policy.index.result_rules:
        try:
            reason = rule.match_result(call, evidence)
        except BaseException as error:  # noqa: BLE001  (a rule that raises must block)
            errors.append(f"rule `{rule.id}`: {type(error).__name__}")
            reason = Reason("rule_error", rule.id, Action.BLOCK, type(error).__name__)
        if reason is not None:
            reasons.append(reason)
    if not reasons:
        return None
    return Verdict(
        action=Action.BLOCK,
        mode=policy.mode,
        reasons=tuple(reasons),
        policy=policy.digest,
        errors=tuple(errors),
        decided_by=tuple(reason.rule for reason in reasons),
    )
