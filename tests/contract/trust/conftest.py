"""A Redis that only the worlds of this folder use: each world empties it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from guard.adapters.redis.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def world_redis() -> Iterator[str]:
    """The URL of a server that worlds may empty."""
    with EmbeddedRedis() as server:
        yield server.url
