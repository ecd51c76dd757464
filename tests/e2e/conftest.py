"""Fixtures: a real guard process in front of an upstream that remembers every byte."""

import pytest

from tests.e2e.running_guard import Upstream, start_guard


@pytest.fixture
def upstream():
    """Return a fresh upstream."""
    server = Upstream()
    yield server
    server.close()


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
    server = Upstream()
    guard = start_guard(tmp_path_factory.mktemp("guard"), server, options=("--body-limit", "64k"))
    yield guard
    guard.stop()
    server.close()
