"""Tables of the model APIs: the class of each kind, read from the TOML files of this folder.

A *unit* is an item, block, part or call of a conversation.  Its kind is in the member ``tag``, or
is a member name itself (``tag = "*"``).  A kind has one of these classes:

* ``text``: words or media of the model or the user;
* ``call``: a tool call that is judged before it is released;
* ``result``: output of a tool, which is labelled;
* ``inert``: neither of them;
* ``refuse``: the message is refused.  Kinds that a table lacks have this class by default.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import MessageError
from guard.protocols.framing.json_messages import reject_lookalike_keys

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping, Sequence

    from guard.core.model import Json

CODE: Final = "bad_answer"
CLASSES: Final = ("text", "call", "result", "inert", "refuse")
MEMBERS: Final = "*"
"""Tag of units whose kinds are their member names."""


@dataclass(frozen=True, slots=True)
class Units:
    """The kinds of one sort of unit."""

    name: str
    classes: Mapping[str, str]
    """Class of each kind."""
    tag: str
    member: str = ""
    """Member of a turn with a list of these units; empty if the turn itself is one."""
    untyped: str = ""
    """Kind of a unit of a request that has none."""
    unknown: str = "refuse"
    """Class of the kinds that the table lacks."""

    def kinds(self, unit: Mapping[str, Json], *, untyped: str = "") -> list[tuple[str, str]]:
        """Return the kinds of a unit, each with its class.

        Raises:
            MessageError: a kind is refused or unknown.
        """
        if self.tag == MEMBERS:
            reject_unknown_members(unit, self.classes, self.name)
            found = [(member, self.classes[member]) for member in unit if member in self.classes]
        else:
            reject_lookalike_keys(unit, (self.tag,))
            kind = unit.get(self.tag) or untyped
            known = self.classes.get(kind) if isinstance(kind, str) else "refuse"
            found = [(str(kind), known or self.unknown)]
        for kind, given in found:
            if given == "refuse":
                message = f"{self.name} of type `{kind[:40]}` are not known"
                raise MessageError("unknown_kind", message)
        return found


@dataclass(frozen=True, slots=True)
class CallFields:
    """Paths of name, arguments and id in a call of one kind."""

    id: Sequence[str]
    """Members that may have the id, the first one that exists counts."""
    name: str = ""
    """Path of the tool's name; empty if the kind is the name."""
    arguments: str = ""
    """Path of the arguments; empty if all other members are arguments."""
    text: str = ""
    """Path of the argument ``input``, if the call has only this one."""
    streamed: str = ""
    """Path of the texts that a stream has sent in fragments, if not the arguments."""
    prefix: str = ""
    """Text before the id in the correlation of the call."""
    members: Sequence[str] = ()
    """Known members of the unit; others may not have structure."""
    closed: Sequence[str] = ()
    """All members that the call may have, if others make it incomplete."""
    unless: Mapping[str, str] = field(default_factory=dict)
    """Member values with which the provider carries out the call itself."""
    numbered: bool = False
    """Whether the name and the position identify a call without an id."""

    def is_of_provider(self, unit: Mapping[str, Json]) -> bool:
        """Return whether the provider carries out a call itself."""
        return bool(self.unless) and self.unless.items() <= unit.items()


