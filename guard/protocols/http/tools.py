"""Plain HTTP tools: requests that the policy maps to tools by method and URL.  Pure: no I/O.

The call's arguments are ``path`` (the template's variables), ``query`` and ``body``.  A request to
a mapped path that can be read in two ways is refused; one with a method that is not mapped stays
an ``http.request`` call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self
from urllib.parse import unquote_to_bytes

from guard.core.errors import MessageError
from guard.protocols.http.message import (
    REDACTION_FAILED,
    HttpRequest,
    check_charset,
    fields_text,
    json_body,
    parse_fields,
    parse_multipart,
    rewritten,
)
from guard.protocols.http.request import HttpRequestProtocol
from guard.protocols.messages import Message, ParsedCall
from guard.values.canonical import canonical_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from guard.core.model import Json
    from guard.core.policy import Policy
    from guard.protocols.base import ProtocolResources

TEMPLATE_LIMIT: Final = 2000
"""Characters of a URL template."""
_TEMPLATE: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-fA-F:.]+\]|[^/?#\[\]@:{}]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^?#]*)?",
    re.ASCII,
)
_VARIABLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_LITERAL: Final = re.compile(r"[A-Za-z0-9._~!$'()*+,=:@-]+", re.ASCII)
_SEGMENT: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,=:@-]|%[0-9A-Fa-f]{2})+", re.ASCII)
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """``https://host/v1/users/{user}/notes``, taken apart."""

    text: str
    origin: tuple[str, str, int]
    """Scheme, canonical host, port."""
    segments: tuple[str, ...]
    """Literal segments in folded case; a variable is its name in braces."""

    @classmethod
    def parse(cls, text: str) -> UrlTemplate:
        """Take a template apart.

        Raises:
            ValueError: it is not an absolute URL whose variables are whole path segments.
        """
        found = _TEMPLATE.fullmatch(text) if len(text) <= TEMPLATE_LIMIT else None
        host = canonical_host(found["host"]) if found else None
        if found is None or host is None:
            raise ValueError(
                f"`{text[:100]}` is not a URL template; write e.g. "
                "`https://api.example.com/v1/users/{user}/notes`, without a query"
            )
        port = int(found["port"] or _PORTS[found["scheme"]])
        path = (found["path"] or "/").removesuffix("/")
        segments = tuple(_template_segment(segment, text) for segment in path.split("/")[1:])
        names = [segment for segment in segments if segment.startswith("{")]
        if len(set(names)) < len(names):
            raise ValueError(f"`{text[:100]}` has a variable twice; rename one")
        return cls(text, (found["scheme"], host, port), segments)

    @property
    def shape(self) -> tuple[str, ...]:
        """The segments without the variables' names: two templates of one shape are one."""
        return tuple("{}" if segment.startswith("{") else segment for segment in self.segments)

    def match(self, segments: tuple[str, ...]) -> dict[str, str] | None:
        """Return the values of the variables, or None where the path is another."""
        if len(segments) != len(self.segments):
            return None
        values: dict[str, str] = {}
        for wanted, found in zip(self.segments, segments, strict=True):
            if wanted.startswith("{"):
                values[wanted[1:-1]] = found
            elif wanted != found.casefold():
                return None
        return values


@dataclass(frozen=True, slots=True)
class HttpTool:
    """One mapping of requests to a tool."""

    tool: str
    methods: frozenset[str]
    template: UrlTemplate
    body: str = "none"
    """``json``, ``form``, ``multipart`` or ``none``."""
    repeat: frozenset[str] = frozenset()
    """Query and form fields that may occur more than once; their value is always a list."""


class HttpToolTable:
    """The HTTP tools of one policy."""

    def __init__(self, tools: Iterable[HttpTool] = ()) -> None:
        by_origin: dict[tuple[str, str, int], list[HttpTool]] = {}
        for tool in tools:
            by_origin.setdefault(tool.template.origin, []).append(tool)
        # Literal segments before variables, as in OpenAPI: `/users/me` is not a `/users/{user}`.
        self._by_origin: Mapping[tuple[str, str, int], tuple[HttpTool, ...]] = {
            origin: tuple(sorted(found, key=_variables_last)) for origin, found in by_origin.items()
        }

    def __len__(self) -> int:
        return sum(len(tools) for tools in self._by_origin.values())

    def at(self, scheme: str, authority: str) -> tuple[HttpTool, ...]:
        """Return the tools of an origin, given as scheme and ``host`` or ``host:port``."""
        if not self._by_origin:
            return ()
        host, colon, port = authority.rpartition(":")
        if not colon or not port.isdecimal() or host.endswith(":"):
            host, port = authority, str(_PORTS.get(scheme, 0))
        bare = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return self._by_origin.get((scheme, canonical_host(bare) or "", int(port)), ())


def read_path(path: str) -> tuple[str, ...] | None:
    """Return the decoded segments of a request's path, or None where servers may disagree on them.

    Refused: dot segments, empty segments, an encoded slash, backslash, percent sign or control
    character, ``;`` parameters, and what is not UTF-8.  One slash at the end is left away.
    """
    if not path.startswith("/"):
        return None
    trimmed = path.removesuffix("/")
    segments: list[str] = []
    for raw in trimmed.split("/")[1:]:
        text = decode_segment(raw)
        if text is None:
            return None
        segments.append(text)
    return tuple(segments)


