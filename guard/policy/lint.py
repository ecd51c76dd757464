"""Errors of policies whose fields are all valid: duplicates, shadowed entries, dead rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.calls import SAVING
from guard.core.labels import VOUCHING
from guard.core.model import READING, Role
from guard.core.policy import Action, Mode
from guard.core.tool_patterns import ToolPattern
from guard.detectors import declared_facts
from guard.policy.detector_manifest import result_detectors
from guard.policy.field_types import Location, suggestion
from guard.policy.memory_schema import (
    declared_reads,
    declared_writes,
    has_default_matrix,
    settings_of,
    states_settings,
)
from guard.policy.rules.base import MappingOutline, PolicyOutline
from guard.policy.rules.content import REMOVED, ResultRule
from guard.policy.schema import ATTESTING, FieldEntry, PolicyFile, ToolEntry, own_files, tools_of
from guard.protocols.http.tools import UrlTemplate
from guard.values.patterns import shadowing_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guard.core.errors import PolicyProblem
    from guard.core.mappings import PathQuery

PROBE: Final = {"guard-probe": {"guard-probe": "v"}, "guard-probe-list": [{"guard-probe": "v"}]}
"""Arguments no author thought of: a ``body`` or ``ignore`` path that selects one hides all."""


def lint(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield the errors of the policy that the files make together."""
    yield from _settings(files)
    yield from _asking_rules(files)
    yield from _memory(files)
    yield from _selections_and_records(files)
    yield from _lists(files)
    yield from _mappings(files)
    yield from _written_directories(files)
    yield from _http_tools(files)
    yield from _services(files)
    yield from _rules(files)


