"""Fixtures of the Redis adapter: a store, a staging store and an operator on the
shared server, and a server to break.
"""

import os
import signal

import pytest

from guard.provenance.seal import Seal
from guard.store.connection import RedisClient, parse_endpoint
from guard.store.staging import GateOperator, RedisStaging
from guard.store.store import RedisSessionStore


def kill(server):
    """End a server as a crash does."""
    os.kill(server.pid, signal.SIGKILL)
    server._process.wait()


@pytest.fixture
async def brittle(own_server):
    """A store on ``own_server`` that retries a connect at once."""
    client = RedisClient(parse_endpoint(own_server.url), timeout=60.0, backoff=(0.0, 0.0))
    store = RedisSessionStore(client)
    yield store
    await store.aclose()


@pytest.fixture
async def hurried(own_server):
    """A client of ``own_server`` that waits as long as a guard's does."""
    client = RedisClient(parse_endpoint(own_server.url), timeout=0.25, backoff=(0.0, 0.0))
    yield client
    await client.aclose()


@pytest.fixture
def seal():
    """The deployment's key."""
    return Seal(bytes(range(32)))


@pytest.fixture
def staging(redis_client, redis_namespace, seal):
    """A guard's staging store."""
    return RedisStaging(redis_client, namespace=redis_namespace, seal=seal)


@pytest.fixture
def operator(redis_client, redis_namespace):
    """The operator's side of it."""
    return GateOperator(redis_client, namespace=redis_namespace)
