"""``guard approvals …`` by the API of a running console: found by its note, or named."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.adapters.redis.store import RedisSessionStore
from guard.core.calls import ToolResult
from guard.core.model import Identity, ToolCall
from guard.policy_files import load_policies
from tests.e2e.running_console import start_console
from tests.e2e.running_guard import wait_until
from tests.guards import guard_on

pytestmark = pytest.mark.e2e
POLICY = """
version: 1
name: office
approvals: {two_people: [pay], pause: {asks: 3}}
tools:
  - {match: [send], role: send, destinations: ["$.to"], body: ["$.body"]}
  - {match: [pay], role: send, destinations: ["$.to"]}
rules:
  - {id: ask, type: provenance, tools: [send], roles: [send], rungs: [unknown], effect: ask}
  - {id: pay, type: provenance, tools: [pay], roles: [send], rungs: [unknown], effect: ask}
  - {id: ok, type: provenance, roles: [send], rungs: [granted, established], effect: allow}
"""
SECRETS = {name: f"the secret of {name}, long enough for anybody" for name in ("ann", "bea")}


@pytest.fixture
def policy(tmp_path):
    """The policy file."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, "utf-8")
    return path


@pytest.fixture
def ask(own_server, policy):
    """Return a function: alice's send to a stranger gives decision id and verdict."""
    numbers = iter(range(1000))

    def once(tool="send", body="", to="drop@evil.test"):
        async def play():
            store = RedisSessionStore.at(own_server.url, timeout=10.0)
            guard = guard_on(store, load_policies([policy]))
            who = Identity("alice", "s")
            arguments = {"to": to, "body": body}
            call = ToolCall(f"d{next(numbers)}", who, tool, arguments, "test", time.time())
            [(traced, verdict)] = await guard.authorize([call])
            if verdict.enforced.forwards:
                await guard.observe(ToolResult(traced, "sent", time.time()))
            await store.aclose()
            return call.id, verdict.enforced.label

        return asyncio.run(play())

    return once


@pytest.fixture
def console(tmp_path, own_server, policy):
    """A running console with two people."""
    people = tmp_path / "people.toml"
    text = "".join(
        f'[people.{name}]\nsecret = "{hashlib.sha256(secret.encode()).hexdigest()}"\n'
        'roles = ["approver"]\n'
        for name, secret in SECRETS.items()
    )
    people.write_text(text, "utf-8")
    for name, secret in SECRETS.items():
        (tmp_path / f"{name}.secret").write_text(secret, "utf-8")
    options = ("--people", str(people), "--policy", str(policy))
    found = start_console(tmp_path, own_server.url, *options)
    yield found
    found.child.stop()


@pytest.fixture
def run(tmp_path):
    """Return a function that runs ``guard approvals …`` as the console's user."""
    environment = dict.fromkeys((k for k in os.environ if k.startswith("GUARD_")), None)
    environment["XDG_STATE_HOME"] = str(tmp_path)

    def command(*arguments):
        return CliRunner().invoke(cli.app, ["approvals", *arguments], env=environment)

    return command


def _answers(tmp_path):
    lines = [json.loads(one) for one in (tmp_path / "audit.jsonl").read_text().splitlines()]
    found = [one for one in lines if one["event"] == "guard.approval"]
    return [(one["answer"], one["realm"]) for one in found]


def test_commands_find_the_console_and_it_answers_and_records(console, ask, run, tmp_path):
    """List, show, grant, remember, revoke, deny and resume, without a Redis or a key named."""
    first, _ = ask()
    listed = run("list")
    assert first in listed.stdout
    assert console.url in listed.stderr
    assert "drop@evil.test" in run("show", first).stdout
    assert run("grant", first).stdout.startswith("granted: send for principal alice")
    assert ask()[1] == "allow"

    second, _ = ask(body="2")
    assert "granted" in run("grant", second, "--remember", "--until", "1h", "--yes").stdout
    assert ask(body="2")[1] == "allow"
    [line] = [one for one in run("list").stdout.splitlines() if "drop@evil.test" in one]
    assert run("revoke", line.split()[0]).stdout == "revoked\n"
    assert "no receiver" in run("revoke", line.split()[0]).stdout
    third, verdict = ask(body="3")
    assert verdict == "ask"
    assert run("deny", third).stdout == "denied\n"
    again = run("deny", third)
    assert (again.exit_code, "no call waits" in again.stderr) == (1, True)
    # Three calls were asked about, whichever process judged each.
    assert run("resume", "alice").stdout == "it may ask again\n"
    assert "not paused" in run("resume", "alice").stdout
    assert ("granted", "machine") in _answers(tmp_path)
    assert {realm for _, realm in _answers(tmp_path)} == {"machine"}


def test_two_people_approve_by_their_commands(console, ask, run, tmp_path):
    """Each with a secret of the people file; this machine's own commands are no second person."""
    decision, _ = ask("pay")
    by = {
        name: ("--console", console.url, "--secret", str(tmp_path / f"{name}.secret"))
        for name in SECRETS
    }
    refused = run("grant", decision)
    assert (refused.exit_code, "two people" in refused.stderr) == (1, True)
    assert "a second person has to" in run("grant", decision, *by["ann"]).stdout
    assert "second person" in run("list").stdout
    assert run("grant", decision, *by["ann"]).exit_code == 1
    assert ask("pay")[1] == "ask"
    assert "granted" in run("grant", decision, *by["bea"]).stdout
    assert ask("pay")[1] == "allow"
    (tmp_path / "wrong.secret").write_text("nobody's", "utf-8")
    wrong = run("list", "--console", console.url, "--secret", str(tmp_path / "wrong.secret"))
    assert (wrong.exit_code, "sign in first" in wrong.stderr) == (1, True)


def test_a_console_that_is_gone_is_not_asked(console, ask, run, own_server, tmp_path):
    """Its note goes with it; the commands then act on the state that they are given."""
    decision, _ = ask()
    assert list((tmp_path / "egress-guard" / "consoles").glob("*.json"))
    console.child.stop()
    wait_until(
        lambda: not list((tmp_path / "egress-guard" / "consoles").glob("*.json")), "its note's end"
    )
    lost = run("grant", decision)
    assert (lost.exit_code, "--redis" in lost.stderr) == (3, True)
    key = str(tmp_path / "label.key")
    done = run("grant", decision, "--redis", own_server.url, "--label-key", key)
    assert "granted" in done.stdout
    assert ask()[1] == "allow"
