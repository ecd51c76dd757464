"""A draft on the tests beside the policy's files."""

from guard.replay.rehearsal import run_tests
from tests.unit.console.conftest import POLICY, TESTS, policy_file

__all__ = ["policy_file"]

LOOSER = POLICY.replace("effect: block", "effect: ask")


def test_tests_run_in_the_drafts_words(policy_file):
    """A draft that breaks a test beside the file fails it; with the test changed it passes."""
    drafts = {str(policy_file): LOOSER}
    failed = run_tests([policy_file], drafts)["tests"]
    tests = TESTS.replace("verdict: block", "verdict: ask")
    drafts[str(policy_file.with_name("mail_test.yaml"))] = tests
    passed = run_tests([policy_file], drafts)["tests"]

    assert [one["name"] for one in failed["failed"]] == ["mail outside is refused"]
    assert (passed["run"], passed["failed"]) == (2, [])
    assert passed["coverage"][0]["share"] == 1.0
    assert policy_file.read_text("utf-8") == POLICY
