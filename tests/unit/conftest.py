"""What several folders of unit tests share, and what none of them may do."""

from pathlib import Path

import pytest

from guard.policy import load_policies
from tests.no_processes import no_processes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _no_processes():
    """Fail whatever starts a process."""
    with no_processes():
        yield


@pytest.fixture(scope="session")
def fact_policy():
    """Return the shipped policy of a fact store."""
    return load_policies([ROOT / "policies" / "profiles" / "fact-store.yaml"])