def _settings(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield sections that differ from those of an earlier file."""
    first = files[0]
    kept: dict[str, PolicyFile] = {}
    for file in own_files(files):
        mode, wanted = file.content.mode, first.content.mode
        if mode is not wanted:
            yield file.problem(
                ("mode",),
                f"mode `{mode}` differs from `{wanted}` of `{first.source.path}`; write the same "
                "in every file (left out, it is `enforce`)",
            )
        for name in ("state", "ask", "approvals"):
            value = getattr(file.content, name)
            if value is None:
                continue
            other = kept.setdefault(name, file)
            if getattr(other.content, name) != value:
                yield file.problem(
                    (name,), f"`{name}` differs from that of `{other.source.path}`; keep one"
                )


def _asking_rules(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield sections about questions that name rules which do not ask, and a forbidden form."""
    asking = {r.id for f in files for r in f.rules if r.effect is Action.ASK}
    own = next((f.content.approvals.own for f in files if f.content.approvals), "refuse")
    for file in own_files(files):
        named: list[tuple[Location, Sequence[str]]] = []
        approvals, ask = file.content.approvals, file.content.ask
        if approvals is not None and isinstance(approvals.two_people, tuple):
            named.append((("approvals", "two_people"), approvals.two_people))
        for index, entry in enumerate(ask.elicit if ask is not None else ()):
            named.append((("ask", "elicit", index, "rules"), entry.rules or ()))
            if entry.by == "form" and own == "refuse":
                yield file.problem(
                    ("ask", "elicit", index, "by"),
                    "by a form somebody approves in his own name; say `approvals: {own: allow}`, "
                    "or `by: url`",
                )
        for where, names in named:
            for index, name in enumerate(names):
                if name not in asking:
                    hint = suggestion(name, asking)
                    yield file.problem((*where, index), f"no rule `{name}` has effect `ask`{hint}")


def _memory(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield settings of the gate that differ, and writes and reads that are not of one store."""
    gated = [(file, file.content.memory) for file in files if file.content.memory is not None]
    if not gated:
        return
    first, stated = next((one for one in gated if states_settings(one[1])), gated[0])
    for file, section in gated:
        if states_settings(section) and settings_of(section) != settings_of(stated):
            yield file.problem(
                ("memory",),
                f"`memory` differs from that of `{first.source.path}`; write the same in both",
            )
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
        # In a profile, a save without an entry is a write of the highest class.
        if not file.server
        for _, tool in file.content.mappings()
        if tool.role is Role.SAVE
        for pattern in tool.match
    ]
    if not writes and not any(gated for _, gated in saves):
        yield first.problem(
            ("memory", "writes"),
            "the memory gate has no write to judge; declare the store in `stores`, or name it as "
            "`store` of each tool that saves",
        )
        return
    for pattern in (pattern for pattern, gated in saves if not gated):
        if not any(claim.overlaps(pattern) for claim in claims):
            advice = "add one, or name their `store`" if is_default else "add one"
            yield first.problem(
                ("memory", "writes"),
                f"tools `{pattern.text}` save, and nothing in `memory.writes` says what class; "
                f"{advice}",
            )


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
                        yield file.problem(
                            location,
                            f"tools `{pattern.text}` are of store `{mapping.store}` here and of "
                            f"`{store}` at {where}; declare the store once, in `stores`",
                        )


def _selections_and_records(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield selections that count the structure of every agent, and records of nothing.

    Where every agent counts, an attacker's structure counts too.
    """
    for file in own_files(files):
        for number, store in enumerate(file.content.stores):
            by = None if store.selection is None else store.selection.authenticated_by
            # The conclusions of an agent are advisory, so only the words of a user remain.
            if by is not None and by.counts_everybody:
                yield file.problem(
                    ("stores", number, "selection", "authenticated_by"),
                    f"`label: {by.label.name.lower()}` without `principals` counts structure that "
                    "any agent writes, so the selection protects nothing; list the `principals` "
                    "that may write structure, or use `label: authenticated`",
                )
    if not any(entry.store for _, _, entry in tools_of(files)):
        for file in files:
            if file.content.propagation is not None:
                yield file.problem(
                    ("propagation",),
                    "no tool has a `store`, so nothing is on record; write `store: NAME` into the "
                    "mappings of the memory's tools, or declare it in `stores`",
                )


def _lists(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    denied = [text for file in files for text in file.content.deny]
    for file in own_files(files):
        for name in ("allow", "internal_domains"):
            for index, entry in enumerate(getattr(file.content, name)):
                text = entry if isinstance(entry, str) else entry.to
                by = shadowing_pattern(text, denied)
                if by is not None:
                    yield file.problem(
                        (name, index),
                        f"`{text}` can never match: `{by}` in `deny` wins; remove one of them",
                    )


def _mappings(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    # One server's mappings hide none of another's, nor of those that hold for every server.
    claims: dict[Location, list[tuple[ToolPattern, str]]] = {}
    for file, place, entry in tools_of(own_files(files)):
        server = (file.source.path, *place[:2]) if place[0] == "servers" else ()
        earlier = claims.setdefault(server, [])
        for position, pattern in enumerate(entry.match):
            location = (*place, "match", position)
            if message := _claimed(pattern, earlier):
                yield file.problem(location, message)
            earlier.append((pattern, f"{file.source.path}:{file.source.line(location)}"))
        for name, message in _mapping(entry):
            yield file.problem((*place, name), message)
        for index, field in enumerate(entry.fields):
            for message in _mistaken(field, entry):
                yield file.problem((*place, "fields", index), message)


def _claimed(pattern: ToolPattern, earlier: Sequence[tuple[ToolPattern, str]]) -> str:
    """Return why a pattern claims no tool; empty where it may claim one."""
    for other, where in earlier:
        if other == pattern:
            return (
                f"pattern `{pattern.text}` is already mapped at {where}, which comes first "
                "and wins; remove one of them"
            )
    for other, where in earlier:
        if other.covers(pattern):
            return (
                f"pattern `{pattern.text}` can never match: `{other.text}` at {where} comes first "
                "and claims the same tools; move this mapping before it"
            )
    return ""


def _mapping(entry: ToolEntry) -> Iterator[tuple[str, str]]:
    memory = {"item": entry.item, "items": entry.items} if entry.store is None else {}
    for name in filter(memory.get, memory):
        yield name, f"`{name}` is about a memory, but `store` is missing; name the memory"
    for path in _hiding(one.path for one in entry.inert):
        yield "inert", f"`{path}` in `inert` names no argument; name those that are inert"
    if entry.role is not Role.SEND:
        for name in ("reply", "guarded", "optional_destinations"):
            if getattr(entry, name):
                yield name, f"`{name}` concerns tools with role `send` only; remove it"
        return
    if not entry.destinations and not entry.reply:
        yield (
            "role",
            "a mapping with role `send` needs `destinations`, e.g. `destinations: ['$.to']`",
        )
    for name in ("body", "ignore"):
        for path in _hiding(getattr(entry, name)):
            yield (
                name,
                (
                    f"`{path}` in `{name}` hides arguments that it does not name, and the "
                    "destinations in them; name the arguments"
                ),
            )


def _hiding(paths: Iterable[PathQuery]) -> Iterator[str]:
    """Yield the paths that select arguments which no author thought of."""
    return (path.text for path in paths if any(True for _ in path.find(PROBE)))


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
    senders = [
        w.each.text + w.sender.text[1:] for w in (entry.messages, entry.links) if w is not None
    ]
    if field.who in VOUCHING and field.path.text in senders:
        path = field.path.text
        yield f"`{path}` is the sender of messages, an outsider: write `as: counterparty`"


def _written_directories(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield the directories in a store that agents save to: one could enter itself there."""
    uses = [use for file in files for use in _store_uses(file) if use[1]]
    writers: dict[str, str] = {}
    for patterns, store, _, writes in uses:
        if writes:
            writers.setdefault(store, patterns[0].text)
    for file in files:
        for location, own, path in _vouching(file):
            near = {"", file.server_at(location)}
            stores = {
                store
                for patterns, store, server, _ in uses
                if server in near and any(a.covers(b) or b.covers(a) for a in patterns for b in own)
            }
            for store in sorted(stores & writers.keys()):
                yield file.problem(
                    location,
                    f"`{path}` is a directory in store `{store}`, which `{writers[store]}` writes: "
                    "an agent could enter itself; write `as: counterparty`, or move the directory "
                    "out of the store",
                )


def _store_uses(file: PolicyFile) -> Iterator[tuple[tuple[ToolPattern, ...], str, str, bool]]:
    """Yield the tools of a file that may use a store: patterns, store, server, whether they write.

    The store is empty where none is named.
    """
    for place, entry in file.content.mappings():
        writes = entry.role not in READING
        yield entry.match, entry.store or "", file.server_at(place), writes
    sections = file.content.memory, file.content.stores
    for _, write, store in declared_writes(*sections):
        yield write.match, store, file.server, True
    for _, read, store in declared_reads(*sections):
        yield read.match, store, file.server, False


def _vouching(file: PolicyFile) -> Iterator[tuple[Location, tuple[ToolPattern, ...], str]]:
    """Yield the attesting fields of a file, each with the tools whose results have it."""
    for place, entry in file.content.mappings():
        for index, field in enumerate(entry.fields):
            if field.declared in VOUCHING:
                yield (*place, "fields", index), entry.match, field.path.text
    for index, listed in enumerate(file.content.directories):
        if listed.writer is not None:
            yield ("directories", index), (ToolPattern.parse(listed.tool),), listed.path.text


def _http_tools(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield tools that nothing maps, and requests that would be two tools."""
    patterns = [pattern for _, _, entry in tools_of(files) for pattern in entry.match]
    seen: dict[tuple[object, ...], str] = {}
    for file in files:
        for index, entry in enumerate(file.content.http_tools):
            where = ("http_tools", index)
            if not any(pattern.matches(entry.tool) is True for pattern in patterns):
                yield file.problem(
                    (*where, "tool"),
                    f"no tool mapping claims `{entry.tool}`; say in `tools` what it does",
                )
            template = UrlTemplate.parse(entry.url)
            for method in entry.method:
                key = (method, template.origin, template.shape)
                if key in seen:
                    yield file.problem(
                        (*where, "url"),
                        f"`{method}` of this URL is already a tool at {seen[key]}; keep one",
                    )
                line = file.source.line((*where, "tool"))
                seen.setdefault(key, f"{file.source.path}:{line}")


def _services(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield each name in `for` that is not a service and no server of the policy."""
    known = {entry.service or "" for _, _, entry in tools_of(files)}
    for file in files:
        known |= {file.content.service or "", *(server.name for server in file.content.servers)}
    for file, place, entry in tools_of(files):
        for index, field in enumerate(entry.fields):
            for name in field.serves:
                if name not in known:
                    yield file.problem(
                        (*place, "fields", index, "for"),
                        f"no tool is of a service or server `{name}`{suggestion(name, known)}",
                    )


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
            for _, _, entry in tools_of(files)
        ),
        frozenset(declared_facts()),
    )
    searching = result_detectors()
    ids: dict[str, str] = {}
    for file in files:
        for index, rule in enumerate(file.rules):
            location = ("rules", index)
            if rule.id in ids:
                yield file.problem(
                    (*location, "id"),
                    f"duplicate rule id; it is already at {ids[rule.id]}, and both would be asked: "
                    "rename or remove one (a rule takes the place of one that its file `extends`)",
                    rule.id,
                )
            line = file.source.line((*location, "id"))
            ids.setdefault(rule.id, f"{file.source.path}:{line}")
            if isinstance(rule, ResultRule):
                for name in sorted(rule.detectors - searching):
                    yield file.problem((*location, "finds"), _unknown_detector(name), rule.id)
            if file.inherited or file.is_base:
                continue  # One that no tool here concerns waits for those that others map.
            for message in (*rule.filter_problems(outline), *rule.problems(outline)):
                yield file.problem(location, message, rule.id)
    yield from _no_allowance(files)


def _no_allowance(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield a policy that would block every call."""
    last = files[-1]
    effects = {rule.effect for file in files for rule in file.rules}
    if all(file.is_base for file in files):
        return  # Others extend it; alone it blocks what none of its rules match.
    if not effects:
        yield last.problem(("rules",), "the policy has no rule, so it would block every call")
    elif Action.ALLOW not in effects and last.content.mode is not Mode.MONITOR:
        yield last.problem(
            ("rules",), "no rule has effect `allow`, so the policy would block every call; add one"
        )


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
