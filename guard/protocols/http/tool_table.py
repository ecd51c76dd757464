"""Plain HTTP requests as tools: method and URL template to a tool's name.  Pure: no I/O.

A template fixes scheme, host and port; only whole path segments may vary.  Paths are compared
after one strict decoding, without regard to case and a last slash, because a server may take what
the template's author did not think of: a request that is read as a tool too often is judged, one
that is read as a tool too seldom is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.destinations.hosts import canonical_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
        bare = host if not _is_bare_ipv6(host) else f"[{host}]"
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
        text = re.sub(rb"%([0-9A-Fa-f]{2})", _byte, raw.encode("ascii")).decode("utf-8")
    except UnicodeDecodeError:
        return None
    if text in {".", ".."} or not text.isprintable() or any(char in text for char in "/\\%;?#"):
        return None
    return text


def _byte(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 16)])


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


def _is_bare_ipv6(host: str) -> bool:
    return ":" in host and not host.startswith("[")