def decode_segment(raw: str) -> str | None:
    """Return one path segment decoded once, or None where it can be read in two ways."""
    if not _SEGMENT.fullmatch(raw):
        return None
    try:
        text = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        return None
    if text in {".", ".."} or not text.isprintable() or any(char in text for char in "/\\%;?#"):
        return None
    return text


def _template_segment(segment: str, text: str) -> str:
    if _VARIABLE.fullmatch(segment):
        return segment
    if not _LITERAL.fullmatch(segment) or segment in {".", ".."}:
        raise ValueError(
            f"`{segment[:40]}` in `{text[:100]}` is neither plain text nor one variable; a "
            "variable is a whole segment, `/{name}/`"
        )
    return segment.casefold()


def _variables_last(tool: HttpTool) -> tuple[bool, ...]:
    return tuple(segment.startswith("{") for segment in tool.template.segments)


OVERRIDES: Final = frozenset({"x-http-method-override", "x-http-method", "x-method-override"})
"""Headers by which some servers take another method than the request's."""


class HttpToolsProtocol(HttpRequestProtocol):
    """Requests that the policy in force maps to tools."""

    name: ClassVar[str] = "http_tools"
    is_fallback: ClassVar[bool] = False
    names_hosts: ClassVar[bool] = True
    needs: ClassVar[str] = "http_tools"

    def __init__(self, policy: Callable[[], Policy | None] = lambda: None) -> None:
        self._policy = policy

    @classmethod
    def create(cls, resources: ProtocolResources) -> Self:
        """Return the protocol over the policy in force."""
        return cls(resources.policy)

    def _tools_at(self, request: HttpRequest) -> tuple[HttpTool, ...]:
        """Return the tools that the policy in force has at the address of a request."""
        policy = self._policy()
        table = policy.http_tools if policy is not None else None
        if not isinstance(table, HttpToolTable):
            return ()
        return table.at(request.scheme, request.host)

    def matches(self, request: HttpRequest) -> bool:
        """Return whether the path is a tool's, whatever the method, or may be taken for one."""
        tools = self._tools_at(request)
        segments = read_path(_path(request)) if tools else ()
        return segments is None or any(t.template.match(segments) is not None for t in tools)

    def parse(self, request: HttpRequest) -> Message:
        """Return the request as one call of its tool.

        Raises:
            MessageError: path, query or body can be read in two ways, or are of another kind than
                the policy says.
        """
        segments = read_path(_path(request))
        if segments is None:
            raise MessageError("ambiguous_path", "servers may read this path in different ways")
        if not OVERRIDES.isdisjoint(request.names):
            raise MessageError(
                "bad_http_method", "a header asks for another method, send the method itself"
            )
        for tool in self._tools_at(request):
            values = tool.template.match(segments)
            if values is not None and request.method in tool.methods:
                query = parse_fields(_query(request), tool.repeat)
                arguments: dict[str, Json] = {"path": values, "query": query}
                if tool.body != "none" or request.body:
                    arguments["body"] = _body(request, tool)
                return Message((ParsedCall(tool.tool, arguments),))
        if request.method.upper() != request.method:
            raise MessageError(
                "bad_http_method", f"method `{request.method[:20]}` is not in upper case"
            )
        return super().parse(request)

    def rewrite(self, request: HttpRequest, arguments: Sequence[Mapping[str, Json]]) -> HttpRequest:
        """Put other values into the query and the body.

        Raises:
            MessageError: it is not a tool's, or its body is one that is not written anew.
        """
        wanted = arguments[0]
        if "query" not in wanted:
            return super().rewrite(request, arguments)
        path, query = _path(request), fields_text(wanted["query"])
        target = f"{path}?{query}" if query else path
        if "body" not in wanted:
            return rewritten(request, target=target)
        if request.media_type == _MEDIA_TYPES["form"]:
            return rewritten(request, target=target, body=fields_text(wanted["body"]).encode())
        if request.media_type == _MEDIA_TYPES["multipart"]:
            raise MessageError(REDACTION_FAILED, "a multipart body is not rewritten")
        return rewritten(request, target=target, body=json_body(request, wanted["body"]))


def _path(request: HttpRequest) -> str:
    return request.target.partition("?")[0]


def _query(request: HttpRequest) -> str:
    query = request.target.partition("?")[2]
    if "#" in request.target:
        raise MessageError("ambiguous_path", "a request target has no fragment")
    return query


_MEDIA_TYPES: Final = {
    "form": "application/x-www-form-urlencoded",
    "multipart": "multipart/form-data",
}


def _body(request: HttpRequest, tool: HttpTool) -> Json:
    if tool.body == "none":
        raise MessageError("unexpected_body", "this tool takes no body")
    content_type = request.header("content-type") or ""
    media = request.media_type
    is_json = media == "application/json" or (
        media.startswith("application/") and media.endswith("+json")
    )
    if not (is_json if tool.body == "json" else media == _MEDIA_TYPES[tool.body]):
        raise MessageError(
            "bad_content_type", f"this tool takes {tool.body}, not `{media[:60]}`", status=415
        )
    check_charset(content_type)
    if tool.body == "json":
        return request.json()
    if tool.body == "multipart":
        return parse_multipart(request.body, content_type, tool.repeat)
    try:
        text = request.body.decode("ascii")
    except UnicodeDecodeError as error:
        raise MessageError("bad_fields", "the form has a raw character") from error
    return parse_fields(text, tool.repeat)