@dataclass(frozen=True, slots=True)
class ResultFields:
    """Paths of the call's id and the content in a result of one kind."""

    call: str
    content: str
    error: str = ""
    name: str = ""
    """Path of the tool's name, for results of unknown calls."""
    prefix: str = ""
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class RequestTable:
    """The members of a request."""

    turns: str
    """Member with the conversation."""
    read: Sequence[str]
    """Members that the guard reads."""
    inert: Sequence[str]
    """Other members, which send the provider nowhere."""
    tool_tag: str
    own_tools: str
    """Pattern of the types of tools that the agent runs."""
    own_when: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Conditions under which the agent runs tools of other types."""
    tool_groups: Sequence[str] = ()
    """Types of tools that contain tools."""
    untyped_tool: str = ""
    instructions: Sequence[str] = ()
    fetched: Sequence[str] = ()
    """Further members in which the provider fetches URLs."""
    hosted: Mapping[str, str] = field(default_factory=dict)
    """Members that ask for a tool of the provider, with its name."""
    named: Sequence[str] = ()
    """Members of ``hosted`` in which a string asks for nothing."""
    brings: str = ""
    """Path of tools that a unit of the conversation adds."""
    brings_not: Sequence[str] = ()
    """Kinds whose tools are not added but listed."""
    snake_case: bool = False
    """Whether members may have either spelling."""


@dataclass(frozen=True, slots=True)
class EventFields:
    """Treatment of one kind of event."""

    do: str
    member: str = ""
    """Member with the text."""


@dataclass(frozen=True, slots=True)
class ApiTable:
    """The table of one API."""

    name: str
    errors: str
    """Shape of error documents."""
    path: str
    """Pattern of its paths, in lower case."""
    root: str
    """Member of an answer that contains the units."""
    rootless: Sequence[str]
    """Members of answers without the root, such as errors."""
    answer: str
    """Name of the units of an answer."""
    source: Mapping[str, Any]
    """SDK, version, date of review, and types with the kinds."""
    request: RequestTable
    units: Mapping[str, Units]
    calls: Mapping[str, CallFields]
    results: Mapping[str, ResultFields]
    members: Mapping[str, Sequence[str]]
    """Members of other structures that are known."""
    events: Mapping[str, EventFields] = field(default_factory=dict)
    deltas: Mapping[str, str] = field(default_factory=dict)
    """Kinds of deltas, with the member that has text of a call, if any."""
    index: str = ""
    """Member of an event with the position of its unit."""
    part: str = ""
    """Member of an event with the position of its text."""
    callers: Mapping[str, str] = field(default_factory=dict)
    """Members by which a call names the program that made it."""

    def event(self, kind: Json) -> EventFields:
        """Return the treatment of an event.

        Raises:
            MessageError: its kind is unknown.
        """
        name = kind if isinstance(kind, str) else ""
        if name in self.events and not name.endswith(MEMBERS):
            return self.events[name]
        for family, fields in self.events.items():
            if family.endswith(MEMBERS) and name.startswith(family[:-1]):
                return fields
        raise MessageError("unknown_kind", f"events of type `{str(kind)[:40]}` are not known")

    def programs(self, kind: str, unit: Mapping[str, Json]) -> set[str]:
        """Return the ids of the programs that a unit is or that it names as its caller."""
        names = self.callers
        found = {unit.get(names["kind_id"])} if kind == names.get("kind") else set()
        caller = unit.get(names["member"]) if names else None
        if isinstance(caller, dict) and caller.get("type") == names["type"]:
            found.add(caller.get(names["id"]))
        return {str(program) for program in found}

    def call_parts(
        self, kind: str, unit: Mapping[str, Json], counts: Counter[str]
    ) -> tuple[Json, Json, Json]:
        """Return tool, arguments and correlation of a call; count the calls of each tool."""
        fields = self.calls[kind]
        name = dig(unit, fields.name) if fields.name else kind
        if fields.text:
            arguments: Json = {"input": dig(unit, fields.text) or ""}
        elif fields.arguments:
            arguments = dig(unit, fields.arguments)
        else:
            without = self.members["without"]
            arguments = {member: value for member, value in unit.items() if member not in without}
        found = (dig(unit, path) for path in fields.id)
        key = next((value for value in found if value is not None), None)
        if fields.numbered:
            key = numbered(name, key, counts)
        if isinstance(key, str) and key:
            key = fields.prefix + key
        return name, {} if arguments is None else arguments, key


def numbered(name: Json, key: Json, counts: Counter[str]) -> str:
    """Return the id of a call or result; without one, its tool and its number."""
    counts[str(name)] += 1
    return key if isinstance(key, str) and key else f"{name}#{counts[str(name)]}"


def load_table(name: str) -> ApiTable:
    """Return the table of an API from the file of this name."""
    text = files("guard.protocols.llm").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    raw = tomllib.loads(text)
    return ApiTable(
        **raw
        | {
            "request": RequestTable(**raw["request"]),
            "units": {unit: _units(unit, fields) for unit, fields in raw["units"].items()},
            "calls": {kind: CallFields(**fields) for kind, fields in raw["calls"].items()},
            "results": {kind: ResultFields(**fields) for kind, fields in raw["results"].items()},
            "events": {k: EventFields(**fields) for k, fields in raw.get("events", {}).items()},
        }
    )


def _units(name: str, fields: Mapping[str, Any]) -> Units:
    classes = {kind: one for one in CLASSES for kind in fields.get(one, ())}
    others = {key: value for key, value in fields.items() if key not in CLASSES}
    return Units(name=name, classes=classes, **others)


def dig(value: Json, path: str) -> Json:
    """Return the value at a dotted path, None if a member is missing."""
    for member in path.split("."):
        value = value.get(member) if isinstance(value, dict) else None
    return value


def reject_unknown_members(value: Mapping[str, Json], known: Iterable[str], where: str) -> None:
    """Refuse unknown members that could hold a call: objects and lists.

    Raises:
        MessageError: there is one, or one that differs from a known name in case only.
    """
    known = frozenset(known)
    reject_lookalike_keys(value, known)
    for key, inner in value.items():
        if key not in known and isinstance(inner, (dict, list)) and inner:
            raise MessageError(CODE, f"unknown member `{key[:40]}` in {where}")
