"""Fresh state for one use: a namespace that nobody has used, removed whole at the end."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from guard.adapters.redis.store import RedisSessionStore
from guard.core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from guard.adapters.redis.connection import RedisClient
    from guard.core.policy import StateLimits

_SCAN_COUNT: Final = 512
_TIMEOUT: Final = 10.0
"""Seconds for one answer of the store.  Nobody waits for a replay's verdict, so it may be long."""


@asynccontextmanager
async def fresh_store(url: str, limits: StateLimits) -> AsyncIterator[RedisSessionStore]:
    """Yield a store in a namespace that nobody has used; every key in it is removed at the end.

    Args:
        url: the Redis to use, shared with whoever else uses it.
        limits: of the policy that is replayed.

    Raises:
        StateError: the server cannot be reached or is not fit to hold state.
    """
    namespace = f"guard-replay-{secrets.token_hex(8)}"
    store = RedisSessionStore.at(url, namespace=namespace, limits=limits, timeout=_TIMEOUT)
    try:
        await store.verify()
        try:
            yield store
        finally:
            await _unlink_all(store.client, namespace)
    finally:
        await store.aclose()


async def _unlink_all(client: RedisClient, namespace: str) -> None:
    """Remove a namespace: ``UNLINK`` over a ``SCAN``, as neither makes the server wait."""
    cursor: bytes = b"0"
    while True:
        reply = await client.execute(
            "SCAN", cursor, "MATCH", f"{namespace}:*", "COUNT", str(_SCAN_COUNT)
        )
        match reply:
            case [bytes() as cursor, list() as keys]:
                if keys:
                    await client.execute("UNLINK", *keys)
            case _:
                message = "redis answered a SCAN with something else, check the keys of the replay"
                raise StateError(message)
        if cursor == b"0":
            return
