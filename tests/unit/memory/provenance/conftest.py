"""A guard with a provenance policy on a real store."""

import importlib.util
import sys
from pathlib import Path

import pytest

from guard.policies_io import load_policies
from tests.guards import guard_on

_spec = importlib.util.spec_from_file_location("agents", Path(__file__).parent / "agents.py")
_module = importlib.util.module_from_spec(_spec)
sys.modules.setdefault("agents", _module)
_spec.loader.exec_module(sys.modules["agents"])

from agents import POLICY, Agent  # noqa: E402  (importlib mode has no package to import it from)


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
