"""Policy files to one :class:`Policy`: read, validate, merge, lint, compile.

Several files make one policy: tool mappings and rules in the order given, lists united.  Behind
them come the shipped policies that they extend (:mod:`guard.policy.inheritance`).  Every
problem of one stage is reported at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.errors import PolicyError, PolicyProblem
from guard.core.jsonpath import compile_path, joined_path
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
from guard.core.model import Integrity
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
from guard.policy.action_lint import unrecorded, unseen_actions
from guard.policy.inheritance import with_inherited
from guard.policy.lint import lint, open_readers, uncounted, undeclared, unsaturated
from guard.policy.memory_schema import compile_memory, compile_selections
from guard.policy.rule_lint import idle_entries
from guard.policy.rules import discover_rule_types
from guard.policy.schema import (
    NESTED,
    PauseEntry,
    PolicyDocument,
    PolicyFile,
)
from guard.policy.service_lint import unknown_services, unserved
from guard.policy.validation import validate
from guard.policy.vocabulary import read_vocabulary, shipped_shared_hosts
from guard.policy.wording import suggestion
from guard.policy.yaml_loader import load_document
from guard.protocols.http.tools import HttpTool, HttpToolTable, UrlTemplate
from guard.provenance.actions import reaching
from guard.values.folds import Folds
from guard.values.patterns import PatternSet, parse_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from guard.core.model import Destination, Json
    from guard.policy.rules.base import RuleConfig
    from guard.policy.schema import (
        ApprovalsEntry,
        AskEntry,
        DirectoryEntry,
        EgressEntry,
        FieldEntry,
        LinksEntry,
        MessagesEntry,
        StateEntry,
        ToolEntry,
    )
    from guard.policy.yaml_loader import Document, Location


def load_policies(paths: Sequence[Path]) -> Policy:
    """Return the one policy that the files make together.

    Raises:
        PolicyError: with every problem found, each with its file, line and rule id.
    """
    if not paths:
        raise PolicyError((PolicyProblem("", 0, "no policy file is named; name at least one"),))
    files: list[PolicyFile] = []
    problems: list[PolicyProblem] = []
    for path in paths:
        try:
            files.append(load_file(path))
        except PolicyError as error:
            problems.extend(error.problems)
    warnings: list[PolicyProblem] = []
    if not problems:
        files, problems, warnings = with_inherited(files, load_file)
    if not problems:
        problems.extend((*lint(files), *unknown_services(files)))
    if problems:
        raise PolicyError(tuple(problems))
    return _compile(files, warnings)


def load_file(path: Path) -> PolicyFile:
    """Return one validated file, without what it extends.

    Raises:
        PolicyError: with every problem found in it.
    """
    types = discover_rule_types()
    document = load_document(path)
    problems = list(document.problems)
    unreadable = {problem.line for problem in problems}
    rules: list[RuleConfig] = []
    content: PolicyDocument | None = None
    if document.value is not None or not problems:
        content, errors = validate(PolicyDocument, document.value, NESTED)
        for index, raw in enumerate(_raw_rules(document)):
            rule, more = _rule(raw, types)
            errors.extend((("rules", index, *location), message) for location, message in more)
            if rule is not None:
                rules.append(rule)
        problems.extend(
            PolicyProblem(document.path, document.line(location), message)
            for location, message in errors
            if document.line(location) not in unreadable
        )
    if problems or content is None:
        problems.sort(key=lambda problem: problem.line)
        raise PolicyError(tuple(_named(document, problem) for problem in problems))
    return PolicyFile(document, content, tuple(rules))


def _raw_rules(document: Document) -> Iterator[Json]:
    """Yield the rules as read; whatever is not a mapping the document's model has refused."""
    rules = document.value.get("rules") if isinstance(document.value, dict) else None
    if isinstance(rules, list):
        yield from rules


def _rule(
    raw: Json, types: dict[str, type[RuleConfig]]
) -> tuple[RuleConfig | None, list[tuple[Location, str]]]:
    if not isinstance(raw, dict):
        return None, []
    name = raw.get("type")
    if name is None:
        known = ", ".join(f"`{known}`" for known in sorted(types))
        return None, [((), f"missing field `type`; it is one of {known}")]
    rule_type = types.get(name) if isinstance(name, str) else None
    if rule_type is None:
        hint = suggestion(str(name), types) or f"; known are {', '.join(sorted(types))}"
        return None, [(("type",), f"unknown rule type `{name}`{hint}")]
    return validate(rule_type, raw, {(): rule_type})


def _named(document: Document, problem: PolicyProblem) -> PolicyProblem:
    """Add the id of the rule whose lines the problem lies in."""
    for index, raw in enumerate(_raw_rules(document)):
        start = document.lines[("rules", index)]
        end = document.ends.get(("rules", index), start + 1)
        if start <= problem.line < end and isinstance(raw, dict):
            identifier = raw.get("id")
            return replace(problem, rule=identifier) if isinstance(identifier, str) else problem
    return problem


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


