"""``guard approvals list | revoke | show | deny``, on a real Redis."""

import asyncio
import time

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.core.calls import ToolResult
from guard.core.model import Identity, ToolCall
from guard.credentials.label_key import load_label_key
from guard.pipeline.decision_log import Records
from guard.pipeline.guard import Guard
from guard.pipeline.outcome import JudgeRequest
from guard.pipeline.stores import Stores
from guard.policy import load_policies
from guard.provenance.seal import Seal
from guard.replay.run import ErrorCounter
from guard.store.store import RedisSessionStore
from guard.telemetry.audit_log import NoAuditLog

POLICY = """
version: 1
name: office
tools:
  - {match: [send], role: send, destinations: ["$.to"], body: ["$.body"]}
rules:
  - {id: ask, type: provenance, roles: [send], rungs: [claimed, unknown, tainted], effect: ask}
  - {id: ok, type: provenance, roles: [send], rungs: [prompted, established], effect: allow}
"""


@pytest.fixture
def now():
    """When the test runs: what waits for an answer does so for an hour of the machine's time."""
    return time.time()


@pytest.fixture
def run(redis_server, tmp_path, redis_namespace):
    """Return a function that runs a command against the test's Redis, key and tenant."""
    key = tmp_path / "label.key"

    def call(*arguments, group="approvals"):
        options = [
            "--redis",
            redis_server.url,
            "--label-key",
            str(key),
            "--tenant",
            redis_namespace,
        ]
        return CliRunner().invoke(cli.app, [group, *map(str, arguments), *options])

    return call


@pytest.fixture
def sends(redis_server, tmp_path, redis_namespace, now):
    """Send once to whom the user named, and once to a stranger; return the stranger's decision."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    seal = Seal(load_label_key(tmp_path / "label.key"))

    async def play():
        store = RedisSessionStore.at(redis_server.url, timeout=60.0)
        guard = Guard(
            load_policies([path]),
            Stores(store),
            Records(NoAuditLog(), ErrorCounter()),
            seal=seal,
        )
        alice = Identity("alice", "s", tenant=redis_namespace)
        await guard.notes.prompt(alice, "Send the figures to pat@partner.test.", now)
        verdicts = []
        for number, to in enumerate(("pat@partner.test", "drop@evil.test")):
            arguments = {"to": to, "body": "figures"}
            call = ToolCall(f"deadbeef0{number}", alice, "send", arguments, "test", now)
            [(traced, verdict)] = await guard.judge(JudgeRequest([call]))
            verdicts.append(verdict.enforced.label)
            if verdict.enforced.forwards:
                await guard.observe(ToolResult(traced, "sent", now))
        await store.aclose()
        assert verdicts == ["allow", "ask"]

    asyncio.run(play())
    return "deadbeef01"


def test_an_established_receiver_is_listed_and_revoked(run, sends):
    """Who was sent to because the user named it can be taken away by its mark."""
    listed = run("list")
    assert listed.exit_code == 0, listed.output
    waiting = [one for one in listed.stdout.splitlines() if one.startswith(sends)]
    assert "drop@evil.test" in waiting[0]
    assert "waits until" in waiting[0]
    [line] = run("list", group="grants").stdout.splitlines()
    for part in ("alice", "pat@partner.test", "principal until", "the user's prompt", "last use"):
        assert part in line

    assert run("revoke", line.split()[0], group="grants").stdout.strip() == "revoked"
    assert "pat@partner.test" not in run("list", group="grants").stdout
    assert "no answer" in run("revoke", line.split()[0], group="grants").stdout


def test_a_call_that_waits_is_shown_and_denied(run, sends):
    """Its receiver and what would leave; once denied it can no longer be approved."""
    shown = run("show", sends)
    assert shown.exit_code == 0, shown.output
    assert "drop@evil.test" in shown.stdout

    assert "never, as far as is on record" in shown.stdout
    assert run("deny", sends).stdout.strip() == "denied"
    assert run("grant", sends).exit_code == 1


def test_what_is_to_be_remembered_is_shown_and_confirmed(run, sends):
    """Nothing is granted before the person has seen whom untrusted text may have named."""
    asked = run("grant", sends, "--remember", "--until", "30d")
    assert asked.exit_code == 1
    assert "drop@evil.test" in asked.stdout
    assert "remember these receivers (alice, principal, until" in asked.stdout
    assert "waits until" in run("list").stdout
    assert run("grant", sends, "--remember", "--until", "30 moons").exit_code == 3
    assert run("grant", sends, "--until", "30d").exit_code == 3
