"""A guard that keeps the propagation graph, on a real store, and agents that share its memory."""

import pytest

from guard.operations.incidents import IncidentOperator
from guard.provenance.seal import Seal
from guard.store.incident_records import read_graph
from tests.guards import KEY
from tests.unit.provenance.agents import agent, guard, policy

__all__ = ["agent", "guard", "policy"]


@pytest.fixture
def sections():
    """Return what the policy has besides."""
    return "propagation: {events: 1000}\n"


@pytest.fixture
def seal():
    """Return the deployment's seal."""
    return Seal(KEY)


@pytest.fixture
def operator(store, seal):
    """Return the operator's side of the deployment."""
    return IncidentOperator(store, seal)


@pytest.fixture
def graph(store, seal):
    """Return a function that reads the graph as it is now."""

    async def read():
        return await read_graph(store, seal, "default")

    return read