def _compile(files: Sequence[PolicyFile], warnings: Sequence[PolicyProblem]) -> Policy:
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
    state = next((f.content.state for f in files if f.content.state is not None), None)
    declared = [(file, *one) for file in files for one in file.content.mappings()]
    tools = with_services([_mapping(entry, file, place) for file, place, entry in declared])
    folds = Folds.parse(f for file in files if (i := file.content.identity) for f in i.fold)
    return Policy(
        name="+".join(file.content.name for file in files if not file.inherited),
        digest=_digest(canonical),
        mode=files[0].content.mode,
        tools=_with_directories(
            tools,
            [entry for file in files for entry in file.content.directories],
        ),
        servers=servers,
        destinations=_destinations(files, folds_tags=folds.plus_tags),
        rules=tuple(rule for file in files for rule in file.rules),
        limits=_limits(state),
        approvals=_approvals(
            next((f.content.approvals for f in files if f.content.approvals), None)
        ),
        ask=_ask(next((f.content.ask for f in files if f.content.ask is not None), None)),
        fold=None if folds == Folds() else folds,
        propagation=_propagation(files),
        selections=compile_selections(store for f in files for store in f.content.stores),
        memory=compile_memory([(f.content.memory, f.content.stores) for f in files]),
        http_tools=_http_tools(files),
        origins=_origins(files),
        egress=_egress([f.content.egress for f in files if f.content.egress is not None]),
        needs=_needs(files),
        source=PolicySource(
            paths=tuple(file.source.path for file in files),
            warnings=(
                *warnings,
                *undeclared(files),
                *open_readers(files),
                *uncounted(files),
                *unsaturated(files),
                *unserved(declared, tools),
                *unseen_actions(files),
                *unrecorded(files),
                *idle_entries(files),
            ),
            frame=_frame(canonical, servers),
        ),
    )


