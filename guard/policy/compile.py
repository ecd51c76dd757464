"""Policy files to one :class:`Policy`: read, validate, merge, lint, compile.

Several files make one policy: tool mappings and rules in the order given, lists united.  Behind
them come the shipped policies that they extend (:mod:`guard.policy.inheritance`).  Every
problem of one stage is reported at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import PolicyError, PolicyProblem
from guard.core.labels import VOUCHING, Channel
from guard.core.mappings import (
    ActionMapping,
    ArgumentRules,
    DetectionSettings,
    ItemFields,
    LinkFields,
    MappingSource,
    MessageFields,
    MessageReading,
    PropagationSettings,
    ResultField,
    ServerEntry,
    ToolMapping,
)
from guard.core.model import Destination, Integrity, Json
from guard.core.policy import (
    ActionPolicy,
    ApprovalRules,
    AskSettings,
    DestinationLists,
    EgressLimits,
    Elicitation,
    Policy,
    PolicyNeeds,
    PolicySource,
    StateLimits,
)
from guard.core.tool_patterns import any_pattern
from guard.detectors import declared_facts
from guard.policy.field_types import Location, made
from guard.policy.inheritance import load_file, with_inherited
from guard.policy.lint import lint
from guard.policy.memory_schema import compile_memory, compile_selections
from guard.policy.schema import (
    ApprovalsEntry,
    AskEntry,
    DirectoryEntry,
    EgressEntry,
    FieldEntry,
    PolicyFile,
    PropagationEntry,
    ToolEntry,
    own_files,
    tools_of,
)
from guard.policy.vocabulary import read_vocabulary, shipped_shared_hosts
from guard.policy.warnings import warnings
from guard.protocols.http.tools import HttpTool, HttpToolTable, UrlTemplate
from guard.provenance.actions import reaching
from guard.values.folds import Folds
from guard.values.patterns import PatternSet

if TYPE_CHECKING:
    from guard.policy.rules.base import RuleConfig


def load_policies(paths: Sequence[Path], texts: Mapping[str, str] | None = None) -> Policy:
    """Return the one policy that the files make together.

    Args:
        paths: of the files.
        texts: by path, what stands for the content of a file.

    Raises:
        PolicyError: with every problem found, each with its file, line and rule id.
    """
    if not paths:
        raise PolicyError((PolicyProblem("", 0, "no policy file is named; name at least one"),))
    files: list[PolicyFile] = []
    problems: list[PolicyProblem] = []
    for path in paths:
        try:
            files.append(load_file(path, (texts or {}).get(str(path))))
        except PolicyError as error:
            problems.extend(error.problems)
    replaced: list[PolicyProblem] = []
    if not problems:
        files, problems, replaced = with_inherited(files)
    if not problems:
        problems.extend(lint(files))
    if problems:
        raise PolicyError(tuple(problems))
    return _compile(files, replaced)


_FRAME: Final = (
    "state",
    "identity",
    "memory",
    "stores",
    "http_tools",
    "propagation",
    "recording",
    "approvals",
    "egress",
)
"""Sections that hold for everybody at once: state, the wire and the gate are shared."""


def _digest(document: Json) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _frame(canonical: Sequence[Json], servers: Sequence[ServerEntry]) -> str:
    """Return the digest of what two policies must share to stand side by side."""
    parts = [{name: one[name] for name in _FRAME if one.get(name)} for one in canonical]
    shared = [[one.name, one.listener, one.upstream, dict(one.pins)] for one in servers]
    return _digest([[part for part in parts if part], shared])


def _compile(files: Sequence[PolicyFile], replaced: Sequence[PolicyProblem]) -> Policy:
    canonical = [file.canonical for file in files]
    servers = tuple(
        ServerEntry(
            server.name,
            server.listener or "",
            (server.upstream or "").lower(),
            server.pins or {},
        )
        for file in files
        for server in file.content.servers
    )
    state, approvals, ask = (_first(files, name) for name in ("state", "approvals", "ask"))
    tools = with_services([_mapping(entry, file, place) for file, place, entry in tools_of(files)])
    folds = Folds.parse(f for file in files if (i := file.content.identity) for f in i.fold)
    http = [
        made(
            HttpTool,
            entry,
            methods=frozenset(entry.method),
            template=UrlTemplate.parse(entry.url),
            repeat=frozenset(entry.repeat),
        )
        for file in files
        for entry in file.content.http_tools
    ]
    origins: dict[str, set[str]] = {}
    for one in http:
        origins.setdefault(one.tool, set()).add("{}://{}:{}".format(*one.template.origin))
    return Policy(
        name="+".join(file.content.name for file in own_files(files)),
        digest=_digest(canonical),
        mode=files[0].content.mode,
        tools=_with_directories(
            tools,
            [entry for file in files for entry in file.content.directories],
        ),
        servers=servers,
        destinations=_destinations(files, folds_tags=folds.plus_tags),
        rules=tuple(rule for file in files for rule in file.rules),
        limits=made(StateLimits, state, audit=state.audit or 0) if state else StateLimits(),
        approvals=_approvals(approvals) if approvals else ApprovalRules(),
        ask=_ask(ask) if ask else AskSettings(),
        fold=None if folds == Folds() else folds,
        propagation=_propagation(_first(files, "propagation")),
        selections=compile_selections(store for f in files for store in f.content.stores),
        memory=compile_memory([(f.content.memory, f.content.stores) for f in files]),
        http_tools=HttpToolTable(http) if http else None,
        origins={tool: " ".join(sorted(found)) for tool, found in origins.items()},
        egress=_egress([f.content.egress for f in files if f.content.egress is not None]),
        needs=_needs(files),
        source=PolicySource(
            paths=tuple(file.source.path for file in files),
            warnings=(*replaced, *warnings(files, tools)),
            frame=_frame(canonical, servers),
        ),
    )


def _first(files: Sequence[PolicyFile], section: str) -> Any:
    """Return a section of the first file that has it; None where none has."""
    found = (getattr(file.content, section) for file in files)
    return next((one for one in found if one is not None), None)


def _destinations(files: Sequence[PolicyFile], *, folds_tags: bool) -> DestinationLists:
    return DestinationLists(
        is_internal=PatternSet.parse(d for file in files for d in file.content.internal_domains),
        is_allowed=PatternSet.parse(
            (d for file in files for d in file.content.allow if isinstance(d, str)),
            folds_tags=folds_tags,
        ),
        allowed_until=tuple(
            (PatternSet.parse((d.to,), folds_tags=folds_tags), d.ends)
            for file in files
            for d in file.content.allow
            if not isinstance(d, str)
        ),
        established=_established(files, folds_tags=folds_tags),
        # A denied recipient includes every spelling that may be the same.
        is_denied=PatternSet.parse((d for f in files for d in f.content.deny), folds_tags=True),
    )


def _needs(files: Sequence[PolicyFile]) -> PolicyNeeds:
    rules = [rule for file in files for rule in file.rules]
    delegated = frozenset(one for _, _, entry in tools_of(files) for one in entry.delegates)
    scope = next(
        (f.content.prompted_scope for f in files if f.content.prompted_scope and not f.server),
        "page",
    )
    further = (host.removeprefix("*.") for f in files for host in f.content.shared_hosts)
    several_owners = shipped_shared_hosts() | frozenset(further)
    guarded = [rule.guarded_kinds() for rule in rules]
    return PolicyNeeds(
        requires_recording=any(file.content.recording == "required" for file in files),
        traces_private=any(rule.traces_private for rule in rules),
        traces_pieces=any(rule.traces_pieces() for rule in rules),
        counts_capacity=any(rule.counts_capacity for rule in rules),
        detectors=_detectors(rules),
        guarded_kinds=None if None in guarded else frozenset().union(*filter(None, guarded)),
        actions=_actions(files, rules, delegates=bool(delegated)),
        delegated=delegated,
        # A URL in a prompt attests its page only, unless a policy says that it attests its host.
        shared_hosts=None if scope == "page" else several_owners,
        several_owners=several_owners,
        folders=tuple(filter(None, (rule.folders() for rule in rules))),
    )


def _actions(
    files: Sequence[PolicyFile], rules: Iterable[RuleConfig], *, delegates: bool
) -> ActionPolicy:
    judged = [rule.judged_actions() for rule in rules if rule.reads_actions]
    entries = [file.content.actions for file in files if file.content.actions is not None]
    words = read_vocabulary(entry.words for entry in entries)
    return ActionPolicy(
        words=words if judged or delegates else None,
        reaches=reaching(words),
        listed=tuple(
            (one.action, any_pattern(one.tools)) for entry in entries for one in entry.listed
        ),
        judged=None if None in judged else frozenset().union(*filter(None, judged)),
    )


def _detectors(rules: Iterable[RuleConfig]) -> dict[str, frozenset[str] | None]:
    """Return the detectors that the rules need, for findings or for facts, by name.

    With each go the tools that its rules are about; None where one is about more than some names.
    """
    declared = declared_facts()
    found: dict[str, frozenset[str] | None] = {}
    for rule in rules:
        patterns = rule.tools
        exact = patterns is not None and all(pattern.is_literal for pattern in patterns)
        tools = frozenset(pattern.text for pattern in patterns or ()) if exact else None
        for name in (*rule.detectors, *(declared[fact] for fact in rule.facts)):
            before = found.get(name, frozenset())
            found[name] = None if tools is None or before is None else before | tools
    return found


def _egress(entries: Sequence[EgressEntry]) -> EgressLimits:
    """Unite the entries of all files; without one, the defaults."""
    if not entries:
        return EgressLimits()
    return EgressLimits(
        ports=frozenset(port for entry in entries for port in entry.ports),
        may_be_private=PatternSet.parse(text for entry in entries for text in entry.private),
        passes_through=PatternSet.parse(text for entry in entries for text in entry.passthrough),
    )


def _mapping(entry: ToolEntry, file: PolicyFile, location: Location) -> ToolMapping:
    return made(
        ToolMapping,
        entry,
        server=file.server_at(location),
        service=entry.service or file.content.service or "",
        pattern=", ".join(pattern.text for pattern in entry.match),
        matches=_claims(entry, file.only),
        arguments=made(ArgumentRules, entry, inert=tuple(one.path for one in entry.inert)),
        action=ActionMapping(entry.action, entry.object, entry.amount, entry.currency)
        if entry.action
        else None,
        fields=tuple(map(_field, entry.fields)),
        store=entry.store or "",
        items=made(ItemFields, entry.items) if entry.items else None,
        reading=made(
            MessageReading,
            entry,
            messages=made(MessageFields, entry.messages) if entry.messages else None,
            links=made(LinkFields, entry.links) if entry.links else None,
            delegates=frozenset(entry.delegates),
        ),
        may_lack_receivers=entry.optional_destinations,
        declared=MappingSource(file.source.line(location), entry.match),
    )


def _claims(entry: ToolEntry, only: frozenset[str] | None) -> Callable[[str], bool]:
    """Return whether a mapping claims a tool: by its patterns, and of the tools it is about."""
    claims = any_pattern(entry.match)
    return claims if only is None else lambda name: name in only and claims(name)


def with_services(tools: Sequence[ToolMapping]) -> list[ToolMapping]:
    """Return mappings, those that name no service with the one that others say they belong to.

    That is the service of a mapping of the same tool, which this one stands before, or the only
    one on the same server.
    """
    named: dict[str, list[ToolMapping]] = {}
    for mapping in tools:
        if mapping.service:
            named.setdefault(mapping.server, []).append(mapping)
    found: list[ToolMapping] = []
    for mapping in tools:
        others = () if mapping.service else named.get(mapping.server, ())
        names = [pattern.text for pattern in mapping.declared.patterns if pattern.is_literal]
        same = {other.service for other in others if any(map(other.matches, names))}
        if not same and mapping.server:
            same = {other.service for other in others}
        found.append(replace(mapping, service=same.pop()) if len(same) == 1 else mapping)
    return found


def _with_directories(
    tools: Sequence[ToolMapping], entries: Sequence[DirectoryEntry]
) -> tuple[ToolMapping, ...]:
    """Return mappings, with one of its own in front for each tool that has a directory for a while.

    A server's own mappings have none: which tool is meant is not said there.
    """
    found: list[ToolMapping] = []
    of_tool: dict[str, list[ResultField]] = {}
    for entry in entries:
        if entry.writer is None:
            continue
        one = ResultField(entry.path, Integrity.AUTHENTICATED, Channel.DIRECTORY, ends=entry.ends)
        of_tool.setdefault(entry.tool, []).append(one)
    for mapping in tools:
        for tool in [name for name in of_tool if not mapping.server and mapping.matches(name)]:
            fields = (*mapping.fields, *of_tool.pop(tool))
            found.append(replace(mapping, matches=tool.__eq__, fields=fields))
        found.append(mapping)
    return tuple(found)


def _established(
    files: Sequence[PolicyFile], *, folds_tags: bool
) -> dict[tuple[str, str], tuple[tuple[Callable[[Destination], bool], float], ...]]:
    """Return the receivers that may be sent to again, by principal and tool."""
    found: dict[tuple[str, str], tuple[tuple[Callable[[Destination], bool], float], ...]] = {}
    for file in files:
        for one in file.content.established:
            key = one.principal, one.tool
            here = PatternSet.parse((one.to,), folds_tags=folds_tags), one.ends
            found[key] = (*found.get(key, ()), here)
    return found


def _field(entry: FieldEntry) -> ResultField:
    """Return a declared field; a label that promises more than who writes it is not believed."""
    kind = entry.declared
    label = Integrity.AUTHENTICATED if kind in VOUCHING else Integrity.UNTRUSTED
    if kind is Channel.RESULT and entry.label is not None:
        label = entry.label
    return ResultField(
        path=entry.path,
        label=label,
        channel=kind,
        names=entry.name,
        kinds=frozenset(entry.kinds),
        serves=entry.serves,
        complete=entry.complete,
    )


def _propagation(entry: PropagationEntry | None) -> PropagationSettings | None:
    if entry is None:
        return None
    found = entry.detection
    detection = found and DetectionSettings(found.effect == "withhold", found.threshold)
    return made(PropagationSettings, entry, detection=detection)


def _approvals(entry: ApprovalsEntry) -> ApprovalRules:
    return ApprovalRules(
        two_people=None if entry.two_people == "all" else frozenset(entry.two_people or ()),
        own=entry.own == "allow",
        **entry.pause.model_dump() if entry.pause else {},
        break_glass=entry.break_glass or 0,
        changes=entry.changes == "two_people",
        incidents=entry.incidents == "two_people",
    )


def _ask(entry: AskEntry) -> AskSettings:
    elicit = tuple(
        Elicitation(
            one.by,
            None if one.rules is None else frozenset(one.rules),
            None if one.principals is None else frozenset(one.principals),
        )
        for one in entry.elicit
    )
    return AskSettings(entry.hold or 0, entry.quiet, elicit)
