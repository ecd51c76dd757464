"""A call as the policy classifies it, what of it is remembered, and what provenance finds of it.

Pure: no I/O.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_plus, urlsplit

from guard.core.frozen import frozen
from guard.core.json_values import strings_in_order
from guard.core.jsonpath import member_path
from guard.core.labels import (
    ActionRung,
    Attestation,
    Context,
    LabelRecord,
    LabelWrite,
    PrivateText,
    Rung,
    SavedText,
)
from guard.core.mappings import MemoryPolicy, PathQuery, ToolMapping, WriteMapping
from guard.core.memory import DEFAULT_STORE, MemoryClass
from guard.core.model import Destination, DestinationStatus, Integrity, Json, Role, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from guard.core.errands import ErrandCall
    from guard.core.tool_answers import ToolAnswer

SAVING: Final = frozenset({Role.SAVE, Role.DRAFT})
_NO_EGRESS: Final = SAVING | {Role.SEND}
ELICITATION: Final = "mcp.elicitation"
SAMPLING: Final = "mcp.sampling"
ROOTS: Final = "mcp.roots"
ANSWER: Final = "mcp.answer"
"""Any other answer that has something in it, errors included."""
ANSWERS: Final = frozenset({ELICITATION, SAMPLING, ROOTS, ANSWER})
"""Calls by which a client answers what its server asked: their receiver is that server."""
LOADED: Final = "$~loaded"
"""Path of what a receiver's program loads by itself out of a text that is sent: a picture."""
_NO_RECEIVERS: Final = frozenset({"text", "number", "malformed", "missing"})
"""Kinds of destinations that name a value, and nobody who could receive again."""
OUTSIDE: Final = frozenset({DestinationStatus.EXTERNAL, DestinationStatus.DENIED})


@frozen
class Target:
    """A destination of a call, and its status under the policy."""

    destination: Destination
    status: DestinationStatus
    path: str = ""
    """JSONPath of the argument it was read from."""
    attestation: Attestation | None = None
    """Origin of its value; None until the state before the call is known."""


@frozen
class ActionAttestation:
    """Rung of a call's action, and its cause."""

    action: str
    rung: ActionRung
    why: str
    """Cause, from a closed set: ``prompt``, ``not_requested``, ``other_object``, …"""
    record: LabelRecord | None = None
    """Record that decided, if any."""
    object: Target | None = None
    """Object that decided, if any."""

    def described(self) -> dict[str, str]:
        """Return the action, its rung and its cause, without text of the call."""
        return {"action": self.action, "rung": self.rung.label, "why": self.why}


class Claim(Enum):
    """By what right a call goes to the server that it goes to, as a tool's name says."""

    LISTED = "listed"
    """It alone has listed a tool of that name, or its protocol has no listings."""
    UNLISTED = "unlisted"
    """A name that is listed by none, or by several where it is unclear which one the call goes
    to."""
    CONTESTED = "contested"
    """Another server has."""


@frozen
class ClassifiedCall:
    """A call as the policy classifies it, computed once from the policy and the call alone."""

    call: ToolCall
    role: Role
    mapping: ToolMapping | None = None
    """The tool mapping that claims the tool.  Without one it counts as ``other`` and, for the
    rules, as unmapped: an unmapped name must never silently disable a detector."""
    memory_write: WriteMapping | None = None
    """Memory write that the policy declares it to be; None if it is not one."""
    targets: tuple[Target, ...] = ()
    suspects: tuple[Target, ...] = ()
    """Possible destinations: bare hosts, phone and account numbers, receivers in mail headers, and
    everything that only decoding shows.  One counts as a target where untrusted text named it."""
    searched: bool = True
    """False where an argument exceeds what is decoded of one call, so that suspects may lack."""
    body: tuple[str, ...] = ()
    """The texts the policy declares as payload, those it traces, and every text that it declares as
    nothing else."""
    guarded: tuple[Target, ...] = ()
    """Values of arguments that the policy traces like destinations (amounts, subjects, links)."""

    objects: tuple[Target, ...] = ()
    """Values of the arguments that name the object of its action."""
    tells: bool = False
    """True if it saves or drafts, and an argument says who else is told or may look."""
    place: str = ""
    """Server that it is called at, as far as anybody can say."""
    answered: bool = False
    """True if a person has said that this principal may use an unmapped tool like this: for the
    rules it counts as mapped."""
    contested: bool = False
    """True if its server is not the only one with a tool of this name, and the policy names none of
    them: the restrictions of the mapping hold, and a person is asked."""

    @property
    def saves_to(self) -> str:
        """Name of the memory store that it saves into; empty where the policy declares none."""
        if self.memory_write is None and self.role not in SAVING:
            return ""
        named = self.mapping.store if self.mapping is not None else ""
        return (
            named
            if self.memory_write is None
            else self.memory_write.store or named or DEFAULT_STORE
        )

    def receivers(self, *, action: bool = True) -> Iterator[Target]:
        """Yield the targets that may be, or become, established: external ones, and the action.

        Args:
            action: whether to yield the action.
        """
        if action and self.mapping is not None and self.mapping.action is not None:
            named = Destination("action", self.mapping.action.name)
            yield Target(named, DestinationStatus.EXTERNAL)
        if self.role is Role.SEND:
            for target in self.targets:
                is_external = target.status is DestinationStatus.EXTERNAL
                if is_external and target.destination.kind not in _NO_RECEIVERS:
                    yield target

    @property
    def mapped(self) -> bool:
        """True if a mapping or an answer claims the tool, and no other server has its name."""
        return (self.mapping is not None or self.answered) and not self.contested

    @property
    def may_lack_receivers(self) -> bool:
        """True if the policy declares its destinations optional: without any, it sends nothing."""
        return self.mapping is not None and self.mapping.may_lack_receivers