def _destinations(files: Sequence[PolicyFile], *, folds_tags: bool) -> DestinationLists:
    return DestinationLists(
        is_internal=_patterns(d for file in files for d in file.content.internal_domains),
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
    delegated = frozenset(
        action
        for file in files
        for _, entry in file.content.mappings()
        for action in entry.delegates
    )
    return PolicyNeeds(
        requires_recording=any(file.content.recording == "required" for file in files),
        traces_private=any(rule.traces_private for rule in rules),
        traces_pieces=any(rule.traces_pieces() for rule in rules),
        counts_capacity=any(rule.counts_capacity for rule in rules),
        detectors=_detectors(rules),
        guarded_kinds=_guarded_kinds(rules),
        actions=_actions(
            files, are_read=bool(delegated) or any(rule.reads_actions for rule in rules)
        ),
        delegated=delegated,
        shared_hosts=_shared_hosts(files),
        several_owners=_several_owners(files),
    )


def _shared_hosts(files: Sequence[PolicyFile]) -> frozenset[str] | None:
    """Return the hosts of several owners; None if a URL in a prompt attests its page only."""
    scope = next(
        (f.content.prompted_scope for f in files if f.content.prompted_scope and not f.server),
        "page",
    )
    return None if scope == "page" else _several_owners(files)


def _several_owners(files: Sequence[PolicyFile]) -> frozenset[str]:
    further = (host.removeprefix("*.") for f in files for host in f.content.shared_hosts)
    return shipped_shared_hosts() | frozenset(further)


def _actions(files: Sequence[PolicyFile], *, are_read: bool) -> ActionPolicy:
    entries = [file.content.actions for file in files if file.content.actions is not None]
    words = read_vocabulary(entry.words for entry in entries)
    return ActionPolicy(
        words=words if are_read else None,
        reaches=reaching(words),
        listed=tuple(
            (one.action, any_pattern(one.tools)) for entry in entries for one in entry.listed
        ),
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


def _http_tools(files: Sequence[PolicyFile]) -> HttpToolTable | None:
    tools = [
        HttpTool(
            tool=entry.tool,
            methods=frozenset(entry.method),
            template=UrlTemplate.parse(entry.url),
            body=entry.body,
            repeat=frozenset(entry.repeat),
        )
        for file in files
        for entry in file.content.http_tools
    ]
    return HttpToolTable(tools) if tools else None


def _origins(files: Sequence[PolicyFile]) -> dict[str, str]:
    """Return where the tools are that are plain HTTP requests."""
    found: dict[str, set[str]] = {}
    for file in files:
        for entry in file.content.http_tools:
            origin = "{}://{}:{}".format(*UrlTemplate.parse(entry.url).origin)
            found.setdefault(entry.tool, set()).add(origin)
    return {tool: " ".join(sorted(origins)) for tool, origins in found.items()}


def _guarded_kinds(rules: Iterable[RuleConfig]) -> frozenset[str] | None:
    """Unite what the rules look at; None where one looks at every kind."""
    kinds: frozenset[str] = frozenset()
    for rule in rules:
        more = rule.guarded_kinds()
        if more is None:
            return None
        kinds |= more
    return kinds


def _egress(entries: Sequence[EgressEntry]) -> EgressLimits:
    """Unite the entries of all files; without one, the defaults."""
    if not entries:
        return EgressLimits()
    return EgressLimits(
        ports=frozenset(port for entry in entries for port in entry.ports),
        may_be_private=_patterns(text for entry in entries for text in entry.private),
        passes_through=_patterns(text for entry in entries for text in entry.passthrough),
    )


def _action(entry: ToolEntry) -> ActionMapping:
    amount, currency = (
        compile_path(one) if one else None for one in (entry.amount, entry.currency)
    )
    return ActionMapping(
        entry.action or "send", tuple(compile_path(path) for path in entry.object), amount, currency
    )


def _mapping(entry: ToolEntry, file: PolicyFile, location: Location) -> ToolMapping:
    return ToolMapping(
        server=file.server_at(location),
        service=entry.service or file.content.service or "",
        pattern=", ".join(pattern.text for pattern in entry.match),
        matches=_claims(entry, file.only),
        role=entry.role,
        destinations=tuple(map(joined_path, entry.destinations)),
        body=tuple(compile_path(path) for path in entry.body),
        arguments=ArgumentRules(
            ignore=tuple(compile_path(path) for path in entry.ignore),
            inert=tuple(compile_path(one.path) for one in entry.inert),
            guarded=tuple(compile_path(path) for path in entry.guarded),
            unfurls=tuple(compile_path(path) for path in entry.unfurls),
            sql=tuple(compile_path(path) for path in entry.sql),
        ),
        action=_action(entry) if entry.action else None,
        source=entry.source,
        fields=tuple(map(_field, entry.fields)),
        store=entry.store or "",
        item=compile_path(entry.item) if entry.item else None,
        items=ItemFields(compile_path(entry.items.each), compile_path(entry.items.id))
        if entry.items
        else None,
        reading=MessageReading(
            reply=compile_path(entry.reply) if entry.reply else None,
            messages=_messages(entry.messages) if entry.messages else None,
            links=_links(entry.links) if entry.links else None,
            named_by=compile_path(entry.named_by) if entry.named_by else None,
            delegates=frozenset(entry.delegates),
            supplies=tuple(map(compile_path, entry.supplies)),
        ),
        private=entry.private,
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
        one = ResultField(
            compile_path(entry.path), Integrity.AUTHENTICATED, Channel.DIRECTORY, ends=entry.ends
        )
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
        path=compile_path(entry.path),
        label=label,
        channel=kind,
        names=compile_path(entry.name) if entry.name else None,
        kinds=frozenset(entry.kinds),
        serves=entry.serves,
        complete=entry.complete,
    )


def _propagation(files: Sequence[PolicyFile]) -> PropagationSettings | None:
    """Return the settings of the first file that has them."""
    for file in files:
        entry = file.content.propagation
        if entry is not None:
            found = entry.detection
            detection = (
                None
                if found is None
                else DetectionSettings(found.effect == "withhold", found.threshold)
            )
            return PropagationSettings(entry.events, entry.versions, detection)
    return None


def _limits(state: StateEntry | None) -> StateLimits:
    if state is None:
        return StateLimits()
    return StateLimits(
        state.session_idle,
        state.principal_window,
        state.memory_read,
        state.labels,
        state.approval,
        state.established,
        state.audit or 0,
    )


def _approvals(entry: ApprovalsEntry | None) -> ApprovalRules:
    if entry is None:
        return ApprovalRules()
    pause = entry.pause or PauseEntry(asks=1)
    return ApprovalRules(
        two_people=None if entry.two_people == "all" else frozenset(entry.two_people or ()),
        own=entry.own == "allow",
        asks=pause.asks if entry.pause else 0,
        within=pause.within,
        lasts=pause.lasts,
        break_glass=entry.break_glass or 0,
        changes=entry.changes == "two_people",
        incidents=entry.incidents == "two_people",
    )


def _ask(entry: AskEntry | None) -> AskSettings:
    if entry is None:
        return AskSettings()
    elicit = tuple(
        Elicitation(
            one.by,
            None if one.rules is None else frozenset(one.rules),
            None if one.principals is None else frozenset(one.principals),
        )
        for one in entry.elicit
    )
    return AskSettings(entry.hold or 0, entry.quiet, elicit)


def _messages(entry: MessagesEntry) -> MessageFields:
    return MessageFields(
        each=compile_path(entry.each),
        id=compile_path(entry.id),
        sender=compile_path(entry.sender),
        names=tuple(compile_path(path) for path in entry.names),
    )


def _links(entry: LinksEntry) -> LinkFields:
    return LinkFields(
        each=compile_path(entry.each),
        text=compile_path(entry.text),
        sender=compile_path(entry.sender),
        place=compile_path(entry.place) if entry.place else None,
    )


def _patterns(texts: Iterable[str]) -> PatternSet:
    return PatternSet(tuple(parse_pattern(text) for text in dict.fromkeys(texts)))
