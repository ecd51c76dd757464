"""Fixtures every test may ask for: a real Redis, and what it takes to have it to oneself."""

import gc
import itertools
import os
import shutil
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from guard.policy import load_policies
from guard.store.connection import RedisClient, parse_endpoint
from guard.store.embedded import EmbeddedRedis
from guard.store.store import RedisSessionStore
from lab.trust.harness import policies_read_once

# No test may fail because the machine is busy, nor because of the examples that one run draws: they
# are the same in each run.  `make test ARGS=--hypothesis-profile=explore` draws others, and more.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "guard", settings.get_profile("explore"), derandomize=True, max_examples=40
)
settings.load_profile("guard")
LIMITS = ("STATE_TIMEOUT", "QUEUE_TIMEOUT", "HEARTBEAT")
"""Settings after whose seconds a guard refuses a call, or is replaced: a test that is about one of
them says so on the command line."""


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect no garbage while modules are imported, and never look at what they hold later.

    Each worker imports every module of tests; a third of that time was the collector's.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item):
    """Skip a test whose mark names a program that is not on the PATH."""
    for mark in item.iter_markers("programs"):
        absent = [name for name in mark.args if shutil.which(name) is None]
        if absent:
            pytest.skip(f"not installed: {', '.join(absent)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    """Fail a test that leaves another working directory: later tests use relative paths."""
    before = Path(__file__).resolve().parents[1]
    result = yield
    left = Path.cwd()
    if left != before:
        os.chdir(before)
        pytest.fail(f"the test left the working directory {left}")
    return result


@pytest.fixture(scope="session", autouse=True)
def _patient_guards(short_directory):
    """Let the guards of tests wait as long as they have to, and keep nothing in the user's home.

    What runs is noted there: tests of other processes, and the user's own guards, would be found.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in LIMITS:
            patch.setenv(f"GUARD_{name}", "60")
        patch.setenv("XDG_STATE_HOME", str(short_directory()))
        yield


@pytest.fixture(scope="session")
def short_directory():
    """Return a function that makes private directories for Unix sockets.

    The path of a socket has 107 characters at most; that of pytest's own directories has the
    user's name and the test's in it, and begins wherever ``TMPDIR`` says.
    """
    with ExitStack() as stack:

        def made():
            directory = tempfile.TemporaryDirectory(
                prefix="guard-test-", dir="/tmp", ignore_cleanup_errors=True
            )
            return Path(stack.enter_context(directory))

        yield made


@pytest.fixture(scope="session")
def redis_server():
    """One private redis-server for all tests that do not break it."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def redis_namespace():
    """A key namespace that no other test uses."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
async def redis_client(redis_server):
    """A connection of the test's own."""
    client = RedisClient(parse_endpoint(redis_server.url), timeout=60.0)
    yield client
    await client.aclose()


async def _store(redis_server, redis_namespace):
    """The state of a fresh deployment, over a connection of its own.

    ``second_store`` is the same state as another process has it.
    """
    store = RedisSessionStore.at(redis_server.url, namespace=redis_namespace, timeout=60.0)
    yield store
    await store.aclose()


store = pytest.fixture(_store, name="store")
second_store = pytest.fixture(_store, name="second_store")


@pytest.fixture
def own_server():
    """A server of the test's own, to break."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def policy_from(tmp_path):
    """Give a function that loads the policy of a text, or of some texts together."""
    number = itertools.count()

    def load(*texts):
        paths = [tmp_path / f"policy{next(number)}.yaml" for _ in texts]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        return load_policies(paths)

    return load


@pytest.fixture(scope="session")
def emptied_redis():
    """Give the URL of a server that tests may empty."""
    with EmbeddedRedis() as server:
        yield server.url


@pytest.fixture
def world_redis(emptied_redis):
    """Give the URL of a server for worlds of the trust model, which share what they load."""
    with policies_read_once():
        yield emptied_redis
