"""A console that ends while its guard serves: nothing is released that nobody answered, or lost."""

import os
import signal

import httpx
import pytest

from guard.processes.loopback import free_port
from lab.guard_processes import child_of
from tests.e2e.console_stage import PEOPLE, SECRET
from tests.e2e.running_guard import tool_call, wait_until

pytestmark = pytest.mark.e2e


def page(url, path, document=None):
    """Return an answer of the console's API, None where nobody listens."""
    headers = {"authorization": f"Bearer {SECRET}"}
    method = "GET" if document is None else "POST"
    try:
        with httpx.Client(trust_env=False, timeout=60) as client:
            return client.request(method, url + path, headers=headers, json=document)
    except httpx.HTTPError:
        return None


def test_a_console_that_dies_is_started_again_and_the_guard_serves_all_the_while(tmp_path, launch):
    """Calls are decided with no console; the next one knows what was asked before."""
    people = tmp_path / "people.toml"
    people.write_text(PEOPLE, "utf-8")
    url = f"http://127.0.0.1:{(port := free_port())}"
    guard = launch(options=("--console", f"127.0.0.1:{port}", "--console-people", str(people)))
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

    assert (status, "isError" in str(allowed)) == (200, False)
    assert (during, again["result"]["isError"]) == (200, True)
    assert decision in waiting
    assert answered.status_code == 200
    assert released["result"]["content"][0]["text"] == "done"
    assert after != before
    assert "guard.console_lost" in events
