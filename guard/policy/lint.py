"""Problems of policies whose fields are all valid: duplicates, shadowed entries, dead rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from guard.core.calls import SAVING
from guard.core.errors import PolicyProblem
from guard.core.jsonpath import compile_path
from guard.core.labels import VOUCHING, Channel, Rung
from guard.core.memory import SourceType
from guard.core.model import DestinationStatus, Integrity, Role
from guard.core.policy import Action, Mode
from guard.core.tool_patterns import ToolPattern
from guard.detectors import declared_facts
from guard.policy.detector_manifest import result_detectors
from guard.policy.memory_schema import (
    declared_reads,
    declared_writes,
    has_default_matrix,
    settings_of,
    states_settings,
)
from guard.policy.rules.base import MappingOutline, PolicyOutline
from guard.policy.rules.destination import DestinationRule
from guard.policy.rules.provenance import ProvenanceRule
from guard.policy.rules.result import REMOVED, ResultRule
from guard.policy.schema import ATTESTING
from guard.policy.wording import suggestion
from guard.protocols.http.tools import UrlTemplate
from guard.values.patterns import shadowing_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.policy.memory_schema import AuthenticatedByEntry
    from guard.policy.schema import DirectoryEntry, FieldEntry, PolicyFile, ToolEntry
    from guard.policy.yaml_loader import Location

REMEMBERING: Final = frozenset({Role.RECALL, Role.LIST, Role.RETRIEVE})
"""Roles that read a store; every other role writes it."""
_FETCHES: Final = re.compile(
    r"(?<![a-z])(?:fetch|url|uri|http|browse|browser|webpage|page|scrape|crawl|curl|navigate)"
    r"(?:_|$|[^a-z])"
)
"""Words in the name of a tool that opens the page it is given."""
PROBE: Final = {"guard-probe": {"guard-probe": "v"}, "guard-probe-list": [{"guard-probe": "v"}]}
"""Arguments no author thought of: a ``body`` or ``ignore`` path that selects one hides all."""


def lint(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield the problems of the policy that the files make together."""
    yield from _settings(files)
    yield from _memory(files)
    yield from _open_structure(files)
    yield from _unrecorded(files)
    yield from _lists(files)
    yield from _mappings(files)
    yield from _written_directories(files)
    yield from _http_tools(files)
    yield from _rules(files)


