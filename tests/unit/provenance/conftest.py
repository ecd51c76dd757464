"""A guard with a provenance policy on a real store."""

import pytest

from guard.policy_files import load_policies
from tests.guards import guard_on
from tests.unit.provenance.agents import POLICY, Agent


@pytest.fixture
def policy(tmp_path):
    """Return the policy of these tests."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return load_policies([path])


@pytest.fixture
def guard(policy, store):
    """Return a guard on the fresh store."""
    return guard_on(store, policy)


@pytest.fixture
def agent(guard):
    """Return an agent of the principal alice in session one."""
    return Agent(guard)
