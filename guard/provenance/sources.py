"""Which sources a tool's result comes from: senders and URL hosts, never the whole tool.  Pure.

A source is what the call names as the place it reads (a URL in its arguments), and who sent the
messages in its result, where the policy says where senders are.  No I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.json_values import strings_in_order
from guard.core.model import Integrity
from guard.destinations.canonical import find_destinations
from guard.provenance.result_documents import messages_document, roots_of
from guard.provenance.senders import senders_in, source_mark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.core.calls import ToolResult
    from guard.core.model import Json
    from guard.core.tool_mapping import MessageFields, ToolMapping

MOST: Final = 64
"""Sources of one result; beyond it the rest is not looked at, and the session has no known one."""
NONE: Final = frozenset[str]()


def marks_of(result: ToolResult) -> frozenset[bytes]:
    """Return the marks of an untrusted result's sources; worked out where it lacks them."""
    if result.sources is not None:
        return result.sources
    return frozenset(source_mark(name) for name in sources_of(result))


def sources_of(result: ToolResult) -> frozenset[str]:
    """Return the sources of an untrusted result; nothing for what the policy trusts."""
    mapping = result.call.classified.mapping
    if mapping is not None and mapping.source is not Integrity.UNTRUSTED:
        return NONE
    found: set[str] = set()
    for name in _named(result, mapping):
        found.add(name)
        if len(found) > MOST:
            break
    return frozenset(found)


def _named(result: ToolResult, mapping: ToolMapping | None) -> Iterator[str]:
    for text in strings_in_order(dict(result.call.call.arguments)):
        yield from (found.host for found in find_destinations(text) if found.kind == "url")
    if mapping is not None and mapping.messages is not None:
        yield from _senders(result.content, mapping.messages)


def _senders(content: Json, messages: MessageFields) -> Iterator[str]:
    for root in roots_of(content):
        for senders in senders_in(messages_document(root, messages), messages).values():
            yield from senders
