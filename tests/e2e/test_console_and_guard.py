"""The console ends while its guard serves, the guard ends while a console serves, a clock jumps.

Each goes on without the other: nothing is released that nobody answered, and nothing is lost.
"""

from __future__ import annotations

import hashlib
import os
import signal

import httpx
import pytest

from guard.processes.loopback import free_port
from guard.store.embedded import EmbeddedRedis
from lab.guard_processes import child_of
from tests.e2e.running_console import start_console
from tests.e2e.running_guard import ROOT, Upstream, start_guard, tool_call, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SECRET = "the secret of ann, long enough for anybody"
DEFAULT = ROOT / "policies" / "default.yaml"


@pytest.fixture
def people(tmp_path):
    """A people file with one approver."""
    path = tmp_path / "people.toml"
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    path.write_text(f'[people.ann]\nsecret = "{digest}"\nroles = ["approver"]\n', "utf-8")
    return path


@pytest.fixture
def upstream():
    """A tool server."""
    server = Upstream()
    yield server
    server.close()


def page(url, path, document=None):
    """Return an answer of the console's API, None where nobody listens."""
    headers = {"authorization": f"Bearer {SECRET}"}
    method = "GET" if document is None else "POST"
    try:
        with httpx.Client(trust_env=False, timeout=60) as client:
            return client.request(method, url + path, headers=headers, json=document)
    except httpx.HTTPError:
        return None


def test_a_console_that_dies_is_started_again_and_the_guard_serves_all_the_while(
    tmp_path, people, upstream
):
    """Calls are decided with no console; the next one knows what was asked before."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    options = ("--console", f"127.0.0.1:{port}", "--console-people", str(people))
    guard = start_guard(tmp_path / "guard", upstream, policy=DEFAULT, options=options)
    wait_until(lambda: page(url, "/api/approvals"), "the console")
    _, asked = guard.post(tool_call("before@outside.test"))
    before = child_of(guard.process.pid, "guard.console.server")
    os.kill(before, signal.SIGKILL)
    status, allowed = guard.post(tool_call("team@example.com"))
    during, again = guard.post(tool_call("before@outside.test"))
    found = wait_until(lambda: page(url, "/api/approvals"), "the next console")
    waiting = {one["calls"][0]["decision"] for one in found.json()["requests"]}
    decision = asked["result"]["_meta"]["guard"]["decision_id"]
    answered = page(url, f"/api/approvals/default/{decision}", {"answer": "once"})
    released = guard.post(tool_call("before@outside.test"))[1]
    after = child_of(guard.process.pid, "guard.console.server")
    events = [one["event"] for one in guard.audit()]
    guard.stop()

    assert (status, "isError" in str(allowed)) == (200, False)
    assert (during, again["result"]["isError"]) == (200, True)
    assert decision in waiting
    assert answered.status_code == 200
    assert released["result"]["content"][0]["text"] == "done"
    assert after != before
    assert "guard.console_lost" in events


def test_a_guard_that_dies_leaves_a_console_that_says_so_and_releases_nothing(
    tmp_path, people, upstream
):
    """What was asked can be answered without a guard; the next guard takes the grant."""
    with EmbeddedRedis() as redis:
        options = ("--redis", redis.url)
        guard = start_guard(tmp_path / "guard", upstream, policy=DEFAULT, options=options)
        audit = ("--audit", str(guard.audit_path))
        more = (*audit, "--people", str(people), "--policy", str(DEFAULT))
        _, asked = guard.post(tool_call("kept@outside.test"))
        key = tmp_path / "label.key"
        (tmp_path / "c").mkdir()
        console = start_console(tmp_path / "c", redis.url, *more, "--label-key", str(key))
        decision = asked["result"]["_meta"]["guard"]["decision_id"]
        wait_until(lambda: page(console.url, "/api/approvals"), "the console")
        os.kill(guard.process.pid, signal.SIGKILL)
        guard.stop()
        wait_until(lambda: not guard.answers(), "the end of the guard")
        shown = page(console.url, f"/approvals/default/{decision}")
        answered = page(console.url, f"/api/approvals/default/{decision}", {"answer": "once"})
        sent = bytes(upstream.received)
        again = start_guard(
            tmp_path / "again", upstream, policy=DEFAULT, options=options, port=guard.port
        )
        released = again.post(tool_call("kept@outside.test"))[1]
        twice = again.post(tool_call("kept@outside.test"))[1]
        again.stop()
        console.child.stop()

    assert (shown.status_code, answered.status_code) == (200, 200)
    assert b"kept@outside.test" not in sent
    assert released["result"]["content"][0]["text"] == "done"
    assert twice["result"]["isError"] is True
    assert upstream.received.count(b"kept@outside.test") == 1
