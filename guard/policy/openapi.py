"""From an OpenAPI 3 document to a proposal of HTTP tools.  Pure: no I/O.

The proposal is a start for a person who knows the service: what a tool does is guessed from its
method, where its destinations are from the names and formats of its fields.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guard.core.errors import GuardError
from guard.core.model import Json, Role
from guard.policy.proposal import RECEIVERS, argument_kind, argument_path, suggested_action
from guard.protocols.http.tools import UrlTemplate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options")
READING: Final = frozenset({"get", "head", "options"})
BODIES: Final = {
    "application/json": "json",
    "application/x-www-form-urlencoded": "form",
    "multipart/form-data": "multipart",
}
MAX_DEPTH: Final = 8
"""Nesting of a body that is looked into; deeper fields are still looked through at run time."""
MAX_FIELDS: Final = 5000
"""Fields of one operation that are looked at."""
_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_PARAMETER: Final = re.compile(r"\{([^{}/]+)\}")


@dataclass(slots=True)
class Proposal:
    """Result of reading a document: mappings, and parts that could not be used."""

    tools: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    """Summary, entry of `http_tools` and entry of `tools` of each operation."""
    warnings: list[str] = field(default_factory=list)


def propose(document: Json, server: str | None = None) -> Proposal:
    """Return the tools of an OpenAPI document.

    Args:
        document: parsed JSON or YAML; ``$ref`` may form cycles, and leads nowhere outside.
        server: base URL; left out, the first of the document's ``servers``.

    Raises:
        GuardError: it is not an OpenAPI 3 document, or names no absolute server.
    """
    version = document.get("openapi") if isinstance(document, dict) else None
    if not isinstance(version, str) or not version.startswith("3."):
        raise GuardError("this is not an OpenAPI 3 document: `openapi` is not `3.…`")
    if not isinstance(document.get("paths"), dict):
        raise GuardError("the document has no `paths`")
    base = (server or _server(document)).rstrip("/")
    try:
        UrlTemplate.parse(base or "/")
    except ValueError as error:
        raise GuardError(f"server: {error}; give one with `--server`") from error
    reader = _Reader(document, base)
    for path, item in document["paths"].items():
        reader.add_path(str(path), item)
    return reader.proposal


def _server(document: Mapping[str, Json]) -> str:
    first = _object(next(iter(_list(document.get("servers"))), None))
    url = str(first.get("url", ""))
    for name, value in _object(first.get("variables")).items():
        url = url.replace("{" + str(name) + "}", str(_object(value).get("default", "")))
    return url


def _object(value: Json) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _variable(name: str) -> str:
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"


class _Field(NamedTuple):
    name: str
    parent: str
    schema: dict[str, Any]

    @property
    def path(self) -> str:
        return argument_path(self.name, self.parent)


class _Reader:
    """Reads the operations, and follows references inside the document."""

    def __init__(self, document: Json, base: str) -> None:
        self._document = document
        self._base = base
        self._taken: set[object] = set()
        self.proposal = Proposal()

    def warn(self, message: str) -> None:
        if message not in self.proposal.warnings:
            self.proposal.warnings.append(message)

    def resolve(self, value: Json) -> dict[str, Any]:
        """Return the object that a value is or refers to; a cycle or a stranger is empty."""
        seen: set[str] = set()
        while isinstance(reference := _object(value).get("$ref"), str):
            value = None
            if reference not in seen and reference.startswith("#/"):
                value = self._document
                for step in reference[2:].split("/"):
                    value = _object(value).get(step.replace("~1", "/").replace("~0", "~"))
            if value is None:
                self.warn(f"`$ref` `{reference[:100]}` leads outside, nowhere or back to itself")
            seen.add(reference)
        return _object(value)

    def add_path(self, path: str, item: Json) -> None:
        """Add a tool for each operation of a path that can be one."""
        found = self.resolve(item)
        for method in METHODS:
            if method in found:
                label = f"{method.upper()} {path}"
                operation = self.resolve(found[method])
                lists = (found.get("parameters"), operation.get("parameters"))
                parameters = [self.resolve(one) for items in lists for one in _list(items)]
                if problem := self._add(method, path, operation, parameters):
                    self.warn(f"{label}: left out: {problem}")
        if "servers" in found:
            self.warn(f"{path}: its own `servers` are left out")

    def _add(
        self, method: str, path: str, operation: dict[str, Any], parameters: list[dict[str, Any]]
    ) -> str:
        """Add an operation; return why it cannot be a tool, empty if it is one."""
        url = self._base + _PARAMETER.sub(lambda found: f"{{{_variable(found[1])}}}", path)
        try:
            template = UrlTemplate.parse(url)
        except ValueError as error:
            return str(error)
        key = (method, template.origin, template.shape)
        if key in self._taken:
            return "another path has the same shape"
        self._taken.add(key)
        content = _object(self.resolve(operation.get("requestBody")).get("content"))
        kinds = {BODIES.get(str(media).split(";")[0].strip().lower()): media for media in content}
        kind = next(filter(None, kinds), None)
        if content and kind is None:
            return "its body is neither json, form nor multipart"
        if len(content) > 1:
            self.warn(f"{method.upper()} {path}: only its {kind} body is accepted")
        schema = self.resolve(content[kinds[kind]]).get("schema") if kind else None
        fields = [*self.parameters(parameters), *self.fields(schema, "$.body")]
        receivers = (f.path for f in fields if argument_kind(f.name, f.schema) in RECEIVERS)
        destinations = () if method in READING else tuple(dict.fromkeys(receivers))
        flat = {"$.query"} if kind == "json" else {"$.query", "$.body"}
        repeat = [f.name for f in fields if f.schema.get("type") == "array" and f.parent in flat]
        given = str(operation.get("operationId") or f"{method}_{path.strip('/')}")
        tool = self._tool_name(given, method)
        http = {"tool": tool, "method": [method.upper()], "url": url, "body": kind or "none"}
        mapping: dict[str, Any] = {"match": [tool], "role": Role.RETRIEVE}
        if method not in READING:
            action = suggested_action(tool, method=method.upper())
            mapping["role"] = Role.SEND if destinations else Role.OTHER
            mapping["action"] = action or ("send" if destinations else None)
            mapping["destinations"] = destinations
        summary = " ".join(str(operation.get("summary") or given).split())[:200]
        http["repeat"] = list(dict.fromkeys(repeat))
        self.proposal.tools.append((summary, http, mapping))
        return ""

    def _tool_name(self, given: str, method: str) -> str:
        name = plain = _NAME.sub("_", given).strip("_.-")[:120] or method
        number = 1
        while name in self._taken:
            number += 1
            name = f"{plain}_{number}"
        self._taken.add(name)
        return name

    def parameters(self, parameters: list[dict[str, Any]]) -> Iterator[_Field]:
        """Yield the parameters in path and query."""
        for one in parameters:
            name, place = one.get("name"), one.get("in")
            if isinstance(name, str) and place in {"path", "query"}:
                shown = _variable(name) if place == "path" else name
                schema = self._schema(one.get("schema"))
                if one.get("explode") is False:
                    schema = {**schema, "type": "string"}
                yield _Field(shown, f"$.{place}", schema)

    def fields(self, schema: Json, root: str) -> Iterator[_Field]:
        """Yield the fields of a body; a schema that contains itself is looked into once."""
        stack: list[tuple[Json, str, frozenset[int]]] = [(schema, root, frozenset())]
        room = MAX_FIELDS
        while stack:
            value, path, above = stack.pop()
            room -= 1
            if room < 0:
                self.warn("an operation has too many fields; not all were looked at")
                return
            found = self.resolve(value)
            if id(found) in above or len(above) >= MAX_DEPTH:
                continue
            inside = above | {id(found)}
            for word in ("allOf", "oneOf", "anyOf"):
                stack += ((part, path, inside) for part in _list(found.get(word)))
            if "items" in found:
                stack.append((found["items"], f"{path}[*]", inside))
            for name, inner in _object(found.get("properties")).items():
                member = _Field(str(name), path, self._schema(inner))
                yield member
                stack.append((inner, member.path, inside))

    def _schema(self, value: Json) -> dict[str, Any]:
        found = self.resolve(value)
        return {**found, "items": self.resolve(found.get("items"))}


_HEAD: Final = """\
# Proposed by `guard policy import-openapi`.
# Roles, actions and destinations are guesses by method and name: review each.  A tool with role
# `other` may be a send or a save.
version: 1
name: {name}
http_tools:"""


def policy_lines(proposal: Proposal, name: str) -> Iterator[str]:
    """Yield a policy file without rules that maps the proposed tools, part by part."""
    yield _HEAD.format(name=json.dumps(name))
    for summary, http, _ in proposal.tools:
        text = "".join(char if char.isprintable() else " " for char in summary)
        yield f"  # {text}\n  - {_entry(http)}"
    yield "tools:"
    for _, _, mapping in proposal.tools:
        yield f"  - {_entry(mapping)}"


def _entry(fields: Mapping[str, Any]) -> str:
    """Return an entry on one line, without what is empty."""
    return json.dumps({name: value for name, value in fields.items() if value})
