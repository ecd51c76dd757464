"""A staging store and an operator on the shared Redis."""

from dataclasses import replace

import pytest

from guard.adapters.redis.connection import RedisClient
from guard.adapters.redis.endpoint import parse_endpoint
from guard.adapters.redis.staging import RedisStaging
from guard.adapters.redis.staging.operator import GateOperator
from guard.core.memory import Candidate, MemoryClass, SourceEvidence, SourceType
from guard.core.model import Identity, Integrity
from guard.memory.candidate import content_digest
from guard.memory.seal import Seal


@pytest.fixture
async def client(redis_server):
    """A connection of the test's own."""
    client = RedisClient(parse_endpoint(redis_server.url), timeout=5.0)
    yield client
    await client.aclose()


@pytest.fixture
def seal():
    """The deployment's key."""
    return Seal(bytes(range(32)))


@pytest.fixture
def staging(client, redis_namespace, seal):
    """A guard's staging store."""
    return RedisStaging(client, namespace=redis_namespace, seal=seal)


@pytest.fixture
def operator(client, redis_namespace):
    """The operator's side of it."""
    return GateOperator(client, namespace=redis_namespace)


@pytest.fixture
def candidate():
    """A builder of candidates."""

    def build(ident="c1", **fields):
        made = Candidate(
            id=ident,
            identity=Identity("p", "s"),
            tool="save",
            store="facts",
            partition="default",
            key="k",
            target=MemoryClass.L2,
            fallback=None,
            texts=("v",),
            content="v",
            digest=content_digest("save", "v"),
            text_digest="t" * 64,
            nonce=ident,
            token="",
            evidence=SourceEvidence(frozenset({SourceType.TOOL_RESULT}), Integrity.UNTRUSTED),
        )
        return replace(made, **fields)

    return build
