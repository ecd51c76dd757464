"""Warnings about policies: what loads, and does less, or allows more, than its author may think."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from guard.core.labels import VOUCHING, Channel, Rung
from guard.core.memory import SourceType
from guard.core.model import READING, DestinationStatus, Integrity, Role
from guard.core.policy import Action, Mode
from guard.policy.field_types import suggestion
from guard.policy.memory_schema import AuthenticatedByEntry, SelectionEntry, declared_reads
from guard.policy.proposal import GRAVE, suggested_action
from guard.policy.rules.provenance import ProvenanceRule
from guard.policy.rules.tool import DestinationRule
from guard.policy.schema import (
    ATTESTING,
    DirectoryEntry,
    FieldEntry,
    PolicyFile,
    own_files,
    tools_of,
)
from guard.policy.vocabulary import public_mail_providers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.errors import PolicyProblem
    from guard.core.mappings import ResultField, ToolMapping
    from guard.core.tool_patterns import ToolPattern
    from guard.policy.rules.base import RuleConfig

_FETCHES: Final = re.compile(
    r"(?<![a-z])(?:fetch|url|uri|http|browse|browser|webpage|page|scrape|crawl|curl|navigate)"
    r"(?:_|$|[^a-z])"
)
"""Words in the name of a tool that opens the page it is given."""
_RECORDED: Final = frozenset({Rung.REPLY, Rung.REMEMBERED, Rung.CLAIMED, Rung.TAINTED})
"""Rungs of values that some result or memory has told."""
_NEAR: Final = 0.8
"""Similarity of two names, of 1, from which one may be a slip for the other."""


def warnings(
    files: Sequence[PolicyFile], tools: Sequence[ToolMapping]
) -> tuple[PolicyProblem, ...]:
    """Return the warnings about the operator's own files.

    What they extend was looked at when it was written.

    Args:
        files: all files of the policy.
        tools: their mappings, compiled, in the order of :func:`tools_of`.
    """
    return (
        *_undeclared(files),
        *_open_readers(files),
        *_uncounted(files),
        *_unsaturated(files),
        *_unserved(files, tools),
        *_unseen_actions(files),
        *_unrecorded(files),
        *_idle_rules(files),
        *_public_domains(files),
    )


def _undeclared(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield what vouches for less than its author may think."""
    for file, place, entry in tools_of(own_files(files)):
        for index, field in enumerate(entry.fields):
            where = (*place, "fields", index)
            if field.who in VOUCHING and field.writer is None:
                yield file.problem(where, _unwritten(field.who, field))
            if field.who is None and field.declared is Channel.COUNTERPARTY:
                yield file.problem(
                    (*where, "label"),
                    f"`label: {_name(field.label)}` of `{field.path.text}` vouches for no "
                    "receiver: write `as: directory` if only its owner can write it, `as: "
                    "own_record` if it is what this account itself sent or paid, else `as: "
                    "counterparty`",
                )
        vouches = any(field.who in VOUCHING for field in entry.fields)
        if entry.source >= Integrity.AUTHENTICATED and not vouches:
            yield file.problem(
                (*place, "source"),
                f"`source: {_name(entry.source)}` vouches for no receiver: declare in `fields` "
                "what only its owner can write (`as: directory`), or write `source: advisory`",
            )
    for file in own_files(files):
        for index, listed in enumerate(file.content.directories):
            if listed.writer is None:
                yield file.problem(("directories", index), _unwritten("directory", listed))


def _unwritten(who: str, field: FieldEntry | DirectoryEntry) -> str:
    fits = " or ".join(f"`writer: {name}`" for name in sorted(map(str, ATTESTING[who])))
    return (
        f"`{field.path.text}` has no `writer`, so it vouches for no receiver: write {fits} if "
        "nobody else can cause an entry, else `as: counterparty`"
    )


def _name(label: Integrity | None) -> str:
    return label.name.lower() if label is not None else ""


