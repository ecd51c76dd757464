"""A guard that keeps the propagation graph, on a real store, and agents that share its memory."""

import pytest

from guard.adapters.redis.propagation import read_graph
from guard.policy_files import load_policies
from guard.provenance.seal import Seal
from tests.guards import KEY, guard_on
from tests.unit.provenance.agents import POLICY, Agent

GRAPH = POLICY + "propagation: {events: 1000}\n"


@pytest.fixture
def policy(tmp_path):
    """Return the policy of these tests."""
    path = tmp_path / "policy.yaml"
    path.write_text(GRAPH, encoding="utf-8")
    return load_policies([path])


@pytest.fixture
def guard(policy, store):
    """Return a guard on the fresh store."""
    return guard_on(store, policy)


@pytest.fixture
def agent(guard):
    """Return an agent of the principal alice in session one."""
    return Agent(guard)


@pytest.fixture
def seal():
    """Return the deployment's seal."""
    return Seal(KEY)


@pytest.fixture
def graph(store, seal):
    """Return a function that reads the graph as it is now."""

    async def read():
        return await read_graph(store, seal, "default")

    return read
