"""From an OpenAPI 3 document to a proposal of HTTP tools.  Pure: no I/O.

The proposal is a start for a person who knows the service: what a tool does is guessed from its
method, where its destinations are from the names and formats of its fields.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from guard.core.model import Json, Role
from guard.policy.proposal import argument_path, suggested_action
from guard.protocols.http.tools import UrlTemplate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from guard.core.mappings import ActionName

METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options")
READING: Final = frozenset({"get", "head", "options"})
BODIES: Final = {
    "application/json": "json",
    "application/x-www-form-urlencoded": "form",
    "multipart/form-data": "multipart",
}
DESTINATION_NAMES: Final = frozenset(
    {"to", "cc", "bcc", "recipient", "recipients", "email", "emails", "address", "addresses"}
    | {"url", "uri", "webhook", "webhook_url", "callback", "callback_url", "endpoint", "target"}
    | {"destination", "channel", "share_with", "invitees", "attendees", "phone", "reply_to"}
)
DESTINATION_FORMATS: Final = frozenset({"email", "idn-email", "uri", "url", "hostname"})
MAX_DEPTH: Final = 8
"""Nesting of a body that is looked into; deeper fields are still looked through at run time."""
MAX_FIELDS: Final = 5000
"""Fields of one operation that are looked at."""
_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_PARAMETER: Final = re.compile(r"\{([^{}/]+)\}")


@dataclass(frozen=True, slots=True)
class ProposedTool:
    """One operation as a tool."""

    tool: str
    method: str
    url: str
    body: str
    repeat: tuple[str, ...]
    role: Role
    destinations: tuple[str, ...]
    summary: str

    @property
    def action(self) -> ActionName | None:
        """Likely action, by method and name."""
        reads = self.method.lower() in READING
        return None if reads else suggested_action(self.tool, method=self.method)


@dataclass(slots=True)
class Proposal:
    """Result of reading a document: mappings, and parts that could not be used."""

    tools: list[ProposedTool] = field(default_factory=list)
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
    paths = document.get("paths")
    if not isinstance(paths, dict):
        raise GuardError("the document has no `paths`")
    reader = _Reader(document, Proposal())
    base = (server or _server(document)).rstrip("/")
    try:
        UrlTemplate.parse(base or "/")
    except ValueError as error:
        raise GuardError(f"server: {error}; give one with `--server`") from error
    taken: set[object] = set()
    for path, item in paths.items():
        for method, operation, shared in reader.operations(str(path), item):
            _add(reader, (base, str(path), method), {**operation, "shared": shared}, taken)
    return reader.proposal


def _server(document: Mapping[str, Json]) -> str:
    servers = document.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else {}
    url = first.get("url") if isinstance(first, dict) else None
    if not isinstance(url, str):
        return ""
    variables = first.get("variables")
    for name, value in (variables if isinstance(variables, dict) else {}).items():
        if isinstance(value, dict) and isinstance(value.get("default"), str):
            url = url.replace("{" + str(name) + "}", value["default"])
    return url


def _add(
    reader: _Reader, where: tuple[str, str, str], operation: dict[str, Json], taken: set[object]
) -> None:
    base, path, method = where
    label = f"{method.upper()} {path}"
    url = base + _PARAMETER.sub(lambda found: "{" + _variable(found[1]) + "}", path)
    try:
        template = UrlTemplate.parse(url)
    except ValueError as error:
        reader.warn(f"{label}: left out: {error}")
        return
    key = (method, template.origin, template.shape)
    if key in taken:
        reader.warn(f"{label}: left out: another path has the same shape")
        return
    taken.add(key)
    kind, schema = reader.body(operation, label)
    if kind is None:
        return
    fields = [*reader.parameters(operation), *reader.fields(schema, "$.body")]
    name = _tool_name(operation, where)
    numbered = (f"{name}_{number}" if number > 1 else name for number in count(1))
    tool = next(one for one in numbered if one not in taken)
    taken.add(tool)
    destinations = () if method in READING else _destinations(fields)
    role = Role.RETRIEVE if method in READING else Role.SEND if destinations else Role.OTHER
    flat = {"$.query", "$.body"} if kind in {"form", "multipart"} else {"$.query"}
    repeat = dict.fromkeys(f.name for f in fields if f.is_list and f.parent in flat)
    summary = str(operation.get("summary") or operation.get("operationId") or label)
    reader.proposal.tools.append(
        ProposedTool(
            tool,
            method.upper(),
            url,
            kind,
            tuple(repeat),
            role,
            destinations,
            " ".join(summary.split())[:200],
        )
    )


def _tool_name(operation: Mapping[str, Json], where: tuple[str, str, str]) -> str:
    _, path, method = where
    given = operation.get("operationId")
    name = given if isinstance(given, str) else f"{method}_{path.strip('/')}"
    return _NAME.sub("_", name).strip("_.-")[:120] or method


def _variable(name: str) -> str:
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"


def _destinations(fields: list[_Field]) -> tuple[str, ...]:
    found = (f.path for f in fields if f.name.lower() in DESTINATION_NAMES or f.is_address)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    parent: str
    path: str
    is_list: bool
    is_address: bool


class _Reader:
    """Follows references inside one document."""

    def __init__(self, document: Json, proposal: Proposal) -> None:
        self._document = document
        self.proposal = proposal

    def warn(self, message: str) -> None:
        if message not in self.proposal.warnings:
            self.proposal.warnings.append(message)

    def resolve(self, value: Json) -> dict[str, Any]:
        """Return the object that a value is or refers to; a cycle or a stranger is empty."""
        seen: set[str] = set()
        while isinstance(value, dict) and isinstance(value.get("$ref"), str):
            reference = value["$ref"]
            if reference in seen:
                self.warn(f"`$ref` `{reference[:100]}` leads back to itself")
                return {}
            seen.add(reference)
            value = self._target(reference)
        return value if isinstance(value, dict) else {}

    def _target(self, reference: str) -> Json:
        if not reference.startswith("#/"):
            self.warn(f"`$ref` `{reference[:100]}` leads outside the document and is left out")
            return None
        value = self._document
        for step in reference[2:].split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            elif isinstance(value, dict) and key in value:
                value = value[key]
            else:
                self.warn(f"`$ref` `{reference[:100]}` leads nowhere")
                return None
        return value

    def operations(self, path: str, item: Json) -> Iterator[tuple[str, dict[str, Json], Json]]:
        """Yield method, operation and the parameters of its path."""
        found = self.resolve(item)
        for method in METHODS:
            if method in found:
                yield method, self.resolve(found[method]), found.get("parameters")
        if "servers" in found:
            self.warn(f"{path}: its own `servers` are left out")

    def body(self, operation: Mapping[str, Json], label: str) -> tuple[str | None, Json]:
        """Return the kind of the body and its schema; None where no kind is understood."""
        content = self.resolve(operation.get("requestBody")).get("content")
        if not isinstance(content, dict) or not content:
            return "none", None
        for media, entry in content.items():
            kind = BODIES.get(str(media).split(";")[0].strip().lower())
            if kind is not None:
                if len(content) > 1:
                    self.warn(f"{label}: only its {kind} body is accepted")
                return kind, self.resolve(entry).get("schema")
        self.warn(f"{label}: left out: its body is neither json, form nor multipart")
        return None, None

    def parameters(self, operation: Mapping[str, Json]) -> Iterator[_Field]:
        """Yield the parameters in path and query."""
        lists = (operation.get("shared"), operation.get("parameters"))
        for entry in (one for items in lists if isinstance(items, list) for one in items):
            parameter = self.resolve(entry)
            name, place = parameter.get("name"), parameter.get("in")
            if not isinstance(name, str) or place not in {"path", "query"}:
                continue
            schema = self.resolve(parameter.get("schema"))
            shown = _variable(name) if place == "path" else name
            is_list = schema.get("type") == "array" and parameter.get("explode") is not False
            parent = f"$.{place}"
            yield _Field(
                shown, parent, argument_path(shown, parent), is_list, self._is_address(schema)
            )

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
                parts = found.get(word)
                stack.extend(
                    (part, path, inside) for part in (parts if isinstance(parts, list) else ())
                )
            if "items" in found:
                stack.append((found["items"], f"{path}[*]", inside))
            properties = found.get("properties")
            for name, inner in (properties if isinstance(properties, dict) else {}).items():
                member = argument_path(str(name), path)
                target = self.resolve(inner)
                is_list = target.get("type") == "array"
                yield _Field(str(name), path, member, is_list, self._is_address(target))
                stack.append((inner, member, inside))

    def _is_address(self, schema: Mapping[str, Json]) -> bool:
        items = self.resolve(schema.get("items"))
        return bool({schema.get("format"), items.get("format")} & DESTINATION_FORMATS)


_HEAD: Final = """\
# Proposed by `guard policy import-openapi`.
# Roles and destinations are guesses: read each.
version: 1
name: {name}
http_tools:"""


def policy_lines(proposal: Proposal, name: str) -> Iterator[str]:
    """Yield a policy file without rules that maps the proposed tools, part by part."""
    yield _HEAD.format(name=json.dumps(name))
    for tool in proposal.tools:
        head = (
            f"tool: {json.dumps(tool.tool)}, method: [{tool.method}], url: {json.dumps(tool.url)}"
        )
        more = f", body: {tool.body}" if tool.body != "none" else ""
        more += f", repeat: {json.dumps(tool.repeat)}" if tool.repeat else ""
        summary = "".join(char if char.isprintable() else " " for char in tool.summary)
        yield f"  # {summary}\n  - {{{head}{more}}}"
    yield "tools:"
    for role in (Role.RETRIEVE, Role.OTHER):
        for action in dict.fromkeys(one.action for one in proposal.tools if one.role is role):
            same = [o.tool for o in proposal.tools if o.role is role and o.action == action]
            review = "" if role is Role.RETRIEVE else "  # review: is one of them a send or a save?"
            yield (
                f"  - match: {json.dumps(same)}\n    role: {role.value}{review}"
                f"{_action_line(action)}"
            )
    for tool in proposal.tools:
        if tool.role is Role.SEND:
            yield (
                f"  - match: [{json.dumps(tool.tool)}]\n    role: send"
                f"{_action_line(tool.action or 'send')}\n"
                f"    destinations: {json.dumps(tool.destinations)}"
            )


def _action_line(action: ActionName | None) -> str:
    return f"\n    action: {action}  # by method and name; review" if action else ""
