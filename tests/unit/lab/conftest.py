"""Fixtures of the workshop's tests."""

from pathlib import Path

import pytest

from tests.unit.lab.made_runs import runs, write_traces


@pytest.fixture
def traces(tmp_path):
    """Give a file of made-up runs."""
    return write_traces(tmp_path / "made.jsonl", runs())


@pytest.fixture(scope="session")
def leong():
    """Give the development traces, or skip."""
    path = Path(__file__).resolve().parents[4] / "shared/data/traces/leong_dev.jsonl.gz"
    if not path.is_file():
        pytest.skip("the development traces are absent")
    return path
