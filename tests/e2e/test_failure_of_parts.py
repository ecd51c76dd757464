"""The failure matrix, second half: parts of the guard fail, and nothing goes out for it.

Each test breaks one part of a real guard (its Redis, a rule, a detector, the audit file, the
worker itself) and asserts that a send is refused, that the upstream received nothing, that an
audit line and the gauge say so, and, where the part comes back, that the guard recovers alone.
"""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.running_guard import (
    ROOT,
    serving,
    tool_call,
    wait_until,
)

DETECTOR = """
from guard.detectors import DetectorPlugin


class Broken(DetectorPlugin):
    name = "broken"
    codes = frozenset()

    @classmethod
    def create(cls, resources):
        return cls()

    def inspect(self, call, snapshot):
        while "hangs@" in str(call.call.arguments):
            pass
        return ()
"""


def refused(guard):
    """Send a call that must be refused and return the observation."""
    received = len(guard.upstream.received)
    _, answer = guard.post(tool_call())
    assert answer["result"]["isError"] is True, answer
    assert len(guard.upstream.received) == received
    return answer["result"]["_meta"]["guard"]


def passes(guard):
    """Return whether a benign send goes through now, where the guard can be reached at all."""
    with suppress(OSError, ValueError, IndexError):
        status, answer = guard.post(tool_call())
        return status == 200 and "isError" not in answer["result"]
    return False


def test_a_dead_or_hanging_redis_refuses_sends_and_is_found_again(launch, own_server):
    """State gone: refuse within the deadline, say so, recover without a restart of the guard."""
    guard = launch(options=("--redis", own_server.url, "--state-timeout", "1"))
    for how in (signal.SIGSTOP, signal.SIGKILL):
        wait_until(lambda: passes(guard), "a call that passes")
        assert guard.metric("guard_fail_closed", stage="state") == 0
        pid = own_server.pid
        os.kill(pid, how)
        wait_until(lambda how=how: how == signal.SIGSTOP or own_server.pid is None, "its death")
        try:
            observation = refused(guard)
            assert guard.metric("guard_fail_closed", stage="state") == 1
        finally:
            if how == signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
            else:
                own_server.start()
        assert (observation["code"], observation["retry"]) == ("guard_error", True)
    wait_until(lambda: passes(guard), "recovery")


def test_a_detector_that_never_ends_costs_the_worker_and_not_the_data(tmp_path):
    """A busy loop is ended from outside; its call is named in the audit and never goes out."""
    folder = tmp_path / "detectors"
    folder.mkdir()
    (folder / "broken.py").write_text(DETECTOR, encoding="utf-8")
    dropped_in = f"import guard.detectors\nguard.detectors.__path__.append({str(folder)!r})\n"
    (tmp_path / "sitecustomize.py").write_text(dropped_in, encoding="utf-8")
    environment = {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    options = ("--heartbeat", "3")
    with serving(tmp_path / "guard", options=options, environment=environment) as guard:
        with suppress(OSError, ValueError, IndexError):
            guard.post(tool_call("hangs@example.com"))

        lost = wait_until(
            lambda: [x for x in guard.audit() if x["event"] == "guard.worker_lost"], "the loss"
        )
        assert lost[0]["judging"]["tool"] == "email_send_email"
        guard.child.wait_ready(times=2)
        wait_until(lambda: passes(guard), "recovery")
        # A busy machine may cost another worker its heartbeat.
        assert guard.metric("guard_worker_restarts") >= 1
        assert b"hangs@" not in guard.upstream.received


def test_an_audit_that_cannot_be_written_refuses_the_call(launch):
    """A decision that cannot be recorded is not carried out."""
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is a device of Linux")
    guard = launch(options=("--audit", "/dev/full"))

    _, answer = guard.post(tool_call())

    said = answer["result"]["_meta"]["guard"]
    assert (said["code"], said["retry"]) == ("audit_error", True)
    assert "later" in said["remedy"]
    assert guard.upstream.received == b""
    assert guard.metric("guard_fail_closed", stage="audit") == 1


@pytest.mark.parametrize(
    ("part", "code", "said"),
    [("policy.yaml", 3, "policy.yaml:"), ("models/prefix-13.onnx", 1, "prefix-13")],
)
def test_a_bad_policy_or_a_tampered_model_stops_the_start(launch, tmp_path, part, code, said):
    """It names the line or the file, and nothing ever listened."""
    shutil.copytree(ROOT / "models", tmp_path / "models")
    policy = tmp_path / "policy.yaml"
    shutil.copy(ROOT / "policies" / "default.yaml", policy)
    text = (tmp_path / part).read_bytes()
    (tmp_path / part).write_bytes(text.replace(b"\nrules:", b"\nrulez:") + b"\n")
    guard = launch(policy=policy, options=("--models", str(tmp_path / "models")), wait=False)

    assert guard.process.wait(60) == code
    assert said in guard.log_path.read_text("utf-8")


def test_a_killed_worker_forgets_nothing_and_nothing_outlives_a_killed_supervisor(
    launch,
):
    """The trajectory is in Redis, the next worker has it; worker and Redis end with the parent."""
    guard = launch()
    headers = {"x-guard-session": "s"}
    guard.post(tool_call(tool="memory_recall_fact", key="k"), headers)
    os.kill(guard.worker, signal.SIGKILL)
    guard.child.wait_ready(times=2)
    _, answer = guard.post(tool_call("a@evil.test"), headers)
    children = Path(f"/proc/{guard.process.pid}/task/{guard.process.pid}/children")
    pids = [int(pid) for pid in children.read_text("utf-8").split()]
    guard.process.kill()

    rules = [r["rule"] for r in answer["result"]["_meta"]["guard"]["reasons"]]
    assert "recall-before-unknown-send" in rules
    assert len(pids) == 2
    wait_until(lambda: not any(alive(pid) for pid in pids), "the end of the children")


def alive(pid):
    """Return whether a process exists and is no zombie."""
    with suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text("utf-8")
    return False
