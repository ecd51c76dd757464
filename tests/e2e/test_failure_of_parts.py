"""The failure matrix, second half: parts of the guard fail, and nothing goes out for it.

Each test breaks one part of a real guard (its Redis, a rule, a detector, the audit file, the
worker itself) and asserts that a send is refused, that the upstream received nothing, that an
audit line and the gauge say so, and, where the part comes back, that the guard recovers alone.
"""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from guard.store.embedded import EmbeddedRedis
from tests.e2e.running_guard import ROOT, RunningGuard, Upstream, tool_call, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Launch = Callable[..., RunningGuard]

BROKEN_DETECTOR = """
from guard.detectors import DetectorPlugin


class Broken(DetectorPlugin):
    name = "broken"
    codes = frozenset()

    @classmethod
    def create(cls, resources):
        return cls()

    def inspect(self, call, snapshot):
        if "trip" not in str(call.call.arguments):
            return ()
        {action}
"""
BROKEN_RULE = """
from typing import Literal

from guard.policy.rules.base import RuleConfig


class Broken(RuleConfig):
    type: Literal["broken"]
    codes = frozenset({{"broken"}})

    def judge(self, situation, targets):
        raise {error}
"""
TRIP = tool_call("trip@example.com")
PLUGIN = "import {package}\n{package}.__path__.append({path!r})\n"


@pytest.fixture
def redis() -> Iterator[EmbeddedRedis]:
    """Return a Redis of the test's own, to be broken."""
    with EmbeddedRedis() as server:
        yield server


def plug_in(directory: Path, package: str, name: str, source: str) -> dict[str, str]:
    """Drop one module into a package of the guard; return the environment that does it."""
    plugins, site = directory / "plugins", directory / "site"
    plugins.mkdir(parents=True)
    site.mkdir()
    (plugins / f"{name}.py").write_text(source, encoding="utf-8")
    text = PLUGIN.format(package=package, path=str(plugins))
    (site / "sitecustomize.py").write_text(text, encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}


