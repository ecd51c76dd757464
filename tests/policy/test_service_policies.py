"""The tool mappings of well-known services load beside the shipped policy, alone and together."""

from pathlib import Path

import pytest

from guard.core.model import Role
from guard.policy_files import load_policies

POLICIES = Path(__file__).parents[2] / "policies"
SERVICES = sorted((POLICIES / "services").glob("*.yaml"))


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_service_loads_and_every_send_says_who_receives(path):
    """A send without a destination would never be asked about."""
    load_policies([POLICIES / "default.yaml", path])
    alone = load_policies([path])

    assert all(m.destinations or m.reply for m in alone.tools if m.role is Role.SEND)


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_its_head_says_what_it_does_not_stop(path):
    """A policy that promises nothing beyond what it does."""
    assert "# What it does not stop: " in path.read_text()


def test_all_of_them_are_one_policy():
    """No two services map the same tool."""
    load_policies([POLICIES / "default.yaml", *SERVICES])
