"""What several folders of unit tests share."""

from pathlib import Path

import pytest

from guard.policy_files import load_policies

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def fact_policy():
    """Return the shipped policy of a fact store."""
    return load_policies([ROOT / "policies" / "profiles" / "fact-store.yaml"])
