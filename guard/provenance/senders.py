"""Who sent the messages of a result, and the marks that sources are known by.  Pure: no I/O."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

from guard.destinations.canonical import find_destinations

if TYPE_CHECKING:
    from guard.core.model import Json
    from guard.core.tool_mapping import MessageFields


@lru_cache(maxsize=8192)
def source_mark(name: str) -> bytes:
    """Return what a sender or URL host is known by in records and trust keys: 12 bytes."""
    data = name.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=12, person=b"source").digest()


def senders_in(document: Json, messages: MessageFields) -> dict[str, tuple[str, ...]]:
    """Return who sent each message of a document, by the message's path."""
    return {
        path: tuple(
            found.canonical
            for _, sender in messages.sender.find(message)
            for found in find_destinations(str(sender))
        )
        for path, message in messages.each.find(document)
    }
