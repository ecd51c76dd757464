"""Which calls are memory writes, and what of them is remembered.  Pure: no I/O."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.core.calls import SAVING
from guard.core.json_values import strings_in_order
from guard.core.jsonpath import member_path
from guard.core.memory import MemoryClass
from guard.core.memory_policy import WriteMapping
from guard.core.model import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.calls import ClassifiedCall
    from guard.core.memory_policy import MemoryPolicy
    from guard.core.model import Json, ToolCall
    from guard.core.tool_mapping import PathQuery

UNMAPPED: Final = WriteMapping("", lambda _: True, "", MemoryClass.L1)
"""A save that no entry of ``memory.writes`` claims counts as a write of the highest class."""


def write_of(memory: MemoryPolicy | None, call: ToolCall, role: Role) -> WriteMapping | None:
    """Return what the policy says of a call as a write; None where it is none."""
    if memory is None:
        return None
    method, path = "", ""
    if call.protocol == "http":
        method = str(call.arguments.get("method", ""))
        path = urlsplit(str(call.arguments.get("url", ""))).path
    found = memory.write(call.tool, method, path)
    return found or (UNMAPPED if role is Role.SAVE else None)


def remembered_texts(call: ToolCall, mapping: WriteMapping) -> list[str]:
    """Return the texts of a call that its store would remember."""
    document = written_document(call)
    return list(texts_at(mapping.content, document, hidden_paths(mapping, document)))


def hidden_paths(mapping: WriteMapping, document: Json) -> set[str]:
    """Return the paths of what is no content: nonce and token."""
    queries = [query for query in (mapping.nonce, mapping.token) if query is not None]
    return {path for query in queries for path, _ in query.find(document)}


def written_document(call: ToolCall) -> dict[str, Json]:
    """Return the arguments; the body of a plain request as JSON where it is JSON."""
    document = dict(call.arguments)
    body = document.get("body")
    if call.protocol == "http" and isinstance(body, str):
        with contextlib.suppress(ValueError, RecursionError):
            document["body"] = json.loads(body)
    return document


def saved_document(classified: ClassifiedCall) -> Mapping[str, Json]:
    """Return what of a call's arguments a store would keep: of a plain request, its body."""
    call = classified.call
    if call.protocol == "http" and classified.role not in SAVING and "body" in call.arguments:
        return {"body": written_document(call)["body"]}
    return call.arguments


def texts_at(queries: Sequence[PathQuery], document: Json, hidden: set[str]) -> Iterator[str]:
    """Yield the strings that the queries select; without queries, all but the hidden members'."""
    if not queries:
        yield from strings_in_order(without_members(document, hidden))
        return
    for query in queries:
        for _, value in query.find(document):
            yield from strings_in_order(value)


def without_members(arguments: Mapping[str, Json], hidden: set[str]) -> dict[str, Json]:
    """Return the arguments without those at the hidden paths."""
    return {
        name: value for name, value in arguments.items() if member_path("$", name) not in hidden
    }
