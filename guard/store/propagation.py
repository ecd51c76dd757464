"""The propagation graph and incidents in Redis, as operators' tools read and change them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.extensions.propagation.events import (
    ENTRY,
    NODE,
    log_of,
    node_of,
    read_text,
    readable,
    texts_of,
)
from guard.extensions.propagation.graph import Graph
from guard.store.staging import MemoryKeys

if TYPE_CHECKING:
    from guard.core.model import Json
    from guard.provenance.seal import Seal
    from guard.store.store import RedisSessionStore

_TEXTS: Final = 100
PAGE: Final = 1000
"""Events that one command reads: no command holds Redis for more than a few milliseconds."""


async def read_texts(
    store: RedisSessionStore, seal: Seal, tenant: str, nodes: set[bytes]
) -> dict[bytes, tuple[str, dict[str, Json]]]:
    """Return the saves whose text is kept, by node: the tool and its arguments.

    Raises:
        StateError: the store did not answer.
    """
    area = texts_of(tenant)
    key = store.key_of(tenant, area)
    found: dict[bytes, tuple[str, dict[str, Json]]] = {}
    place: bytes = b"-"
    while True:
        entries = await store.client.rows("XRANGE", key, place, "+", "COUNT", _TEXTS)
        for _, fields in entries:
            if fields[1][:NODE] in nodes:
                text = read_text(seal, area, fields[1])
                if text is not None:
                    found[text[0]] = text[1:]
        if len(entries) < _TEXTS:
            return found
        place = b"(" + entries[-1][0]


async def read_staged(
    store: RedisSessionStore, seal: Seal, tenant: str, nodes: set[bytes]
) -> dict[bytes, tuple[str, dict[str, Json]]]:
    """Return the saves whose text the memory gate still has, by node: the tool and its arguments.

    It keeps what it staged for some days, and without what the policy hides of it.

    Raises:
        StateError: the store did not answer.
    """
    found: dict[bytes, tuple[str, dict[str, Json]]] = {}
    async for page in store.client.scan(MemoryKeys(store.namespace, tenant).candidates):
        for key in page:
            values = await store.client.rows("HMGET", key, "id", "tool", "content")
            # A text that is cut or altered says nothing.
            with suppress(ValueError):
                identifier, tool, content = (one.decode() for one in values if one)
                node, arguments = node_of(seal, identifier), json.loads(content)
                if node in nodes and isinstance(arguments, dict):
                    found[node] = tool, arguments
    return found


@dataclass(frozen=True, slots=True)
class Log:
    """A part of a tenant's log of events."""

    bodies: list[bytes]
    """Bodies of the events whose seals fit."""
    altered: int
    last: bytes
    """Id of the last entry, the one before the part where it is empty."""


async def read_log(store: RedisSessionStore, seal: Seal, tenant: str, after: bytes = b"") -> Log:
    """Return the events of a tenant that came after an entry; left out, all.

    Raises:
        StateError: the store did not answer, or with something else than a log.
    """
    area = log_of(tenant)
    key = store.key_of(tenant, area)
    bodies: list[bytes] = []
    altered, last = 0, after
    place = b"(" + after if after else b"-"
    while True:
        page = await store.client.rows("XRANGE", key, place, "+", "COUNT", PAGE)
        records = [fields[1] if len(fields) > 1 else b"" for _, fields in page]
        for body in seal.opened_all(area, ENTRY, records):
            if body is not None and readable(body):
                bodies.append(body)
            else:
                altered += 1
        if page:
            last = page[-1][0]
            place = b"(" + last
        if len(page) < PAGE:
            return Log(bodies, altered, last)


async def read_graph(store: RedisSessionStore, seal: Seal, tenant: str) -> Graph:
    """Return the graph of a tenant's events, with what is known to be missing from it.

    Raises:
        StateError: the store did not answer, or with something else than a log.
    """
    log = await read_log(store, seal, tenant)
    return Graph(log.bodies, number_of(log.last) - len(log.bodies) - log.altered, log.altered)


def number_of(entry: bytes) -> int:
    """Return how many events a tenant had had with an entry of its log."""
    return int(entry.partition(b"-")[0] or 0)
