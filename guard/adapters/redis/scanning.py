"""Walks the keys of one kind, for operators' tools; nothing on the path of a call does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from guard.adapters.redis.connection import RedisClient

_COUNT: Final = 256


async def keys_with(client: RedisClient, prefix: str) -> AsyncIterator[bytes]:
    """Yield every key that begins with a prefix, in no order.

    Raises:
        StateError: Redis answered with something else.
    """
    pattern = "".join(f"\\{c}" if c in "*?[]\\" else c for c in prefix) + "*"
    cursor: bytes = b"0"
    while True:
        match await client.execute("SCAN", cursor, "MATCH", pattern, "COUNT", str(_COUNT)):
            case [bytes() as cursor, list() as keys]:
                for key in keys:
                    yield key
            case _:
                msg = "redis answered a SCAN with something else"
                raise StateError(msg)
        if cursor == b"0":
            return
