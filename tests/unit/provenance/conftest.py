"""A guard with a provenance policy on a real store, and a world around one."""

import pytest

from guard.runtime.wiring import assemble
from lab.trust.harness import world_of
from tests.unit.provenance.agents import agent, guard, operator, policy, sections

__all__ = ["agent", "guard", "operator", "policy", "sections"]


@pytest.fixture
async def world(world_redis, request):
    """Give a world under the policy of a module."""
    async with world_of(assemble, world_redis, request.module.POLICY) as one:
        yield one
