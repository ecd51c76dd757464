"""Fresh state for one use: a namespace that nobody has used, removed whole at the end."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from guard.adapters.redis.store import RedisSessionStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from guard.core.policy import StateLimits

_TIMEOUT: Final = 10.0
"""Seconds for one answer of the store.  Nobody waits for a replay's verdict, so it may be long."""


@asynccontextmanager
async def fresh_store(url: str, limits: StateLimits) -> AsyncIterator[RedisSessionStore]:
    """Yield a store in a namespace that nobody has used; every key in it is removed at the end.

    Args:
        url: the Redis to use; others may use it too.
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
            async for keys in store.client.scan(f"{namespace}:"):
                if keys:
                    await store.client.execute("UNLINK", *keys)
    finally:
        await store.aclose()
