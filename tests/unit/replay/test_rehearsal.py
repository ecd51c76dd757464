"""A draft on its tests and on what was recorded: every flip, grouped; how faithful the past is."""

from __future__ import annotations

import pytest

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import PolicyError
from guard.core.metrics import Metrics
from guard.core.model import Identity, Role, ToolCall
from guard.core.policy import Action, Mode, Verdict
from guard.policy import load_policies
from guard.replay.rehearsal import PIECE, WARM_SECONDS, Job, _read, read_draft, rehearse
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


def test_a_past_that_the_replay_does_not_repeat_is_told(recorded):
    """Where the replay decides otherwise than the guard did then, the reader is told how often."""
    calls = [(60, "a@corp.example", Action.BLOCK), (60, "a@corp.example", Action.ALLOW)]
    travel = rehearse(recorded(*calls))["travel"]
    assert (travel["compared"], travel["as_recorded"]) == (2, 1)


def test_calls_under_an_earlier_policy_say_nothing_of_faithfulness(recorded):
    """Only what the policy in force has decided is compared."""
    travel = rehearse(recorded((60, "a@corp.example", Action.ALLOW), policy="earlier"))["travel"]
    assert (travel["compared"], travel["calls"]) == (0, 1)


def test_a_long_recording_is_read_in_pieces_of_one_run(recorded):
    """Sessions stay one across pieces, so a replay can say how far it is."""
    job = recorded(*[(60, "a@corp.example", Action.ALLOW)] * (2 * PIECE + 1))
    runs = _read(job).runs

    assert [len(run.calls) for run in runs] == [PIECE, PIECE, 1]
    assert len({(run.run_id, run.owner) for run in runs}) == 1
    assert runs[0].calls[0].server == "8080"


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


def test_problems_name_the_real_file(policy):
    """Nobody is sent to a copy in a temporary directory."""
    with pytest.raises(PolicyError) as caught:
        read_draft([policy], {str(policy): "version: 1\nname: x\nrulez: []\n"})
    assert {one.path for one in caught.value.problems} == {str(policy)}
