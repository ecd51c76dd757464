"""Declarations of MCP servers: listings, instructions, requests of the server.  Pure: no I/O.

Known by their form and not by the request they answer: a listing may come in another exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.calls import ANSWER, ELICITATION, ROOTS, SAMPLING
from guard.core.declarations import Declaration, ToolDefinition
from guard.protocols.framing.json_messages import correlation
from guard.protocols.mcp.grammar import ERROR, RESULT, SERVER, is_id, outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guard.core.model import Json

_LISTINGS: Final = {
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}
"""The member by which a result is known, and the method it answers."""
_ANSWERED_BY: Final = {
    "elicitation/create": ELICITATION,
    "sampling/createMessage": SAMPLING,
    "roots/list": ROOTS,
}
"""Answer to a server's question, by its method."""
OTHER: Final = "mcp.text"
"""Content of an answer other than messages of the protocol."""
_MEMBERS: Final = frozenset({"jsonrpc", "id", "result", "error"})
_LISTED: Final = frozenset({"tools", "instructions", *_LISTINGS})


def declarations_in(content: Json) -> list[Declaration]:
    """Return the declarations in the messages of a body or of an event."""
    items = content if isinstance(content, list) else [content]
    found: list[Declaration] = []
    for item in items:
        if isinstance(item, dict):
            found += _declarations(item)
            found += _other_texts(item)
        elif item is not None:
            found.append(Declaration(OTHER, item))
    return found


def _other_texts(item: dict[str, Json]) -> Iterator[Declaration]:
    """Yield what a message says besides a result, a listing, and what its grammar describes."""
    method = item.get("method")
    if isinstance(method, str):
        found = {"params": outside(item.get("params"), SERVER.get(method, {}))}
        found["id"] = None if item.get("id") is None or is_id(item["id"]) else item["id"]
        known = _MEMBERS - {"result", "error"} | {"method", "params"}
        found |= {name: value for name, value in item.items() if name not in known}
    else:
        found = {name: value for name, value in item.items() if name not in _MEMBERS}
        if item.get("id") is None:
            # Nobody asked for it: an error that names no request.
            found["error"] = outside(item.get("error"), ERROR)
    kept = {name: value for name, value in found.items() if value is not None}
    if kept:
        yield Declaration(method if isinstance(method, str) else OTHER, kept)


def unlisted(result: Json, *, is_error: bool) -> Json:
    """Return what the result of a request that is not a call says besides listings and its form."""
    if is_error:
        return outside(result, ERROR)
    if not isinstance(result, dict):
        return result
    rest = result if "content" in result else {k: result[k] for k in result if k not in _LISTED}
    return outside(rest, RESULT)


def said_in(content: Json) -> list[str]:
    """Return the cursors, ids of tasks and request states in the messages of a body or an event."""
    found: list[Json] = []
    for item in content if isinstance(content, list) else [content]:
        parts = [item.get("result"), item.get("params")] if isinstance(item, dict) else []
        for part in parts:
            if isinstance(part, dict):
                found += (part.get(name) for name in ("nextCursor", "requestState", "taskId"))
                tasks = part.get("tasks")
                for task in (part.get("task"), *(tasks if isinstance(tasks, list) else ())):
                    found.append(task.get("taskId") if isinstance(task, dict) else None)
    return [value for value in found if isinstance(value, str)]


def asked_in(content: Json) -> list[str]:
    """Return the marks of what a server asks its client, in a body or an event."""
    found: list[str] = []
    for item in content if isinstance(content, list) else [content]:
        if not isinstance(item, dict):
            continue
        identifier, result = item.get("id"), item.get("result")
        if isinstance(item.get("method"), str) and isinstance(identifier, str | int):
            found += _asked(f"request {correlation(identifier)}", item)
        wanted = result.get("inputRequests") if isinstance(result, dict) else None
        for name, one in wanted.items() if isinstance(wanted, dict) else ():
            found += _asked(f"input {name}", one)
    return found


def _asked(mark: str, request: Json) -> tuple[str, ...]:
    """Return the marks of one request: for any answer, and for one of the kind that it asks for."""
    method = request.get("method") if isinstance(request, dict) else None
    kind = _ANSWERED_BY.get(method) if isinstance(method, str) else None
    return (mark,) if kind is None else (mark, answered(mark, kind))


def answered(mark: str, kind: str) -> str:
    """Return the mark of a question whose answer is of a kind; an error answers any."""
    return mark if kind == ANSWER else f"{mark} {kind}"


def _declarations(item: dict[str, Json]) -> Iterator[Declaration]:
    result = item.get("result")
    if "method" in item or not isinstance(result, dict) or "content" in result:
        return
    tools = result.get("tools")
    if isinstance(tools, list):
        definitions = tuple(
            ToolDefinition(tool["name"], tool)
            for tool in tools
            if isinstance(tool, dict) and isinstance(tool.get("name"), str)
        )
        yield Declaration("tools/list", tools, definitions, is_listing=True)
    for member, source in _LISTINGS.items():
        if isinstance(result.get(member), list):
            yield Declaration(source, result[member], is_listing=True)
    if isinstance(result.get("instructions"), str):
        yield Declaration("initialize", result["instructions"], is_listing=True)


def without(content: Json, withholds: Callable[[str, Json], bool]) -> Json:
    """Return the messages without the entries of listings, and instructions, that are withheld.

    Args:
        content: of a body or an event.
        withholds: says of a method and an entry of its listing whether it is left out.

    Returns:
        None where nothing is left out.
    """
    items = content if isinstance(content, list) else [content]
    remaining = [_without_entries(item, withholds) for item in items]
    if all(new is old for new, old in zip(remaining, items, strict=True)):
        return None
    return remaining if isinstance(content, list) else remaining[0]


def _without_entries(item: Json, withholds: Callable[[str, Json], bool]) -> Json:
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
