"""Policies change under live traffic; no request is ever judged without one."""

import threading

import pytest

from tests.e2e.running_guard import ROOT, serving, tool_call, wait_until

pytestmark = pytest.mark.e2e

DEFAULT = (ROOT / "policies" / "default.yaml").read_text(encoding="utf-8")
ROUNDS = 4


@pytest.fixture
def guard(tmp_path):
    """Start a guard that looks at its policy file twenty times a second."""
    policy = tmp_path / "policy.yaml"
    write(policy, "start")
    with serving(tmp_path, policy=policy, options=("--reload", "0.05")) as running:
        yield running, policy


def write(path, name, text=DEFAULT):
    """Put a finished file into place, so that no half of it is ever tried."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text.replace("name: default", f"name: {name}"), encoding="utf-8")
    fresh.replace(path)


def reloaded(guard, outcome, times):
    """Wait for as many reloads with an outcome."""
    name = "guard_policy_reloads_total"
    wait_until(lambda: guard.metric(name, outcome=outcome) == times, f"{times} reloads {outcome}")


def test_no_call_is_judged_without_a_policy_while_policies_change(guard):
    """Under constant traffic: valid changes are swapped, broken ones kept, every send judged."""
    running, policy = guard
    stop, answers = threading.Event(), []

    def traffic(to, expected):
        while not stop.is_set():
            status, body = running.post(tool_call(to))
            refused = bool(body["result"].get("isError"))
            answers.append((status, refused, expected))

    threads = [
        threading.Thread(target=traffic, args=("team@example.com", False)),
        threading.Thread(target=traffic, args=("x@outside.test", True)),
    ]
    for thread in threads:
        thread.start()
    try:
        for turn in range(ROUNDS):
            write(policy, f"turn-{turn}")
            reloaded(running, "swapped", turn + 1)
            write(policy, "broken", DEFAULT.replace("effect: block", "effect: blok"))
            reloaded(running, "kept", turn + 1)
            assert running.metric("guard_policy_stale") == 1
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)

    lines = running.audit()
    decisions = [line for line in lines if line["event"] == "guard.decision"]
    reloads = [line for line in lines if line["event"] == "guard.policy_reload"]
    in_force = {line["policy"] for line in reloads} | {reloads[0]["previous"]}
    assert len(answers) > 4 * ROUNDS
    assert all(status == 200 and refused is expected for status, refused, expected in answers)
    assert {line["policy"] for line in decisions} <= in_force
    assert [line["outcome"] for line in reloads] == ["swapped", "kept"] * ROUNDS
    assert running.metric("guard_policy_info", digest=reloads[-2]["policy"]) == 1
    assert b"x@outside.test" not in bytes(running.upstream.received)