def refused(guard: RunningGuard, call: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send a call that must be refused and return the observation."""
    received = len(guard.upstream.received)
    status, answer = guard.post(call or tool_call())
    assert status == 200
    assert answer["result"]["isError"] is True, answer
    assert len(guard.upstream.received) == received
    observation: dict[str, Any] = answer["result"]["_meta"]["guard"]
    line = next(x for x in guard.audit() if x.get("decision_id") == observation["decision_id"])
    assert line["enforced"] == "block"
    return observation


def passes(guard: RunningGuard) -> bool:
    """Return whether a benign send goes through now."""
    status, answer = guard.post(tool_call())
    return status == 200 and "isError" not in answer["result"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "hanging"])
def test_a_dead_or_hanging_redis_refuses_sends_and_is_found_again(
    launch: Launch, redis: EmbeddedRedis, how: signal.Signals
) -> None:
    """State gone: refuse within the deadline, say so, recover without a restart of the guard."""
    guard = launch(options=("--redis", redis.url, "--state-timeout", "1"))
    wait_until(lambda: passes(guard), "a call that passes")
    pid = redis.pid
    assert pid is not None
    os.kill(pid, how)
    wait_until(lambda: how == signal.SIGSTOP or redis.pid is None, "the death of redis")
    try:
        observation = refused(guard)
        assert guard.metric("guard_fail_closed", stage="state") == 1
    finally:
        if how == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
        else:
            redis.start()

    assert (observation["code"], observation["retry"]) == ("guard_error", True)
    wait_until(lambda: passes(guard), "recovery")
    assert guard.metric("guard_fail_closed", stage="state") == 0


@pytest.mark.parametrize("action", ["raise ValueError('no')", "raise SystemExit(3)"])
def test_a_detector_that_raises_refuses_the_call(
    launch: Launch, tmp_path: Path, action: str
) -> None:
    """Whatever a detector raises, the call does not go out, and the next one is judged."""
    source = BROKEN_DETECTOR.format(action=action)
    environment = plug_in(tmp_path / "x", "guard.detectors", "broken", source)
    guard = launch(environment=environment)
    received = len(guard.upstream.received)

    with suppress(OSError, ValueError, IndexError):
        guard.post(TRIP)

    assert len(guard.upstream.received) == received
    wait_until(lambda: recovers(guard), "the next call passing")
    wait_until(lambda: any(tells(line) for line in guard.audit()), "an audit line")


def recovers(guard: RunningGuard) -> bool:
    """Return whether a benign send goes through, where the guard can be reached at all."""
    with suppress(OSError, ValueError, IndexError):
        return passes(guard)
    return False


def tells(line: dict[str, Any]) -> bool:
    """Return whether an audit line reports the broken part."""
    return bool(line.get("errors")) or line["event"] == "guard.worker_lost"


@pytest.mark.parametrize("error", ["ValueError('no')", "MemoryError"])
def test_a_rule_that_raises_refuses_the_call(launch: Launch, tmp_path: Path, error: str) -> None:
    """A broken rule is a rule that blocks, even beside a rule that allows."""
    environment = plug_in(
        tmp_path / "x", "guard.policy.rules", "broken", BROKEN_RULE.format(error=error)
    )
    policy = tmp_path / "policy.yaml"
    text = (ROOT / "policies" / "default.yaml").read_text("utf-8")
    policy.write_text(f"{text}\n  - id: broken\n    type: broken\n    effect: ask\n", "utf-8")
    guard = launch(environment=environment, policy=policy)

    observation = refused(guard)

    assert observation["code"] == "rule_error"
    assert guard.metric("guard_errors_total", stage="rule") == 1


def test_a_detector_that_never_ends_costs_the_worker_and_not_the_data(
    launch: Launch, tmp_path: Path
) -> None:
    """A busy loop is ended from outside; its call is named in the audit and never goes out."""
    source = BROKEN_DETECTOR.format(action="while True: pass")
    environment = plug_in(tmp_path / "x", "guard.detectors", "broken", source)
    guard = launch(environment=environment, options=("--heartbeat", "3"))
    received = len(guard.upstream.received)

    with suppress(OSError, ValueError, IndexError):
        guard.post(TRIP)

    lost = wait_until(
        lambda: [x for x in guard.audit() if x["event"] == "guard.worker_lost"], "the loss"
    )
    assert lost[0]["judging"]["tool"] == "email_send_email"
    assert len(guard.upstream.received) == received
    guard.child.wait_ready(times=2)
    wait_until(lambda: passes(guard), "recovery")
    # A busy machine may cost another worker its heartbeat.
    assert guard.metric("guard_worker_restarts") >= 1


def test_an_audit_that_cannot_be_written_refuses_the_call(launch: Launch) -> None:
    """A decision that cannot be recorded is not carried out."""
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is a device of Linux")
    guard = launch(options=("--audit", "/dev/full"))
    received = len(guard.upstream.received)

    _, answer = guard.post(tool_call())

    said = answer["result"]["_meta"]["guard"]
    assert (said["code"], said["retry"]) == ("audit_error", True)
    assert "later" in said["remedy"]
    assert len(guard.upstream.received) == received
    assert guard.metric("guard_fail_closed", stage="audit") == 1


def test_a_bad_policy_stops_the_start(launch: Launch, tmp_path: Path) -> None:
    """Exit code 3 and the line that is wrong; nothing ever listened."""
    policy = tmp_path / "bad.yaml"
    policy.write_text("version: 1\nname: bad\nmode: enforce\nrulez: []\n", encoding="utf-8")
    guard = launch(policy=policy, wait=False)

    assert guard.process.wait(60) == 3
    assert f"{policy}:4" in guard.log_path.read_text("utf-8")


def test_a_tampered_model_stops_the_start(launch: Launch, tmp_path: Path) -> None:
    """A model whose bytes are not the manifest's is not loaded, and nothing is served."""
    models = tmp_path / "models"
    shutil.copytree(ROOT / "models", models)
    with (models / "prefix-13.onnx").open("ab") as file:
        file.write(b"\0")
    guard = launch(options=("--models", str(models)), wait=False)

    assert guard.process.wait(60) == 1
    assert "prefix-13" in guard.log_path.read_text("utf-8")


def test_a_killed_worker_is_replaced_and_forgets_nothing(launch: Launch) -> None:
    """kill -9 in the middle of a session: the trajectory is in Redis, the next worker has it."""
    guard = launch()
    headers = {"x-guard-session": "s"}
    guard.post(tool_call(tool="memory_recall_fact", key="k"), headers)

    os.kill(guard.worker, signal.SIGKILL)
    guard.child.wait_ready(times=2)

    _, answer = guard.post(tool_call("a@evil.test"), headers)
    rules = [r["rule"] for r in answer["result"]["_meta"]["guard"]["reasons"]]
    assert "recall-before-unknown-send" in rules


def test_nothing_outlives_a_killed_supervisor(launch: Launch) -> None:
    """kill -9 of the supervisor ends its worker and its Redis as well."""
    guard = launch()
    children = Path(f"/proc/{guard.process.pid}/task/{guard.process.pid}/children")
    pids = [int(pid) for pid in children.read_text("utf-8").split()]
    assert len(pids) == 2

    guard.process.kill()

    wait_until(lambda: not any(alive(pid) for pid in pids), "the end of the children")


def test_a_killed_guard_does_not_lose_that_a_result_has_no_labels(
    launch: Launch, tmp_path: Path, upstream: Upstream, redis: EmbeddedRedis
) -> None:
    """What was released while Redis was away is in the state before the next call is judged."""
    options = ("--redis", redis.url)
    guard = launch(options=options)
    default = upstream.answer

    def without_state(request: bytes) -> bytes:
        assert redis.pid is not None
        os.kill(redis.pid, signal.SIGKILL)
        wait_until(lambda: redis.pid is None, "the death of redis")
        return default(request)

    upstream.answer = without_state
    _, released = guard.post(tool_call())
    upstream.answer = default
    kept = guard.metric("guard_unlabelled_marks")
    os.kill(guard.worker, signal.SIGKILL)
    redis.start()
    guard.child.wait_ready(2)
    found = guard.metric("guard_unlabelled_marks")
    wait_until(lambda: passes(guard), "recovery")

    assert found == 1
    assert released["result"]["content"][0]["text"] == "done"
    assert kept == 1
    assert guard.metric("guard_unlabelled_marks") == 0


def alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    with suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text("utf-8")
    return False
