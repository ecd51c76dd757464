"""Fixtures every test may ask for: a real Redis, and a namespace in it of one's own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from guard.adapters.redis.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator

# No test may fail because the machine is busy.
settings.register_profile("guard", deadline=None)
settings.load_profile("guard")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    """One private redis-server for all tests that do not break it."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def redis_namespace() -> str:
    """A key namespace that no other test uses."""
    return f"test-{uuid.uuid4().hex}"
