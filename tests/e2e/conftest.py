"""Fixtures: a real guard process in front of an upstream that remembers every byte."""

from contextlib import closing

import pytest

from tests.e2e.running_guard import Upstream, serving, start_guard


@pytest.fixture
def upstream():
    """Return a fresh upstream."""
    with closing(Upstream()) as server:
        yield server


@pytest.fixture(scope="module")
def no_proxy():
    """Have vendors' clients connect to loopback directly, whatever the environment says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture
def launch(tmp_path, upstream):
    """Start guards of one's own; they are stopped at the end of the test."""
    guards = []

    def start(**options):
        guard = start_guard(tmp_path / f"guard{len(guards)}", upstream, **options)
        guards.append(guard)
        return guard

    yield start
    for guard in guards:
        guard.stop()


@pytest.fixture(scope="module")
def shared_guard(tmp_path_factory):
    """Return one guard for every test of a module that leaves it as it was."""
    limit = ("--body-limit", "64k")
    with serving(tmp_path_factory.mktemp("guard"), options=limit) as guard:
        yield guard
