"""A draft on the tests beside the policy's files."""

import pytest

from guard.replay.rehearsal import run_tests
from tests.unit.console.conftest import POLICY, TESTS

LOOSER = POLICY.replace("effect: block", "effect: ask")


@pytest.fixture
def policy(tmp_path):
    """A policy with a test beside it."""
    path = tmp_path / "policy" / "mail.yaml"
    path.parent.mkdir()
    path.write_text(POLICY, "utf-8")
    path.with_name("mail_test.yaml").write_text(TESTS, "utf-8")
    return path


def test_tests_run_in_the_drafts_words(policy):
    """A draft that breaks a test beside the file fails it; with the test changed it passes."""
    drafts = {str(policy): LOOSER}
    failed = run_tests([policy], drafts)["tests"]
    tests = TESTS.replace("verdict: block", "verdict: ask")
    drafts[str(policy.with_name("mail_test.yaml"))] = tests
    passed = run_tests([policy], drafts)["tests"]

    assert [one["name"] for one in failed["failed"]] == ["mail outside is refused"]
    assert (passed["run"], passed["failed"]) == (2, [])
    assert passed["coverage"][0]["share"] == 1.0
    assert policy.read_text("utf-8") == POLICY
