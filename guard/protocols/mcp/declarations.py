"""Declarations of MCP servers: listings, instructions, requests of the server.  Pure: no I/O.

Known by their form and not by the request they answer: a listing may come in another exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.declarations import Declaration, ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def declarations_in(content: Json) -> list[Declaration]:
    """Return the declarations in the messages of a body or of an event."""
    items = content if isinstance(content, list) else [content]
    return [found for item in items if isinstance(item, dict) for found in _declarations(item)]


def _declarations(item: dict[str, Json]) -> Iterator[Declaration]:
    method, result = item.get("method"), item.get("result")
    if isinstance(method, str):
        if method in _READ | _SHOWN:
            yield Declaration(method, item.get("params"), is_read=method in _READ)
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
        yield Declaration("tools/list", tools, definitions)
    for member, source in _LISTINGS.items():
        if isinstance(result.get(member), list):
            yield Declaration(source, result[member])
    if isinstance(result.get("instructions"), str):
        yield Declaration("initialize", result["instructions"])


def without(content: Json, withholds: Callable[[str, Json], bool]) -> Json:
    """Return the messages without the entries of listings, and instructions, that are withheld.

    Args:
        content: of a body or an event.
        withholds: says of a method and an entry of its listing whether it is left out.

    Returns:
        None where nothing is left out.
    """
    items = content if isinstance(content, list) else [content]
    left = [_left_of(item, withholds) for item in items]
    if all(new is old for new, old in zip(left, items, strict=True)):
        return None
    return left if isinstance(content, list) else left[0]


def _left_of(item: Json, withholds: Callable[[str, Json], bool]) -> Json:
    result = item.get("result") if isinstance(item, dict) and "method" not in item else None
    if not isinstance(result, dict) or "content" in result:
        return item
    changed: dict[str, Json] = {}
    for member, source in {"tools": "tools/list", **_LISTINGS}.items():
        entries = result.get(member)
        if isinstance(entries, list):
            kept = [entry for entry in entries if not withholds(source, entry)]
            if len(kept) < len(entries):
                changed[member] = kept
    instructions = result.get("instructions")
    if isinstance(instructions, str) and withholds("initialize", instructions):
        changed["instructions"] = ""
    return {**item, "result": {**result, **changed}} if changed else item
