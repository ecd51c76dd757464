"""A staging store and an operator on the shared Redis."""

import pytest

from guard.adapters.redis.gate_operator import GateOperator
from guard.adapters.redis.staging import RedisStaging
from guard.provenance.seal import Seal


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
