"""Strict YAML: the subset that can be read one way only, with the line of every value.

Read from parser events, so nothing is resolved, merged or dropped before it is seen.  Refused:
duplicate keys, anchors, aliases, merge keys, tags, directives, several documents, tabs, keys that
are not text, values such as ``.inf``.  Scalars follow the YAML 1.2 core schema: ``no``, ``on`` and
``yes`` are texts.

Additions to a YAML file that keep its comments and its order.
"""

from __future__ import annotations

import io
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from guard.core.errors import GuardError, InputError, PolicyError, PolicyProblem
from guard.settings import policy_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guard.core.model import Json
    from guard.policy.field_types import Location


MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 16
"""Nesting of a policy; the schema needs five."""

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {
    text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_PATTERN_LIKE: Final = re.compile(r"[.*?@/-]")
"""Characters of a pattern that people do not use in names of anchors."""
_INT: Final = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_REFUSED: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|0[ox][0-9A-Fa-f]+", re.ASCII)


@dataclass(slots=True)
class Document:
    """One file as plain JSON values, with the line of each of them."""

    path: str
    value: Json
    lines: dict[Location, int] = field(default_factory=dict)
    """One-based line of each list item, and of each key in a mapping."""
    ends: dict[Location, int] = field(default_factory=dict)
    """One-based line on which what follows a mapping begins; at least one after its own."""
    problems: list[PolicyProblem] = field(default_factory=list)

    def line(self, location: Location) -> int:
        """Return the line of the value, or of the nearest value around it."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)


def load_document(path: Path, text: str | None = None) -> Document:
    """Read one file, or the text that stands for it.  Problems of its YAML are in ``problems``.

    Raises:
        PolicyError: the file cannot be read at all.
    """
    name = str(path)
    try:
        if text is None:
            with policy_file(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        else:
            data = text.encode()
    except InputError as error:
        raise PolicyError((PolicyProblem(name, 0, str(error)),)) from error
    except OSError as error:
        raise PolicyError(
            (
                PolicyProblem(
                    name, 0, f"cannot read the file: {(error.strerror or 'unknown error').lower()}"
                ),
            )
        ) from error
    if len(data) > MAX_BYTES:
        raise PolicyError(
            (
                PolicyProblem(
                    name,
                    0,
                    f"the file is larger than {MAX_BYTES} bytes; split it into several policies",
                ),
            )
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError((PolicyProblem(name, line, "the file is not UTF-8 text"),)) from error
    return _Reader(name, text).document()


class _Reader:
    """Builds values from parser events; one instance reads one text."""

    def __init__(self, path: str, text: str) -> None:
        self._text = text
        self._document = Document(path, None)
        self._documents = 0

    def document(self) -> Document:
        tab = self._text.find("\t")
        if tab >= 0:
            self._problem(self._text.count("\n", 0, tab) + 1, "a tab; indent with spaces")
            return self._document
        events = self._events()
        try:
            for event in events:
                self._document.value = self._value(event, events, ())
        except _UnreadableError:
            pass
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            detail = " ".join(str(error.problem or error.context).split())
            if "alias" in str(error.context):
                detail = 'a text that begins with `*`: quote it, `"*"`'
            self._problem(mark.line + 1 if mark else 1, f"not valid YAML: {detail}")
        except YAMLError as error:
            position = getattr(error, "position", 0) or 0
            line = self._text.count("\n", 0, position) + 1
            self._problem(line, "not valid YAML: a character that YAML does not allow")
        return self._document

    def _problem(self, line: int, message: str) -> None:
        self._document.problems.append(PolicyProblem(self._document.path, line, message))

    def _events(self) -> Iterator[Any]:
        """Yield the events that carry values; check the rest."""
        for event in YAML(typ="safe", pure=True).parse(self._text):
            line = event.start_mark.line + 1
            if isinstance(event, DocumentStartEvent):
                self._documents += 1
                if event.version or event.tags:
                    self._problem(line, "a directive; a policy is plain YAML 1.2")
                if self._documents > 1:
                    self._problem(line, "a second document; put it into a file of its own")
                    raise _UnreadableError
            elif isinstance(event, AliasEvent):
                message = f"alias `*{event.anchor}`; write the value out, or quote a text"
                if _PATTERN_LIKE.search(event.anchor):
                    message = f'`*{event.anchor}` begins with `*`: quote it, `"*{event.anchor}"`'
                self._problem(line, message)
                yield event
            elif isinstance(
                event,
                (
                    ScalarEvent,
                    SequenceStartEvent,
                    SequenceEndEvent,
                    MappingStartEvent,
                    MappingEndEvent,
                ),
            ):
                self._check_properties(event, line)
                yield event

    def _check_properties(self, event: Any, line: int) -> None:
        if getattr(event, "anchor", None):
            self._problem(line, f"anchor `&{event.anchor}`; write the value out where it is used")
        if getattr(event, "tag", None):
            self._problem(line, f"tag `{event.tag}`; a policy has no tags, quote a text instead")

    def _value(self, event: Any, events: Iterator[Any], location: Location) -> Json:
        if len(location) > MAX_DEPTH:
            self._problem(event.start_mark.line + 1, f"nested deeper than {MAX_DEPTH} levels")
            raise _UnreadableError
        if isinstance(event, ScalarEvent):
            return self._scalar(event)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(events, location)
        if isinstance(event, MappingStartEvent):
            return self._mapping(events, location)
        return None

    def _sequence(self, events: Iterator[Any], location: Location) -> list[Json]:
        items: list[Json] = []
        for event in events:
            if isinstance(event, SequenceEndEvent):
                break
            here = (*location, len(items))
            self._document.lines[here] = event.start_mark.line + 1
            items.append(self._value(event, events, here))
        return items

    def _mapping(self, events: Iterator[Any], location: Location) -> dict[str, Json]:
        members: dict[str, Json] = {}
        for event in events:
            if isinstance(event, MappingEndEvent):
                start = self._document.lines.get(location, 0)
                self._document.ends[location] = max(event.start_mark.line + 1, start + 1)
                break
            line = event.start_mark.line + 1
            key = self._key(event, events, location)
            if key is None:
                self._value(next(events), events, (*location, ""))
                continue
            here = (*location, key)
            if key in members:
                first = self._document.lines[here]
                self._problem(line, f"duplicate key `{key}`; it is already on line {first}")
                self._value(next(events), events, (*location, ""))
                continue
            self._document.lines[here] = line
            members[key] = self._value(next(events), events, here)
        return members

    def _key(self, event: Any, events: Iterator[Any], location: Location) -> str | None:
        """Return the key, or None where it is none and a problem says so."""
        line = event.start_mark.line + 1
        key = self._value(event, events, (*location, ""))
        if isinstance(event, AliasEvent):
            return None
        if not isinstance(key, str):
            self._problem(line, "a key that is not a text; quote it")
            return None
        if key == "<<" and event.style is None:
            self._problem(line, "merge key `<<`; write the fields out")
            return None
        return key

    def _scalar(self, event: Any) -> Json:
        text: str = event.value
        if event.style is not None:
            return text
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        number = _number(text)
        if number is None and not _REFUSED.fullmatch(text):
            return text
        if number is None or not math.isfinite(number):
            self._problem(event.start_mark.line + 1, f"number `{text[:40]}`; write a plain decimal")
        return number


def _number(text: str) -> float | None:
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else None


class _UnreadableError(Exception):
    """Reading cannot go on; the problem has been noted."""


_WIDTH: Final = 10_000
"""Columns of a line: texts are not folded."""


def merged_yaml(text: str, more: str, keys: Sequence[str], *, extends: bool = False) -> str:
    """Return a document with the lists of another one added to its own.

    Args:
        text: the document.
        more: document with the additions.
        keys: members of the document that are added, with the lists below them.
        extends: whether entries that both have are joined; the document's own stay as they are
            otherwise.

    Raises:
        GuardError: the document is not a mapping in YAML.
    """
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, _WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        document, added = yaml.load(text), yaml.load(more)
        _add(document, {key: added[key] for key in keys if key in added}, extends=extends)
    except (YAMLError, TypeError, AttributeError) as error:
        raise GuardError(f"the file cannot be added to: {error}"[:200]) from error
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _add(document: Any, added: Any, *, extends: bool) -> None:
    for key, value in added.items():
        if document.get(key) is None:
            document[key] = value
        elif isinstance(value, list):
            for one in value:
                same = next((own for own in document[key] if _name(own) == _name(one)), None)
                if same is None:
                    document[key].append(one)
                elif extends and isinstance(one, dict):
                    _add(same, one, extends=True)
        elif isinstance(value, dict):
            _add(document[key], value, extends=extends)


def _name(entry: Any) -> object:
    """Return the upstream, name or id of an entry of a list, the entry itself if it has none."""
    names = ("upstream", "name", "id") if isinstance(entry, dict) else ()
    return next((entry[name] for name in names if name in entry), entry)