def undeclared(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield what loads and vouches for less than its author may think: warnings, no errors."""
    for file in _given(files):
        for place, entry in file.content.mappings():
            for index, field in enumerate(entry.fields):
                if field.who in VOUCHING and field.writer is None:
                    yield _problem(file, (*place, "fields", index), _unwritten(field.who, field))
                if field.who is None and field.declared is Channel.COUNTERPARTY:
                    yield _problem(
                        file,
                        (*place, "fields", index, "label"),
                        f"`label: {_name(field.label)}` of `{field.path}` vouches for no receiver: "
                        "write `as: directory` if only its owner can write it, `as: own_record` if "
                        "it is what this account itself sent or paid, else `as: counterparty`",
                    )
            vouches = any(field.who in VOUCHING for field in entry.fields)
            if entry.source >= Integrity.AUTHENTICATED and not vouches:
                yield _problem(
                    file,
                    (*place, "source"),
                    f"`source: {_name(entry.source)}` vouches for no receiver: declare in `fields` "
                    "what only its owner can write (`as: directory`), or write `source: advisory`",
                )
        for index, listed in enumerate(file.content.directories):
            if listed.writer is None:
                message = _unwritten("directory", listed)
                yield _problem(file, ("directories", index), message)


def _unwritten(who: str, field: FieldEntry | DirectoryEntry) -> str:
    fits = " or ".join(f"`writer: {name}`" for name in sorted(map(str, ATTESTING[who])))
    return (
        f"`{field.path}` has no `writer`, so it vouches for no receiver: write {fits} if nobody "
        "else can cause an entry, else `as: counterparty`"
    )


def open_readers(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield reads whose address an agent may choose without anybody's word: warnings, no errors.

    To read a page is to tell its host which page: whatever is in the URL has left then.
    """
    for file in _given(files):
        if file.content.mode is Mode.MONITOR:
            continue
        for place, entry in file.content.mappings():
            declared = entry.destinations or entry.inert or entry.named_by is not None
            names = [one.text for one in entry.match if _FETCHES.search(one.text.lower())]
            if entry.role is Role.RETRIEVE and names and not declared:
                yield _problem(
                    file,
                    (*place, "role"),
                    f"`{names[0]}` reads like a tool that fetches any URL, and what is in a URL "
                    "leaves with it: make it a `send` with `destinations: [$.url]`, name what "
                    "vouches for its page (`named_by`), or declare its address `inert` and why",
                )


def uncounted(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield selections under which no structure can count: every recall would be asked about."""
    gated = any(file.content.memory is not None for file in files)
    for file in _given(files):
        for number, store in enumerate(file.content.stores):
            if store.selection is None:
                continue
            where = ("stores", number, "selection")
            message = _qualifying(store.selection.authenticated_by, gated=gated)
            if message:
                yield _problem(file, where, message)
            if store.selection.selector is None and store.selection.unreplayable == "untrusted":
                message = (
                    "without `selector` no answer can be replayed, so none vouches for anything; "
                    "where the store has namespaces, `unreplayable: dual_query` asks it twice"
                )
                yield _problem(file, where, message)
            missing = _missing(store.selection.selector)
            if missing:
                message = (
                    f"`{store.selection.selector}` needs {missing}, not installed here: no answer "
                    "is replayed without; pip install 'agent-egress-guard[graph]'"
                )
                yield _problem(file, where, message)
            if not any(read.ranked is not None for read in store.reads):
                message = "no read of this store has `ranked`, so no answer of it is replayed"
                yield _problem(file, where, message)


def unsaturated(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield rules that allow receivers nobody knows although they may be tainted: warnings.

    Where the labels of a principal reached a bound, an unknown receiver may stand in a text that
    was read.  A `provenance` rule asks then; one about the status of destinations does not.
    """
    asking = [
        rule
        for file in files
        for rule in file.rules
        if isinstance(rule, ProvenanceRule) and _asks_about_unknown(rule)
    ]
    for file in _given(files):
        for index, rule in enumerate(file.rules):
            if (
                isinstance(rule, DestinationRule)
                and rule.effect is Action.ALLOW
                and DestinationStatus.EXTERNAL in rule.status
                and (rule.rungs is None or Rung.UNKNOWN in rule.rungs)
                and not any(_covers(one, rule) for one in asking)
            ):
                message = (
                    "it allows receivers that nobody vouches for even where the labels of their "
                    "principal reached a bound, so that they may be tainted; write `type: "
                    "provenance` with `rungs: [..., unknown]`, which asks then"
                )
                yield _problem(file, ("rules", index), message, rule.id)


def _asks_about_unknown(rule: ProvenanceRule) -> bool:
    """Return whether no unknown receiver of its calls passes without a person."""
    restricts = rule.effect in {Action.ASK, Action.BLOCK}
    everywhere = rule.tools is None and rule.kinds is None and rule.mapped is None
    return restricts and everywhere and rule.of == "destinations" and Rung.UNKNOWN in rule.rungs


def _covers(rule: ProvenanceRule, other: DestinationRule) -> bool:
    """Return whether a rule is asked about every call that another one is about."""
    status = rule.status is None or set(other.status) <= set(rule.status)
    roles = rule.roles is None or set(other.roles or Role) <= set(rule.roles)
    return status and roles


def _qualifying(by: AuthenticatedByEntry, *, gated: bool) -> str:
    """Return what is wrong with whom a selection counts, empty where nothing is."""
    if not gated:
        return (
            "no structure counts without a `memory` section: nothing else tells what a write "
            "was made of"
        )
    if by.label > Integrity.ADVISORY and by.sources and SourceType.USER_INPUT not in by.sources:
        return (
            f"nothing of these sources is ever `{_name(by.label)}`, so no structure counts; name "
            "`principals` and write `label: advisory`"
        )
    if by.label > Integrity.ADVISORY:
        return (
            f"with `label: {_name(by.label)}` only structure counts that a user said word for "
            "word or an operator imported: what agents conclude is `advisory`"
        )
    return ""


def _open_structure(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield selections that count the structure of every agent: an attacker's then counts too."""
    for file in _given(files):
        for number, store in enumerate(file.content.stores):
            by = None if store.selection is None else store.selection.authenticated_by
            if by is None or by.principals or by.label > Integrity.ADVISORY:
                continue
            # The conclusions of an agent are advisory, so only the words of a user remain.
            if set(by.sources) != {SourceType.USER_INPUT}:
                yield _problem(
                    file,
                    ("stores", number, "selection", "authenticated_by"),
                    f"`label: {_name(by.label)}` without `principals` counts structure that any "
                    "agent writes, so the selection protects nothing; list the `principals` that "
                    "may write structure, or use `label: authenticated`",
                )


def _unrecorded(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield `propagation` sections under which nothing would be on record: no tool has a store."""
    if any(entry.store for file in files for _, entry in file.content.mappings()):
        return
    for file in files:
        if file.content.propagation is not None:
            message = (
                "no tool has a `store`, so nothing is on record; write `store: NAME` into the "
                "mappings of the memory's tools, or declare it in `stores`"
            )
            yield _problem(file, ("propagation",), message)


def _missing(selector: str | None) -> str:
    """Return the packages of a selector that are not installed, empty where none is missing."""
    from guard.extensions.graph_memory.selectors import discover_selectors

    needed = discover_selectors()[selector].needs if selector is not None else ()
    return ", ".join(name for name in needed if find_spec(name) is None)


def _given(files: Sequence[PolicyFile]) -> Iterator[PolicyFile]:
    """Yield the operator's own files; what they extend was looked at when it was written."""
    return (file for file in files if not file.inherited)


def _name(label: Integrity | None) -> str:
    return label.name.lower() if label is not None else ""


def _problem(
    file: PolicyFile, location: tuple[str | int, ...], message: str, rule: str | None = None
) -> PolicyProblem:
    return PolicyProblem(file.source.path, file.source.line(location), message, rule)


def _settings(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    first = files[0]
    kept: dict[str, object] = {}
    for file in _given(files):
        mode, wanted = file.content.mode, first.content.mode
        if mode is not wanted:
            yield _problem(
                file,
                ("mode",),
                f"mode `{mode}` differs from `{wanted}` of `{first.source.path}`; write the same "
                "in every file (left out, it is `enforce`)",
            )
        for name in ("state", "ask"):
            value = getattr(file.content, name)
            if value is not None and kept.setdefault(name, value) != value:
                message = f"`{name}` differs from that of an earlier file; keep one"
                yield _problem(file, (name,), message)
    yield from _approvals(files)
    yield from _elicited(files)


def _approvals(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """One section says who may answer, and the rules that it names ask."""
    asking = {r.id for f in files for r in f.rules if r.effect is Action.ASK}
    first: PolicyFile | None = None
    for file in files:
        section = file.content.approvals
        if section is None:
            continue
        if first is not None and section != first.content.approvals:
            message = f"`approvals` differs from that of `{first.source.path}`; keep one"
            yield _problem(file, ("approvals",), message)
        first = first or file
        named = section.two_people if isinstance(section.two_people, tuple) else ()
        for index, name in enumerate(named):
            if name not in asking:
                message = f"no rule `{name}` has effect `ask`" + suggestion(name, asking)
                yield _problem(file, ("approvals", "two_people", index), message)


def _elicited(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """The rules whose asks people answer at their clients ask, and a form is not forbidden."""
    asking = {r.id for f in files for r in f.rules if r.effect is Action.ASK}
    own = next((f.content.approvals.own for f in files if f.content.approvals), "refuse")
    for file in _given(files):
        for index, entry in enumerate(file.content.ask.elicit if file.content.ask else ()):
            where = ("ask", "elicit", index)
            if entry.by == "form" and own == "refuse":
                yield _problem(
                    file,
                    (*where, "by"),
                    "by a form somebody approves in his own name; say `approvals: {own: allow}`, "
                    "or `by: url`",
                )
            for number, name in enumerate(entry.rules or ()):
                if name not in asking:
                    message = f"no rule `{name}` has effect `ask`" + suggestion(name, asking)
                    yield _problem(file, (*where, "rules", number), message)


def _memory(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """The gate's settings come from one place; its mappings need tools that save."""
    first: PolicyFile | None = None
    for file in files:
        section = file.content.memory
        if section is None:
            continue
        stated = first.content.memory if first is not None else None
        if first is None or stated is None:
            first = file
        elif not states_settings(section):
            continue
        elif not states_settings(stated):
            first = file
        elif settings_of(section) != settings_of(stated):
            message = f"`memory` differs from that of `{first.source.path}`; write the same in both"
            yield _problem(file, ("memory",), message)
    if first is None:
        return
    yield from _unclassed_saves(files, first)
    # A profile is about one server's tools; another's may have the same names.
    yield from _store_names([file for file in files if not file.server])


def _unclassed_saves(files: Sequence[PolicyFile], first: PolicyFile) -> Iterator[PolicyProblem]:
    """Yield saves whose class nothing tells; the default matrix has one for each with a store."""
    writes = [w for f in files for w in declared_writes(f.content.memory, f.content.stores)]
    claims = [pattern for _, entry, _ in writes for pattern in entry.match]
    is_default = has_default_matrix(first.content.memory)
    saves = [
        (pattern, is_default and (bool(tool.store) or file.content.memory is None))
        for file in files
        # Of a profile, what no entry claims is a write of the highest class.
        if not file.server
        for _, tool in file.content.mappings()
        if tool.role is Role.SAVE
        for pattern in tool.match
    ]
    if not writes and not any(gated for _, gated in saves):
        message = (
            "the memory gate has no write to judge; declare the store in `stores`, or name it as "
            "`store` of each tool that saves"
        )
        yield _problem(first, ("memory", "writes"), message)
        return
    for pattern in (pattern for pattern, gated in saves if not gated):
        if not any(claim.overlaps(pattern) for claim in claims):
            advice = "add one, or name their `store`" if is_default else "add one"
            message = (
                f"tools `{pattern.text}` save, and nothing in `memory.writes` says what class; "
                f"{advice}"
            )
            yield _problem(first, ("memory", "writes"), message)


def _store_names(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield each tool that is in one store for its labels and in another for the memory gate."""
    for declared in (declared_writes, declared_reads):
        claims = [
            (pattern, store, f"{file.source.path}:{file.source.line(place)}")
            for file in files
            for place, entry, store in declared(file.content.memory, file.content.stores)
            for pattern in entry.match
        ]
        for file in files:
            for location, mapping in file.content.mappings():
                for pattern in mapping.match if mapping.store else ():
                    found = ((store, where) for one, store, where in claims if one.covers(pattern))
                    store, where = next(found, ("", ""))
                    if store not in {"", mapping.store}:
                        message = (
                            f"tools `{pattern.text}` are of store `{mapping.store}` here and of "
                            f"`{store}` at {where}; declare the store once, in `stores`"
                        )
                        yield _problem(file, location, message)


def _lists(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    denied = [text for file in files for text in file.content.deny]
    for file in _given(files):
        for name in ("allow", "internal_domains"):
            for index, entry in enumerate(getattr(file.content, name)):
                text = entry if isinstance(entry, str) else entry.to
                by = shadowing_pattern(text, denied)
                if by is not None:
                    yield _problem(
                        file,
                        (name, index),
                        f"`{text}` can never match: `{by}` in `deny` wins; remove one of them",
                    )


@dataclass(frozen=True, slots=True)
class _Claim:
    pattern: ToolPattern
    where: str


def _mappings(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    # One server's mappings hide none of another's, nor of those that hold for every server.
    claims: dict[Location, list[_Claim]] = {}
    for file in _given(files):
        for place, entry in file.content.mappings():
            server = (file.source.path, *place[:2]) if place[0] == "servers" else ()
            earlier = claims.setdefault(server, [])
            for position, pattern in enumerate(entry.match):
                location = (*place, "match", position)
                for message in _claimed(pattern, earlier):
                    yield _problem(file, location, message)
                where = f"{file.source.path}:{file.source.line(location)}"
                earlier.append(_Claim(pattern, where))
            for name, message in _mapping(entry):
                yield _problem(file, (*place, name), message)
            for index, field in enumerate(entry.fields):
                for message in _mistaken(field, entry):
                    yield _problem(file, (*place, "fields", index), message)


def _claimed(pattern: ToolPattern, earlier: Sequence[_Claim]) -> Iterator[str]:
    for claim in earlier:
        if claim.pattern == pattern:
            yield (
                f"pattern `{pattern.text}` is already mapped at {claim.where}, which comes first "
                "and wins; remove one of them"
            )
            return
    for claim in earlier:
        if claim.pattern.covers(pattern):
            yield (
                f"pattern `{pattern.text}` can never match: `{claim.pattern.text}` at "
                f"{claim.where} comes first and claims the same tools; move this mapping before it"
            )
            return


def _mapping(entry: ToolEntry) -> Iterator[tuple[str, str]]:
    memory = {"item": entry.item, "items": entry.items} if entry.store is None else {}
    for name in filter(memory.get, memory):
        yield name, f"`{name}` is about a memory, but `store` is missing; name the memory"
    for path in filter(_hides, (one.path for one in entry.inert)):
        yield "inert", f"`{path}` in `inert` names no argument; name those that are inert"
    if entry.role is not Role.SEND:
        for name in ("reply", "guarded"):
            if getattr(entry, name):
                yield name, f"`{name}` is read of tools with role `send` only; remove it"
        if entry.optional_destinations:
            yield "optional_destinations", "it concerns tools with role `send` only; remove it"
        return
    if not entry.destinations and not entry.reply:
        message = "a mapping with role `send` needs `destinations`, e.g. `destinations: ['$.to']`"
        yield "role", message
    for name in ("body", "ignore"):
        for path in filter(_hides, getattr(entry, name)):
            message = (
                f"`{path}` in `{name}` hides arguments that it does not name, and the "
                "destinations in them; name the arguments"
            )
            yield name, message


def _mistaken(field: FieldEntry, entry: ToolEntry) -> Iterator[str]:
    """Yield the contradictions between a declared field and the cause of its entries."""
    fits = ATTESTING.get(field.who or "", frozenset())
    if field.writer is not None and field.writer not in fits:
        fix = "write `as: counterparty`"
        if field.who == "counterparty":
            fix = "write `as: directory` or `as: own_record`, or leave `writer` out"
        elif field.writer == "service":
            fix = "write `as: own_record` if this account caused it, else `as: counterparty`"
        yield f"`as: {field.who}` does not fit `writer: {field.writer}`: {fix}"
    senders = [w.each + w.sender[1:] for w in (entry.messages, entry.links) if w is not None]
    if field.who in VOUCHING and field.path in senders:
        yield f"`{field.path}` is the sender of messages, an outsider: write `as: counterparty`"


def _written_directories(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield the directories in a store that agents save to: one could enter itself there."""
    writers: dict[str, str] = {}
    stored: list[tuple[ToolPattern, str, str]] = []
    for file in files:
        for patterns, store, server, writes in _stored(file):
            stored += [(pattern, store, server) for pattern in patterns]
            if writes:
                writers.setdefault(store, patterns[0].text)
    for file in files:
        for location, patterns, path in _vouching(file):
            near = {"", file.server_at(location)}
            near_by = [(one, store) for one, store, server in stored if server in near]
            of = {s for one, s in near_by if any(_meets(one, other) for other in patterns)}
            for store in sorted(of & writers.keys()):
                message = (
                    f"`{path}` is a directory in store `{store}`, which `{writers[store]}` writes: "
                    "an agent could enter itself; write `as: counterparty`, or move the directory "
                    "out of the store"
                )
                yield _problem(file, location, message)


def _stored(
    file: PolicyFile,
) -> Iterator[tuple[tuple[ToolPattern, ...], str, str, bool]]:
    """Yield the tools of a file that use a store: patterns, store, server, and if they write it."""
    for place, entry in file.content.mappings():
        if entry.store:
            yield entry.match, entry.store, file.server_at(place), entry.role not in REMEMBERING
    sections = file.content.memory, file.content.stores
    for _, write, store in declared_writes(*sections):
        if store:
            yield write.match, store, file.server, True
    for _, read, store in declared_reads(*sections):
        if store:
            yield read.match, store, file.server, False


def _vouching(file: PolicyFile) -> Iterator[tuple[Location, tuple[ToolPattern, ...], str]]:
    """Yield the attesting fields of a file, each with the tools whose results have it."""
    for place, entry in file.content.mappings():
        for index, field in enumerate(entry.fields):
            if field.declared in VOUCHING:
                yield (*place, "fields", index), entry.match, field.path
    for index, listed in enumerate(file.content.directories):
        if listed.writer is not None:
            yield ("directories", index), (ToolPattern.parse(listed.tool),), listed.path


def _meets(one: ToolPattern, other: ToolPattern) -> bool:
    return one.covers(other) or other.covers(one)


def _hides(path: str) -> bool:
    """Return whether a path selects arguments that no author thought of."""
    return any(True for _ in compile_path(path).find(PROBE))


def _http_tools(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield tools that nothing maps, and requests that would be two tools."""
    patterns = [
        pattern for file in files for _, entry in file.content.mappings() for pattern in entry.match
    ]
    seen: dict[tuple[object, ...], str] = {}
    for file in files:
        for index, entry in enumerate(file.content.http_tools):
            where = ("http_tools", index)
            if not any(pattern.matches(entry.tool) is True for pattern in patterns):
                message = f"no tool mapping claims `{entry.tool}`; say in `tools` what it does"
                yield _problem(file, (*where, "tool"), message)
            template = UrlTemplate.parse(entry.url)
            for method in entry.method:
                key = (method, template.origin, template.shape)
                if key in seen:
                    message = f"`{method}` of this URL is already a tool at {seen[key]}; keep one"
                    yield _problem(file, (*where, "url"), message)
                line = file.source.line((*where, "tool"))
                seen.setdefault(key, f"{file.source.path}:{line}")


def _rules(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    outline = PolicyOutline(
        tuple(
            MappingOutline(
                entry.match,
                entry.role,
                entry.role not in SAVING or bool(entry.destinations),
                entry.private,
                entry.action or "",
            )
            for file in files
            for _, entry in file.content.mappings()
        ),
        frozenset(declared_facts()),
    )
    searching = result_detectors()
    ids: dict[str, str] = {}
    can_allow = False
    for file in files:
        for index, rule in enumerate(file.rules):
            location = ("rules", index)
            if rule.id in ids:
                message = (
                    f"duplicate rule id; it is already at {ids[rule.id]}, and both would be asked: "
                    "rename or remove one (a rule takes the place of one that its file `extends`)"
                )
                yield _problem(file, (*location, "id"), message, rule.id)
            where = file.source.line((*location, "id"))
            ids.setdefault(rule.id, f"{file.source.path}:{where}")
            can_allow = can_allow or rule.effect is Action.ALLOW
            if isinstance(rule, ResultRule):
                for name in sorted(rule.detectors - searching):
                    yield _problem(file, (*location, "finds"), _unknown_detector(name), rule.id)
            if file.inherited or file.is_base:
                continue  # One that no tool here concerns waits for those that others map.
            for message in (*rule.filter_problems(outline), *rule.problems(outline)):
                yield _problem(file, location, message, rule.id)
    yield from _whole(files, can_allow=can_allow)


def _unknown_detector(name: str) -> str:
    removed = (
        "the reader of that name was removed: use `instruction_patterns`, or run `guard policy "
        "migrate`"
        if name == REMOVED
        else "use one that `guard detectors list` shows"
    )
    return (
        f"unknown detector `{name}`; {removed}, or add a classifier: `pip install "
        f"'agent-egress-guard[detectors]'`, then `guard detectors add PATH --name {name}`"
    )


def _whole(files: Sequence[PolicyFile], *, can_allow: bool) -> Iterator[PolicyProblem]:
    last = files[-1]
    if all(file.is_base for file in files):
        return  # Others extend it; alone it blocks what none of its rules match.
    if not any(file.rules for file in files):
        yield _problem(last, ("rules",), "the policy has no rule, so it would block every call")
    elif not can_allow and last.content.mode is not Mode.MONITOR:
        message = "no rule has effect `allow`, so the policy would block every call; add one"
        yield _problem(last, ("rules",), message)
