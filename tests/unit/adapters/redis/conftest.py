"""Fixtures of the Redis adapter: a store on the shared server, and a server to break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from guard.adapters.redis.connection import RedisClient
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.adapters.redis.endpoint import parse_endpoint
from guard.adapters.redis.store import RedisSessionStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def store(
    redis_server: EmbeddedRedis, redis_namespace: str
) -> AsyncIterator[RedisSessionStore]:
    """A verified store on the shared server."""
    store = RedisSessionStore.at(redis_server.url, namespace=redis_namespace, timeout=5.0)
    await store.verify()
    yield store
    await store.aclose()


@pytest.fixture
async def brittle(own_server: EmbeddedRedis) -> AsyncIterator[RedisSessionStore]:
    """A store on ``own_server`` that retries a connect at once."""
    client = RedisClient(parse_endpoint(own_server.url), timeout=0.25, backoff=(0.0, 0.0))
    store = RedisSessionStore(client)
    yield store
    await store.aclose()
