"""Tables of the model APIs: the class of each kind, read from the TOML files of this folder.

A *unit* is an item, block, part or call of a conversation.  Its kind is in the member ``tag``, or
is a member name itself (``tag = "*"``).  A kind has one of these classes:

* ``text``: words or media of the model or the user;
* ``call``: a tool call that is judged before it is released (fields in ``calls``);
* ``result``: output of a tool, which is labelled (fields in ``results``);
* ``inert``: neither of them;
* ``refuse``: the message is refused.  Kinds that a table lacks have this class, unless ``unknown``
  names another one.

``docs/explanation/wires.md`` explains the other fields of a table.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import MessageError
from guard.protocols.framing.json_messages import reject_lookalike_keys

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping

    from guard.core.model import Json

CODE: Final = "bad_answer"
CLASSES: Final = ("text", "call", "result", "inert", "refuse")
MEMBERS: Final = "*"
"""Tag of units whose kinds are their member names; also the end of a family of events."""
_FIELDS: Final = {
    "calls": {"name", "arguments", "text", "streamed", "id", "prefix", "members", "closed"}
    | {"unless", "numbered"},
    "results": {"call", "content", "error", "name", "prefix", "numbered"},
    "events": {"do", "member"},
}
"""Fields of the entries of a table."""


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
    default: str = ""
    """Kind of a call of an answer that has none."""
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
                raise MessageError(
                    "unknown_kind", f"{self.name} of type `{kind[:40]}` are not known"
                )
        return found


@dataclass(frozen=True, slots=True)
class ApiTable:
    """The table of one API."""

    name: str
    shape: str
    """Shape of the errors that its clients read."""
    path: str
    """Pattern of its paths, in lower case."""
    source: Mapping[str, Any]
    """SDK, version, date of review, and types with the kinds."""
    request: Mapping[str, Any]
    answer: Mapping[str, Any]
    units: Mapping[str, Units]
    calls: Mapping[str, Mapping[str, Any]]
    results: Mapping[str, Mapping[str, Any]]
    events: Mapping[str, Mapping[str, str]]
    deltas: Mapping[str, str]
    """Kinds of deltas, with the member that has text of a call, if any."""
    callers: Mapping[str, str]
    """Members by which a call names the program that made it."""

    def event(self, kind: Json) -> Mapping[str, str]:
        """Return the treatment of an event.

        Raises:
            MessageError: its kind is unknown.
        """
        name = kind if isinstance(kind, str) and MEMBERS not in kind else ""
        families = (one for one in self.events if one.endswith(MEMBERS))
        family = next((one for one in families if name.startswith(one[:-1])), "")
        if name not in self.events and not family:
            raise MessageError("unknown_kind", f"events of type `{str(kind)[:40]}` are not known")
        return self.events.get(name) or self.events[family]

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
        name = dig(unit, fields["name"]) if "name" in fields else kind
        if "text" in fields:
            arguments: Json = {"input": dig(unit, fields["text"]) or ""}
        elif "arguments" in fields:
            arguments = dig(unit, fields["arguments"])
        else:
            arguments = {k: v for k, v in unit.items() if k not in self.answer["without"]}
        found = (dig(unit, path) for path in fields["id"])
        key = next((value for value in found if value is not None), self.answer.get("id"))
        if "numbered" in fields:
            key = numbered(name, key, counts)
        if isinstance(key, str) and key:
            key = fields.get("prefix", "") + key
        return name, {} if arguments is None else arguments, key


def numbered(name: Json, key: Json, counts: Counter[str]) -> str:
    """Return the id of a call or result; without one, its tool and its number."""
    counts[str(name)] += 1
    return key if isinstance(key, str) and key else f"{name}#{counts[str(name)]}"


def load_table(name: str) -> ApiTable:
    """Return the table of an API from the file of this name.

    Raises:
        ValueError: it has an unknown field.
    """
    text = files("guard.protocols.llm").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    raw = {"events": {}, "deltas": {}, "callers": {}, "passes": (), **tomllib.loads(text)}
    raw["events"] |= {kind: {"do": "pass"} for kind in raw.pop("passes")}
    for section, known in _FIELDS.items():
        for kind, fields in raw[section].items():
            if not known.issuperset(fields):
                raise ValueError(f"`{section}.{kind}` of {name}.toml has an unknown field")
    return ApiTable(
        **{**raw, "units": {k: _units(k, fields) for k, fields in raw["units"].items()}}
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
