"""What an MCP server says besides results: listings, instructions, its own requests.  Pure: no I/O.

Told by its form and not by the request it answers: a listing may come back in another exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.core.definitions import Told, ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.core.model import Json

_LISTINGS: Final = {
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}
"""The member by which a result is known, and the method it answers."""
_READ: Final = frozenset({"sampling/createMessage"})
"""Requests of the server whose text a model goes on from."""
_SHOWN: Final = frozenset({"elicitation/create"})
"""Requests of the server whose text a person is shown."""


def endpoint_path(target: str) -> str:
    """Return the path of a request target or URL, without query and final slash."""
    return "/" + urlsplit(target).path.strip("/")


def told_in(content: Json) -> list[Told]:
    """Return what the messages of a body, or of an event, say besides results of calls."""
    items = content if isinstance(content, list) else [content]
    return [told for item in items if isinstance(item, dict) for told in _told(item)]


def _told(item: dict[str, Json]) -> Iterator[Told]:
    method, result = item.get("method"), item.get("result")
    if isinstance(method, str):
        if method in _READ | _SHOWN:
            yield Told(method, item.get("params"), is_read=method in _READ)
        return
    if not isinstance(result, dict) or "content" in result:
        return
    tools = result.get("tools")
    if isinstance(tools, list):
        definitions = tuple(
            ToolDefinition(tool["name"], tool)
            for tool in tools
            if isinstance(tool, dict) and isinstance(tool.get("name"), str)
        )
        yield Told("tools/list", tools, definitions)
    for member, source in _LISTINGS.items():
        if isinstance(result.get(member), list):
            yield Told(source, result[member])
    if isinstance(result.get("instructions"), str):
        yield Told("initialize", result["instructions"])
