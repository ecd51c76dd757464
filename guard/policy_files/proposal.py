"""A policy proposed from the tools that servers list: roles by name, destinations by schema.  Pure.

Guesses, and meant to be read: a tool of which the name does not say what it does stays unmapped, so
that it is asked about, and one that sends to nobody that can be found stays unmapped as well.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from guard.core.model import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.model import Json

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TOOL: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MEMORY: Final = _set(
    "memory memories fact facts node nodes entity entities relation relations graph observation "
    "observations knowledge"
)
_SENDS: Final = _set(
    "send post publish share upload notify reply forward invite tweet submit push export transfer "
    "pay email mail message call webhook request fetch download crawl browse"
)
_WRITES: Final = _set("save remember store add create update delete remove forget write append")
_READS: Final = _set(
    "read get list search find query recall open lookup show describe count view retrieve"
)
_PEOPLE: Final = _set("to cc bcc recipient recipients email emails address addresses")
_PLACES: Final = _set("url uri urls webhook endpoint host hostname domain link")
_HANDLES: Final = _set("channel chat user phone number account room destination")
_BODY: Final = _set("body text message content subject title html caption comment")


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as a server lists it."""

    name: str
    properties: Mapping[str, Json]
    """The ``properties`` of its input schema."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What a tool seems to do."""

    tool: str
    role: Role | None
    """None: it stays unmapped."""
    people: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    handles: tuple[str, ...] = ()
    """Names of arguments: mail addresses, URLs or hosts, and other names of receivers."""
    body: tuple[str, ...] = ()

    @property
    def destinations(self) -> tuple[str, ...]:
        """Names of every argument that names a receiver."""
        return (*self.people, *self.places, *self.handles)


def guess(tool: ListedTool) -> Guess:
    """Return what a tool seems to do."""
    words = _words(tool.name)
    kinds = {name: _kind(name, schema) for name, schema in tool.properties.items()}
    found = {
        kind: tuple(name for name, its in kinds.items() if its == kind)
        for kind in ("people", "places", "handles", "body")
    }
    receivers = bool(found["people"] or found["places"] or found["handles"])
    role = _role(words, receivers=receivers, places=bool(found["places"]))
    if role not in {Role.SEND, Role.DRAFT}:
        return Guess(tool.name, role)
    return Guess(tool.name, role, **found)


def _role(words: frozenset[str], *, receivers: bool, places: bool) -> Role | None:
    reads = bool(words & _READS)
    if "draft" in words:
        return Role.DRAFT
    # To ask a host of the caller's choosing is to send to it.
    if (words & _SENDS and not reads) or (places and not words & _WRITES):
        return Role.SEND if receivers else None
    if words & _MEMORY or words & {"remember", "recall"}:
        if words & _WRITES:
            return Role.SAVE
        return Role.LIST if {"list", "all"} <= words else Role.RECALL
    return Role.RETRIEVE if reads and not words & (_WRITES | _SENDS) else None


def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name))


def _kind(name: str, schema: Json) -> str:
    items = schema.get("items") if isinstance(schema, dict) else None
    formats = {one.get("format") for one in (schema, items) if isinstance(one, dict)}
    words = _words(name)
    if formats & {"email", "idn-email"} or words & _PEOPLE:
        return "people"
    if formats & {"uri", "url", "hostname", "iri"} or words & _PLACES:
        return "places"
    if words & _HANDLES:
        return "handles"
    return "body" if words & _BODY else ""


def usable(tools: Sequence[ListedTool]) -> tuple[list[ListedTool], list[str]]:
    """Return the tools whose names can stand in a policy, once each, and the other names."""
    kept: dict[str, ListedTool] = {}
    odd: list[str] = []
    for tool in tools:
        if _TOOL.fullmatch(tool.name):
            kept.setdefault(tool.name, tool)
        else:
            odd.append(tool.name)
    return list(kept.values()), odd


def policy_text(name: str, domain: str, guesses: Sequence[Guess]) -> str:
    """Return a commented policy file."""
    return "\n".join([*_head(name, domain), *_mappings(guesses), *_RULES, ""])


def _head(name: str, domain: str) -> Iterator[str]:
    yield "# Proposed by `guard init` from the tools' names and schemas.  Read every line: a role"
    yield "# that is wrong here is wrong for every call."
    yield "# Then: `guard policy check`, `guard policy test`."
    yield "version: 1"
    yield f"name: {json.dumps(name)}"
    yield "mode: enforce"
    yield ""
    yield "# Yours; everything else is external.  A name alone does not include what is below it."
    yield f"internal_domains: [{json.dumps(domain)}]"
    yield "# Who outside may receive data: alice@partner.example, https://api.partner.example/v1/"
    yield "allow: []"
    yield "deny: []"
    yield ""
    yield "tools:"