def _open_readers(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield reads whose address an agent may choose without anybody's word.

    To read a page is to tell its host which page: whatever is in the URL has left then.
    """
    for file, place, entry in tools_of(own_files(files)):
        declared = entry.destinations or entry.inert or entry.named_by is not None
        names = [one.text for one in entry.match if _FETCHES.search(one.text.lower())]
        is_open = entry.role is Role.RETRIEVE and names and not declared
        if is_open and file.content.mode is not Mode.MONITOR:
            yield file.problem(
                (*place, "role"),
                f"`{names[0]}` reads like a tool that fetches any URL, and what is in a URL "
                "leaves with it: make it a `send` with `destinations: [$.url]`, name what "
                "vouches for its page (`named_by`), or declare its address `inert` and why",
            )


def _uncounted(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield selections under which no structure can count: every recall would be asked about."""
    gated = any(file.content.memory is not None for file in files)
    for file in own_files(files):
        for number, store in enumerate(file.content.stores):
            if store.selection is None:
                continue
            for message in _useless(store.selection, gated=gated):
                yield file.problem(("stores", number, "selection"), message)
            if not any(read.ranked is not None for read in store.reads):
                yield file.problem(
                    ("stores", number, "selection"),
                    "no read of this store has `ranked`, so no answer of it is replayed",
                )


def _useless(entry: SelectionEntry, *, gated: bool) -> Iterator[str]:
    """Yield why no answer of a selection vouches for anything."""
    if message := _qualifying(entry.authenticated_by, gated=gated):
        yield message
    if entry.selector is None:
        if entry.unreplayable == "untrusted":
            yield (
                "without `selector` no answer can be replayed, so none vouches for anything; "
                "where the store has namespaces, `unreplayable: dual_query` asks it twice"
            )
        return
    from guard.extensions.graph_memory.selectors import discover_selectors

    needed = discover_selectors()[entry.selector].needs
    if missing := ", ".join(name for name in needed if find_spec(name) is None):
        yield (
            f"`{entry.selector}` needs {missing}, not installed here: no answer is replayed "
            "without; pip install 'agent-egress-guard[graph]'"
        )


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


def _unsaturated(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield rules that allow receivers nobody knows although they may be tainted.

    Where the labels of a principal reached a bound, an unknown receiver may stand in a text that
    was read.  A `provenance` rule asks then; one about the status of destinations does not.
    """
    asking = [
        rule
        for file in files
        for rule in file.rules
        if isinstance(rule, ProvenanceRule) and _asks_about_unknown(rule)
    ]
    for file in own_files(files):
        for index, rule in enumerate(file.rules):
            if (
                isinstance(rule, DestinationRule)
                and rule.effect is Action.ALLOW
                and DestinationStatus.EXTERNAL in rule.status
                and (rule.rungs is None or Rung.UNKNOWN in rule.rungs)
                and not any(_covers(one, rule) for one in asking)
            ):
                yield file.problem(
                    ("rules", index),
                    "it allows receivers that nobody vouches for even where the labels of their "
                    "principal reached a bound, so that they may be tainted; write `type: "
                    "provenance` with `rungs: [..., unknown]`, which asks then",
                    rule.id,
                )


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


def _unserved(files: Sequence[PolicyFile], tools: Sequence[ToolMapping]) -> Iterator[PolicyProblem]:
    """Yield directories of handles that no send of their service can use.

    A directory of a service that the policy does not name is as well, where it is not the only one.
    """
    sends = {(one.server, one.service) for one in tools if one.role is Role.SEND}
    nameless = [one for one in tools if not (one.server or one.service) and _holds_handles(one)]
    for (file, place, _), mapping in zip(tools_of(files), tools, strict=True):
        if file.inherited or not _holds_handles(mapping):
            continue
        about = f"`{mapping.pattern}` holds accounts, channels or other ids"
        if sends and (mapping.server, mapping.service) not in sends:
            yield file.problem(
                (*place, "fields"),
                f"{about} for which no send of its own service is mapped: name the services that "
                "take them in `for`, or say `kinds` without `handle`",
            )
        elif mapping in nameless and len(nameless) > 1:
            yield file.problem(
                (*place, "fields"),
                f"{about} of no named service: they may receive in every send of its server; "
                "write `service: NAME`",
            )


def _holds_handles(mapping: ToolMapping) -> bool:
    return any(map(_is_bound, mapping.fields))


def _is_bound(field: ResultField) -> bool:
    """Return whether a field vouches for handles in its own service alone."""
    of_handles = not field.kinds or "handle" in field.kinds
    return field.channel in VOUCHING and of_handles and not field.serves


def _unseen_actions(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield tools whose name says that they change something, without an action.

    A rule of type ``action`` concerns declared actions only.
    """
    if not any(rule.reads_actions for file in files for rule in file.rules):
        return
    for file, place, entry in tools_of(own_files(files)):
        changes = entry.role in {Role.SEND, Role.OTHER, Role.SAVE}
        for pattern in entry.match if changes and entry.action is None else ():
            action = suggested_action(pattern.text)
            if action in GRAVE:
                yield file.problem(
                    (*place, "match"),
                    f"`{pattern.text}` reads like a tool that changes something, and no rule "
                    f"of type `action` sees it: write `action: {action}`, or the one that fits",
                )


def _unrecorded(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield what needs values of results where no mapping has results.

    Values are recorded from the results of tools that read, and from memory.
    """
    if (
        any(entry.role in READING for _, _, entry in tools_of(files))
        or any([*declared_reads(file.content.memory, file.content.stores)] for file in files)
        or all(file.is_base for file in files)
    ):
        return
    fix = (
        "no tool has results to record; map the tools that read (`role: retrieve`, `recall` or "
        "`list`)"
    )
    for file in own_files(files):
        for index, rule in enumerate(file.rules):
            guards = isinstance(rule, ProvenanceRule) and rule.of == "guarded"
            if guards and _RECORDED.issuperset(rule.rungs or ()):
                yield file.problem(("rules", index), f"the rule can never apply: {fix}", rule.id)
    if any(rule.reads_actions for file in files for rule in file.rules):
        for file, place, entry in tools_of(own_files(files)):
            if entry.object:
                yield file.problem((*place, "object"), f"`object` can never be tainted: {fix}")


def _idle_rules(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield rules and mappings without an effect."""
    rules = [rule for file in files for rule in file.rules]
    patterns = [one for _, _, entry in tools_of(files) for one in entry.match]
    pins = {name for file in files for server in file.content.servers for name in server.pins or {}}
    for file in own_files(files):
        for index, rule in enumerate(file.rules):
            for message in _unmatched(rule, patterns, pins):
                yield file.problem(("rules", index), message, rule.id)
        if rules and file.content.mode is not Mode.MONITOR:
            yield from _never_allowed(file, rules)


def _unmatched(rule: RuleConfig, patterns: Sequence[ToolPattern], pins: set[str]) -> Iterator[str]:
    """Yield the names of a rule that no tool of the policy has."""
    given = rule.tools or () if rule.mapped is not False else ()
    idle = [
        one
        for one in given
        if not any(map(one.matches, pins)) and not any(map(one.overlaps, patterns))
    ]
    names = {one.text for one in patterns if one.is_literal} | pins
    for pattern in idle:
        hint = suggestion(pattern.text, names, cutoff=_NEAR)
        # A rule may name tools before they are there; a near name is a slip.
        if hint or (len(idle) == len(given) and pattern is idle[0]):
            yield f"no mapped or pinned tool is called `{pattern.text}`{hint}"


def _never_allowed(file: PolicyFile, rules: Sequence[RuleConfig]) -> Iterator[PolicyProblem]:
    """Yield the mappings whose role no rule lets through: every call is blocked."""
    passing = [rule for rule in rules if rule.effect is not Action.BLOCK]
    if any(rule.roles is None and rule.mapped is not False for rule in passing):
        return
    known = {role for rule in passing if rule.mapped is not False for role in rule.roles or ()}
    for place, entry in file.content.mappings():
        if entry.role not in known:
            yield file.problem(
                (*place, "role"),
                f"no rule allows or asks about role `{entry.role}`, so each call of "
                f"`{entry.match[0].text}` is blocked; add one",
            )


def _public_domains(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield the internal domains of mail providers at which anybody can have a mailbox."""
    for file in own_files(files):
        for index, domain in enumerate(file.content.internal_domains):
            if domain.removeprefix("*.").lower() in public_mail_providers():
                yield file.problem(
                    ("internal_domains", index),
                    f"anybody can have a mailbox at `{domain}`: list your own addresses in `allow`",
                )
