"""Commands that act by the API of a running console: found by its note, or named."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from functools import partial

import httpx
import pytest
from typer.testing import CliRunner

from guard import cli
from guard.core.calls import ToolResult
from guard.core.model import Identity, ToolCall
from guard.pipeline.outcome import JudgeRequest
from guard.policy import load_policies
from guard.store.store import RedisSessionStore
from tests.e2e.running_console import start_console
from tests.e2e.running_guard import wait_until
from tests.guards import guard_on
from tests.unit.extensions.propagation.test_incidents import spread
from tests.unit.provenance.agents import POLICY as AGENTS
from tests.unit.provenance.agents import Agent

pytestmark = pytest.mark.e2e
POLICY = """
version: 1
name: office
approvals: {two_people: [pay], pause: {asks: 3}, incidents: two_people}
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
            [(traced, verdict)] = await guard.judge(JudgeRequest([call]))
            if verdict.enforced.forwards:
                await guard.observe(ToolResult(traced, "sent", time.time()))
            await store.aclose()
            return call.id, verdict.enforced.label

        return asyncio.run(play())

    return once


@pytest.fixture
def options(tmp_path, policy):
    """What a console is started with: two people and the policy."""
    people = tmp_path / "people.toml"
    text = "".join(
        f'[people.{name}]\nsecret = "{hashlib.sha256(secret.encode()).hexdigest()}"\n'
        'roles = ["approver"]\n'
        for name, secret in SECRETS.items()
    )
    people.write_text(text, "utf-8")
    for name, secret in SECRETS.items():
        (tmp_path / f"{name}.secret").write_text(secret, "utf-8")
    return "--people", str(people), "--policy", str(policy)


@pytest.fixture
def console(tmp_path, own_server, options):
    """A running console with two people."""
    found = start_console(tmp_path, own_server.url, *options)
    yield found
    found.child.stop()


@pytest.fixture
def command(tmp_path):
    """Return a function that runs a command as the console's user."""
    environment = dict.fromkeys((k for k in os.environ if k.startswith("GUARD_")), None)
    environment["XDG_STATE_HOME"] = str(tmp_path)

    return lambda *words: CliRunner().invoke(cli.app, words, env=environment)


@pytest.fixture
def run(command):
    """Return a function that runs ``guard approvals …``."""
    return partial(command, "approvals")


def _by(tmp_path, console):
    """Return the options of each person's commands."""
    secrets = {name: str(tmp_path / f"{name}.secret") for name in SECRETS}
    return {name: ("--console", console.url, "--secret", secrets[name]) for name in SECRETS}


def _answers(tmp_path):
    lines = [json.loads(one) for one in (tmp_path / "audit.jsonl").read_text().splitlines()]
    found = [one for one in lines if one["event"] == "guard.approval"]
    return [(one["answer"], one["realm"]) for one in found]


def test_commands_find_the_console_and_it_answers_and_records(
    console, ask, run, command, tmp_path
):
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
    lines = command("grants", "list").stdout.splitlines()
    [line] = [one for one in lines if "drop@evil.test" in one]
    assert command("grants", "revoke", line.split()[0]).stdout == "revoked\n"
    assert "no answer" in command("grants", "revoke", line.split()[0]).stdout
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
    by = _by(tmp_path, console)
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


def test_commands_of_every_group_go_by_the_console(console, command, own_server, tmp_path):
    """Also where its state is named: it acts as it may, and has the record."""
    closed = ("memory", "quarantine", "p1", "--store", "facts", "--reason", "odd")
    done = [
        command(*closed),
        command("memory", "release", "p1", "--store", "facts", "--redis", own_server.url),
        command("memory", "review"),
        command("memory", "findings"),
        command("incident", "list"),
        command("tools", "list"),
    ]
    assert [one.exit_code for one in done] == [0] * len(done), done
    assert {f"by the console at {console.url}" in one.stderr for one in done} == {True}
    lines = [json.loads(one) for one in (tmp_path / "audit.jsonl").read_text().splitlines()]
    acts = [
        (one["event"], one["realm"]) for one in lines if one["event"].startswith("guard.memory")
    ]
    assert acts == [("guard.memory_quarantined", "machine"), ("guard.memory_released", "machine")]
    ann = _by(tmp_path, console)["ann"]
    refused = command("tools", "approve", "here:80/mcp", "send", "--digest", "ff", *ann)
    assert (refused.exit_code, "not for your role" in refused.stderr) == (1, True)
    mine = command("memory", "review", *ann, "--tenant", "nobody")
    assert (mine.exit_code, "p1" in mine.stdout) == (0, False)


def test_who_wants_an_undo_is_known_to_every_console_and_after_its_death(
    console, command, own_server, options, tmp_path
):
    """A second person agrees on another console; once, and nobody else does."""
    rules = tmp_path / "agents.yaml"
    rules.write_text(AGENTS + "propagation: {events: 1000, versions: 100}\n", "utf-8")

    async def play():
        store = RedisSessionStore.at(own_server.url, timeout=60.0)
        await spread(Agent(guard_on(store, load_policies([rules])), Identity("alice", "one")))
        await store.aclose()

    asyncio.run(play())
    (tmp_path / "other").mkdir()
    other = start_console(tmp_path / "other", own_server.url, *options)
    ann = _by(tmp_path, console)["ann"]
    opened = command("incident", "open", "--value", "drop@evil.test", *ann)
    name = opened.stdout.partition(":")[0]
    assert "contain done" in command("incident", "contain", name, *ann).stdout
    wanted = command("incident", "undo", name, "1", *ann).stdout
    assert f"guard incident agree {name} " in wanted
    act = wanted.split()[-1]
    console.child.process.kill()
    console.child.process.wait()
    again = start_console(tmp_path, own_server.url, *options)
    try:
        for one in (again, other):
            headers = {"authorization": f"Bearer {SECRETS['bea']}"}
            path = f"{one.url}/api/incidents/default/{name}/repair"
            waits = httpx.get(path, headers=headers, timeout=60, trust_env=False).json()["wanted"]
            assert [(found["id"], found["by"]) for found in waits] == [(act, "ann")]
        here, there = _by(tmp_path, again), _by(tmp_path, other)
        alone = command("incident", "agree", name, act, *there["ann"])
        assert (alone.exit_code, "a second person" in alone.stderr) == (3, True)
        done = command("incident", "agree", name, act, *there["bea"])
        assert "step 1 contain undone" in done.stdout
        twice = command("incident", "agree", name, act, *here["bea"])
        assert (twice.exit_code, "nothing waits" in twice.stderr) == (1, True)
    finally:
        again.child.stop()
        other.child.stop()
