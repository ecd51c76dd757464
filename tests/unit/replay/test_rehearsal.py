"""A draft on its tests and on what was recorded: every flip, grouped; how faithful the past is."""

import pytest

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.metrics import Metrics
from guard.core.model import Identity, Role, ToolCall
from guard.core.policy import Action, Mode, Verdict
from guard.policy import load_policies
from guard.replay.rehearsal import WARM_SECONDS, Job, rehearse
from guard.telemetry.recordings import RecordingWriter
from tests.unit.console.conftest import POLICY, TESTS

NOW = 1_700_000_000.0
LOOSER = POLICY.replace("effect: block", "effect: ask")


@pytest.fixture
def policy(tmp_path):
    """A policy with a test beside it."""
    path = tmp_path / "policy" / "mail.yaml"
    path.parent.mkdir()
    path.write_text(POLICY, "utf-8")
    path.with_name("mail_test.yaml").write_text(TESTS, "utf-8")
    return path


@pytest.fixture
def recorded(tmp_path, policy):
    """Recordings of calls: (seconds before now, receiver, verdict at the time)."""
    key = tmp_path / "recording.key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    digest = load_policies([policy]).digest

    def record(*calls, policy=digest):
        writer = RecordingWriter(tmp_path / "rec", key.read_bytes(), Metrics(), now=lambda: NOW)
        for number, (ago, to, action) in enumerate(calls):
            who = Identity("alice", f"s{number % 7}")
            given = {"to": to, "body": "hi"}
            made = ToolCall(f"d{number}", who, "send", given, "mcp", NOW - ago, server="8080")
            writer.call(made, Verdict(action, Mode.ENFORCE, (), policy), required=False)
            if action.forwards:
                traced = untraced(ClassifiedCall(made, Role.SEND))
                writer.result(ToolResult(traced, "sent", made.at))
        writer.close()
        return Job(
            policy=[tmp_path / "policy" / "mail.yaml"],
            drafts={str(tmp_path / "policy" / "mail.yaml"): LOOSER},
            recordings=tmp_path / "rec",
            key=key,
            since=NOW - 3600,
            until=NOW,
        )

    return record


def test_every_flip_is_found_and_grouped(recorded):
    """Calls outside flip from block to ask, those inside do not; a group names some of them."""
    inside = [(60, "a@corp.example", Action.ALLOW)] * 5
    outside = [(50, f"x{n}@evil.test", Action.BLOCK) for n in range(8)]
    travel = rehearse(recorded(*inside, *outside))["travel"]

    [group] = travel["groups"]
    assert (travel["calls"], travel["flips"]) == (13, 8)
    assert travel["kinds"] == {"block -> ask": 8}
    assert (group["before_by"], group["after_by"], group["count"]) == (["outside"], ["outside"], 8)
    assert group["decisions"] == [f"d{n}" for n in range(5, 10)]
    assert (travel["compared"], travel["as_recorded"]) == (13, 13)
    assert travel["calls_per_second"] > 0


def test_what_was_before_the_window_is_replayed_and_not_reported(recorded):
    """The day before warms the state up; what is older is left out."""
    calls = [
        (WARM_SECONDS + 7200, "old@evil.test", Action.BLOCK),
        (7200, "before@evil.test", Action.BLOCK),
        (60, "now@evil.test", Action.BLOCK),
    ]
    travel = rehearse(recorded(*calls))["travel"]

    assert (travel["replayed"], travel["calls"], travel["flips"]) == (2, 1, 1)
    assert travel["groups"][0]["decisions"] == ["d2"]


def test_tests_run_in_the_drafts_words(policy):
    """A draft that breaks a test beside the file fails it; with the test changed it passes."""
    job = Job(policy=[policy], drafts={str(policy): LOOSER}, tests=True)
    failed = rehearse(job)["tests"]
    tests = TESTS.replace("verdict: block", "verdict: ask")
    drafts = {**job.drafts, str(policy.with_name("mail_test.yaml")): tests}
    passed = rehearse(job.model_copy(update={"drafts": drafts}))["tests"]

    assert [one["name"] for one in failed["failed"]] == ["mail outside is refused"]
    assert (passed["run"], passed["failed"]) == (2, [])
    assert passed["coverage"][0]["share"] == 1.0
    assert policy.read_text("utf-8") == POLICY
