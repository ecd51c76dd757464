"""All that Redis holds for a tenant, key by key and whatever its type, to compare two moments."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guard.core.errors import GuardError
from guard.extensions.propagation.containment import EPOCH, contained_set
from guard.extensions.propagation.incident import incidents_of, journal_of
from guard.store.layout import tenant_tag

if TYPE_CHECKING:
    from guard.store.store import RedisSessionStore

_READS: Final[dict[bytes, tuple[str | int, ...]]] = {
    b"hash": ("HGETALL",),
    b"string": ("GET",),
    b"list": ("LRANGE", 0, -1),
    b"set": ("SMEMBERS",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    b"stream": ("XRANGE", "-", "+"),
}
"""The command that reads a whole key of each type, and what follows the key's name."""


_GONE: Final = -2
"""Answer of ``PTTL`` for a key that has expired meanwhile."""


class Stored(NamedTuple):
    """One key."""

    kind: bytes
    """Its type, as ``TYPE`` names it."""
    content: Any
    """All of it, in an order that does not depend on when what was written."""
    expires: float | None
    """Time at which it expires by itself, in seconds of the monotonic clock, or a little later;
    None where it stays."""


async def stored_state(store: RedisSessionStore, tenant: str = "default") -> dict[bytes, Stored]:
    """Return everything but the records and journals of incidents, and the epoch of containment.

    These tell what was done and undone, so they only ever grow.

    Args:
        store: connected; its namespace is the guard's.
        tenant: whose state.

    Raises:
        GuardError: a key is of a type that this does not know.
    """
    incidents = store.key_of(tenant, incidents_of(tenant))
    listed: Any = await store.client.execute("HKEYS", incidents)
    journals = (journal_of(tenant, name.decode()) for name in listed)
    left_out = {incidents, *(store.key_of(tenant, one) for one in journals)}
    found: dict[bytes, Stored] = {}
    async for page in store.client.scan(f"{store.namespace}:{{{tenant_tag(tenant)}}}:"):
        for key in page:
            stored = None if key in left_out else await _read(store, key)
            if stored is not None:
                found[key] = stored
    contained = store.key_of(tenant, contained_set(tenant))
    if contained in found and not found[contained].content.keys() - {EPOCH}:
        del found[contained]
    elif contained in found:
        found[contained].content.pop(EPOCH, None)
    return found


async def _read(store: RedisSessionStore, key: bytes) -> Stored | None:
    """Return a key, None where it has gone."""
    kind: Any = await store.client.execute("TYPE", key)
    if kind == b"none":
        return None
    if kind not in _READS:
        raise GuardError(f"a key of the type {kind!r} cannot be compared")
    command, *more = _READS[kind]
    reply: Any = await store.client.execute(command, key, *more)
    began = time.monotonic()
    remaining: Any = await store.client.execute("PTTL", key)
    if kind == b"hash":
        reply = dict(zip(reply[::2], reply[1::2], strict=True))
    elif kind == b"set":
        reply = frozenset(reply)
    if remaining == _GONE:
        return None
    return Stored(kind, reply, began + remaining / 1000 if remaining >= 0 else None)


def differences(before: dict[bytes, Stored], after: dict[bytes, Stored]) -> list[bytes]:
    """Return the keys that are not as they were: another type, content, or end.

    A key that has expired by itself since does not count.
    """
    now = time.monotonic()

    def is_same(key: bytes) -> bool:
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            return new is None and old is not None and (old.expires or math.inf) <= now
        return old[:2] == new[:2] and (old.expires is None) is (new.expires is None)

    return sorted(key for key in before.keys() | after.keys() if not is_same(key))