@frozen
class TracedCall:
    """A classified call with what provenance found of it in the state before it."""

    classified: ClassifiedCall
    targets: tuple[Target, ...] = ()
    """Targets of the classified call, each with its attestation, and the suspects that count."""
    guarded: tuple[Target, ...] = ()
    """Likewise."""
    index: int = -1
    """Its place in the recorded run or in its session; -1 where the state is not known."""
    private: PrivateText | None = None
    """Private text in its body, where the policy traces that."""
    carried: int = 0
    """Bits that one host could have been told by this principal's URLs, this call's included; the
    most of its hosts, where the policy counts them."""
    memory_label: Integrity | None = None
    """Label of the item that a recall asks for, where it has a record."""
    saved: SavedText | None = None
    """Label and sources of its text, where it writes memory."""
    on_executed: tuple[LabelWrite, ...] = ()
    """Labels of what it saves, decided before it runs and stored once it has."""
    written: tuple[str, ...] = ()
    """Values that it writes into records of a service or of a memory."""
    reached: tuple[Target, ...] = ()
    """Receivers outside whom it may establish, should the tool answer without an error; where a
    person answered for directories, these instead."""
    approved: LabelRecord | None = None
    """Grant of a human that lets each of them be sent to again, with its end; None without one."""
    approved_by: str = ""
    """Name of the person who gave it."""
    context: Context | None = None
    """Evidence on the values in it; None until the state is known."""
    action: ActionAttestation | None = None
    """Rung of its action; None if its mapping declares no action or no rule asks."""
    redefined: bool = False
    """True if the tool's definition has changed since it was pinned, and was not approved."""
    definition: str = ""
    """Digest of that definition."""
    tool: ToolAnswer | None = None
    """Outline of a call of an unmapped tool, and answers for it; None where none can cover it."""
    errand: ErrandCall | None = None
    """Errand that it belongs to, and grants for its recipients; None where none is known."""
    taken: tuple[LabelWrite, ...] = ()
    """A person's grant that let it out, as it is put back if no server received the call."""

    @property
    def call(self) -> ToolCall:
        """The request itself."""
        return self.classified.call

    @property
    def is_egress(self) -> bool:
        """True if it reaches an outsider with a role other than send: rules on sends apply too.

        What is saved or drafted stays inside, unless the call says that somebody is told of it;
        the labels of memory are about the rest.
        """
        if not self.targets or (self.classified.role in _NO_EGRESS and not self.classified.tells):
            return False
        return any(target.status in OUTSIDE for target in self.targets)


def untraced(classified: ClassifiedCall) -> TracedCall:
    """Return a call of which provenance has found nothing: no value in it is attested."""
    targets = with_suspects(classified.targets, classified.suspects)
    return TracedCall(classified, targets, classified.guarded)


def with_suspects(targets: Iterable[Target], suspects: Iterable[Target]) -> tuple[Target, ...]:
    """Return targets and those suspects that count as such.

    A guess that nobody wrote anywhere is not a destination: a suspect counts where untrusted text
    named it, or the policy denies it.
    """
    return (*targets, *filter(_counts, suspects))


def _counts(suspect: Target) -> bool:
    attestation = suspect.attestation
    tainted = attestation is not None and attestation.rung is Rung.TAINTED
    return tainted or suspect.status is DestinationStatus.DENIED


@frozen
class ToolResult:
    """A tool's answer, matched to its call by the protocol (JSON-RPC id, not exchange)."""

    call: TracedCall
    content: Json
    """The parsed result: a string, or structured JSON; None where nothing was returned."""
    at: float
    is_error: bool = False
    is_lost: bool = False
    """True if a readable answer is missing: it is unknown whether the tool carried the call out."""
    sources: frozenset[bytes] | None = None
    """Marks of whom an untrusted result comes from; None until they have been worked out."""
    is_report: bool = False
    """An agent tells of it in its history: what was answered then cannot be changed any more."""

    @property
    def says_error(self) -> bool:
        """True if the tool reports in its result that it failed (MCP)."""
        return isinstance(self.content, dict) and self.content.get("isError", False) is not False


TERMS: Final = 16
TERM_WORDS: Final = 4
"""Names beside the texts of one write, and words in one."""
_TERM: Final = re.compile(r"[\w.:@/+-]{1,64}")
_HEX: Final = re.compile(r"[0-9a-fA-F-]{8,64}")
_TERM_WORD: Final = re.compile(r"[^\W\d_]{2,}")