def _mappings(guesses: Sequence[Guess]) -> Iterator[str]:
    unmapped = [one.tool for one in guesses if one.role is None]
    for role in Role:
        same = [one for one in guesses if one.role is role]
        if same and role in {Role.SEND, Role.DRAFT}:
            yield f"  # {_MEANING[role]}"
            for one in same:
                yield f"  - match: {json.dumps([one.tool])}"
                yield f"    role: {role.value}"
                if one.destinations:
                    yield f"    destinations: {_paths(one.destinations)}"
                if one.body:
                    yield f"    body: {_paths(one.body)}"
        elif same:
            yield f"  # {_MEANING[role]}"
            yield f"  - match: {json.dumps([one.tool for one in same])}"
            yield f"    role: {role.value}"
    yield "  # Requests that are no tool call, and tunnels whose TLS is not opened."
    yield "  - match: [http.request, http.connect]"
    yield "    role: send"
    yield '    destinations: ["$.url"]'
    yield '    ignore: ["$.method", "$.host", "$.content_type"]'
    if unmapped:
        yield "  # Not mapped, so each call is asked about.  Say what they do, or leave them out:"
        for tool in unmapped:
            yield f"  #   {tool}"


def _paths(names: Sequence[str]) -> str:
    return json.dumps([_path(name) for name in names])


def _path(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return f"$.{name}"
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"$['{escaped}']"


_MEANING: Final = {
    Role.RECALL: "Reads memory: what is sent afterwards may have come from there.",
    Role.LIST: "Reads all of memory.",
    Role.SAVE: "Writes memory, which later sessions act on.",
    Role.DRAFT: "Prepares a message; nothing leaves.",
    Role.SEND: "Lets data out.  The arguments named here are the receivers.",
    Role.RETRIEVE: "Reads from somewhere; what it returns counts as untrusted.",
    Role.OTHER: "Neither.",
}
_RULES: Final = (
    "",
    "rules:",
    "  - {id: block-denied, type: destination, status: [denied], effect: block}",
    "  # A send whose receivers are not all known waits for nobody: it is refused.",
    "  - id: block-unknown",
    "    type: destination",
    "    roles: [send]",
    "    status: [malformed, missing, external]",
    "    effect: block",
    "    remedy: send to an internal address, or ask the operator to allow this receiver",
    "  - id: ask-unmapped",
    "    type: tool",
    "    mapped: false",
    "    effect: ask",
    "    remedy: ask the operator to map this tool in the policy",
    "  - id: known",
    "    type: destination",
    "    roles: [send]",
    "    status: [internal, allowed]",
    "    effect: allow",
    "  - id: other-work",
    "    type: tool",
    "    mapped: true",
    "    roles: [recall, list, save, draft, retrieve, other]",
    "    effect: allow",
)


def suite_text(domain: str, guesses: Sequence[Guess]) -> str:
    """Return the test file beside the policy."""
    lines = [
        "# What the policy decides, tool by tool.  Run with `guard policy test`.",
        "version: 1",
        "tests:",
    ]
    for one in guesses:
        for title, arguments, verdict, reason in _cases(one, domain):
            lines += [f"  - name: {json.dumps(f'{one.tool}: {title}')}", "    call:"]
            lines += [f"      tool: {json.dumps(one.tool)}"]
            lines += [f"      arguments: {json.dumps(arguments)}"]
            lines += [f"    verdict: {verdict}", f"    reasons: [{reason}]"]
    return "\n".join([*lines, ""])


def _cases(one: Guess, domain: str) -> Iterator[tuple[str, dict[str, Any], str, str]]:
    if one.role is None:
        yield "nobody has said what it does", {}, "ask", "ask-unmapped"
    elif one.role is not Role.SEND:
        yield "is everyday work", {}, "allow", "other-work"
    else:
        inside = dict.fromkeys(one.people, f"team@{domain}")
        inside |= dict.fromkeys(one.places, f"https://{domain}/")
        first = one.destinations[0]
        stranger = "https://stranger.test/" if first in one.places else "x@stranger.test"
        if inside and not one.handles:
            yield "to ourselves goes out", inside, "allow", "known"
        yield "to a stranger does not", {**inside, first: stranger}, "block", "block-unknown"
        yield "to nobody does not", {}, "block", "block-unknown"
