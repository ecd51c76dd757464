"""Commands that act by the API of a running console, which they find by its note."""

import json
import os
from functools import partial

import pytest
from typer.testing import CliRunner

from guard import cli
from tests.e2e.running_console import played, send, start_console

pytestmark = pytest.mark.e2e
POLICY = """
version: 1
name: office
tools:
  - {match: [send], role: send, destinations: ["$.to"], body: ["$.body"]}
rules:
  - {id: ask, type: provenance, roles: [send], rungs: [unknown], effect: ask}
  - {id: ok, type: provenance, roles: [send], rungs: [granted, established], effect: allow}
"""


def test_commands_find_the_console_and_it_answers_and_records(tmp_path, own_server):
    """List, show, grant and deny, without a Redis or a key named."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY, "utf-8")
    console = start_console(tmp_path, own_server.url, "--policy", str(policy))
    environment = dict.fromkeys((k for k in os.environ if k.startswith("GUARD_")), None)
    environment["XDG_STATE_HOME"] = str(tmp_path)

    def ask(body=""):
        sent = partial(send, arguments={"to": "drop@evil.test", "body": body})
        return played(own_server.url, policy, sent)

    def run(*words):
        return CliRunner().invoke(cli.app, words, env=environment)

    first, _ = ask()
    listed = run("approvals", "list")
    assert first in listed.stdout
    assert console.url in listed.stderr
    assert "drop@evil.test" in run("approvals", "show", first).stdout
    granted = run("approvals", "grant", first).stdout
    assert granted.startswith("granted: send for principal alice")
    assert ask()[1] == "allow"

    second, verdict = ask(body="2")
    assert verdict == "ask"
    denied = [run("approvals", "deny", second) for _ in range(2)]
    assert denied[0].stdout == "denied\n"
    assert (denied[1].exit_code, "no call waits" in denied[1].stderr) == (1, True)
    console.child.stop()
    lines = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    answers = {(x["answer"], x["realm"]) for x in lines if x["event"] == "guard.approval"}
    assert answers >= {("granted", "machine"), ("denied", "machine")}