UNMAPPED: Final = WriteMapping("", bool, "", MemoryClass.L1)
"""A save that no entry of ``memory.writes`` claims counts as a write of the highest class."""
DECLARED: Final = WriteMapping("", bool, "", MemoryClass.L3, MemoryClass.L4)
"""A save into a declared store under the default matrix; all its arguments are its text."""


def write_of(
    memory: MemoryPolicy, call: ToolCall, role: Role, mapping: ToolMapping | None
) -> WriteMapping | None:
    """Return what the policy says of a call as a write; None where it is none.

    Args:
        memory: the policy's section.
        call: the call.
        role: of its tool.
        mapping: of its tool.
    """
    store = mapping.store if mapping is not None else ""
    found = memory.write(call.tool, *_request_line(call), store)
    if found is not None or role is not Role.SAVE:
        return found
    if mapping is None or not memory.is_default:
        return UNMAPPED
    return replace(DECLARED, store=store, key=mapping.item) if store else None


def writes_about(memory: MemoryPolicy, call: ToolCall) -> MemoryPolicy:
    """Return the mappings that claim a call as a write, and nothing else, to be pickled."""
    return memory.about(call.tool, *_request_line(call))


def _request_line(call: ToolCall) -> tuple[str, str]:
    """Return method and path of a plain request; of another call, nothing."""
    if call.protocol != "http":
        return "", ""
    url = urlsplit(str(call.arguments.get("url", "")))
    return str(call.arguments.get("method", "")), url.path


def remembered_texts(call: ToolCall, mapping: WriteMapping) -> list[str]:
    """Return the texts of a call that its store would remember, wherever in it they stand.

    A short name (of a user, a category, a type) beside them is not text, as long as there are few.
    """
    document = written_document(call)
    texts = list(texts_at(mapping.content, document, hidden_paths(mapping, document)))
    further = further_texts(call, mapping)
    told = [text for text in further if not is_term(text)]
    return [*texts, *(told if len(further) - len(told) <= TERMS else further)]


def further_texts(call: ToolCall, mapping: WriteMapping) -> list[str]:
    """Return what else a write says: names of members, metadata, arguments that no path selects.

    A store may keep any of it; of a plain request, its body, notable headers and query.
    """
    document = written_document(call)
    found: list[str] = []
    if call.protocol == "http":
        query = urlsplit(str(document.get("url", ""))).query
        found += [unquote_plus(query)] if query else []
        document = {name: document[name] for name in ("body", "headers") if name in document}
    hidden = hidden_paths(mapping, document)
    selected = {path for query in mapping.content for path, _ in query.find(document)}
    stack: list[tuple[str, Json, bool]] = [("$", document, not mapping.content)]
    while stack:
        path, value, told = stack.pop()
        told = (told or path in selected) and path not in hidden
        if isinstance(value, str) and not told:
            found.append(value)
        elif isinstance(value, dict):
            found += [name for name in value if not (name.isidentifier() and is_term(name))]
            stack.extend((member_path(path, name), inner, told) for name, inner in value.items())
        elif isinstance(value, list):
            stack.extend((f"{path}[{index}]", inner, told) for index, inner in enumerate(value))
    return [text for text in found if text.strip()]


def is_term(text: str) -> bool:
    """Return whether a text is a name or an id, and no sentence under another spelling."""
    if _HEX.fullmatch(text) is not None:
        return True
    return _TERM.fullmatch(text) is not None and len(_TERM_WORD.findall(text)) <= TERM_WORDS


def hidden_paths(mapping: WriteMapping, document: Json) -> set[str]:
    """Return the paths of what is not content: nonce and token."""
    queries = [query for query in (mapping.nonce, mapping.token) if query is not None]
    return {path for query in queries for path, _ in query.find(document)}


def written_document(call: ToolCall) -> dict[str, Json]:
    """Return the arguments; the body of a plain request as JSON where it is JSON."""
    document = dict(call.arguments)
    body = document.get("body")
    if call.protocol == "http" and isinstance(body, str):
        with contextlib.suppress(ValueError, RecursionError):
            document["body"] = json.loads(body)
    return document


def saved_document(classified: ClassifiedCall) -> Mapping[str, Json]:
    """Return what of a call's arguments a store would keep: of a plain request, its body."""
    call = classified.call
    if call.protocol == "http" and classified.role not in SAVING and "body" in call.arguments:
        return {"body": written_document(call)["body"]}
    return call.arguments


def texts_at(queries: Sequence[PathQuery], document: Json, hidden: set[str]) -> Iterator[str]:
    """Yield the strings that the queries select; without queries, all but the hidden members'."""
    if not queries:
        yield from strings_in_order(without_members(document, hidden))
        return
    for query in queries:
        for _, value in query.find(document):
            yield from strings_in_order(value)


def without_members(arguments: Mapping[str, Json], hidden: set[str]) -> dict[str, Json]:
    """Return the arguments without those at the hidden paths."""
    shown = dict(arguments)
    for name in arguments if hidden else ():
        if member_path("$", name) in hidden:
            del shown[name]
    return shown
