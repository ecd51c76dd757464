"""A guard with a provenance policy on a real store."""

import importlib.util
import sys
from pathlib import Path

import pytest

from guard.adapters.redis.store import RedisSessionStore
from guard.memory.information_point import InformationPoint
from guard.memory.seal import Seal
from guard.policies_io import load_policies
from guard.replay import ErrorCounter, NullAuditLog
from guard.service import Guard

_spec = importlib.util.spec_from_file_location("agents", Path(__file__).parent / "agents.py")
_module = importlib.util.module_from_spec(_spec)
sys.modules.setdefault("agents", _module)
_spec.loader.exec_module(sys.modules["agents"])

from agents import POLICY, Agent  # noqa: E402  (importlib mode has no package to import it from)

KEY = bytes(range(32))


@pytest.fixture
def policy(tmp_path):
    """Return the policy of these tests."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return load_policies([path])


@pytest.fixture
async def store(redis_server, redis_namespace):
    """Return a fresh store."""
    store = RedisSessionStore.at(redis_server.url, namespace=redis_namespace, timeout=5.0)
    yield store
    await store.aclose()


@pytest.fixture
def guard(policy, store):
    """Return a guard on the fresh store."""
    return Guard(
        policy=policy,
        store=store,
        detectors=(),
        audit=NullAuditLog(),
        metrics=ErrorCounter(),
        provenance=InformationPoint(Seal(KEY)),
    )


@pytest.fixture
def agent(guard):
    """Return an agent of the principal alice in session one."""
    return Agent(guard)
