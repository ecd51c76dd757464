"""``guard approvals grant``, ``guard memory import | list | show | trace``, a real Redis."""

import asyncio
import json
import re

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
  - {match: [recall], role: recall, store: facts, item: "$.key"}
  - {match: [save], role: save, store: facts, item: "$.key"}
  - {match: [read], role: retrieve}
rules:
  - {id: work, type: tool, roles: [recall, save, retrieve], effect: allow}
"""


@pytest.fixture
def run(redis_server, tmp_path):
    """Return a function that runs a command against the test's Redis and key."""
    key = tmp_path / "label.key"

    def call(*arguments):
        options = ["--redis", redis_server.url, "--label-key", str(key)]
        return CliRunner().invoke(cli.app, [*map(str, arguments), *options])

    return call


@pytest.fixture
def tenant(redis_namespace):
    """Return a tenant of one's own: the commands use the guard's namespace."""
    return redis_namespace


def test_imported_items_can_be_listed_shown_and_traced(run, tmp_path, tenant):
    """By fingerprint, by text, and as a tree; never the text of what is stored."""
    path = tmp_path / "contacts.json"
    items = [{"store": "facts", "value": "pat@partner.test", "label": "authenticated"}]
    path.write_text(json.dumps(items), encoding="utf-8")

    assert run("memory", "import", path, "--tenant", tenant).exit_code == 0
    listed = run("memory", "list", "--tenant", tenant)
    shown = run("memory", "show", "pat@partner.test", "--tenant", tenant)
    traced = run("memory", "trace", "pat@partner.test", "--tenant", tenant)

    assert "authenticated" in listed.stdout
    assert "partner" not in listed.stdout
    assert "imported" in shown.stdout
    assert "first imported" in traced.stdout
    nothing = run("memory", "trace", "x@y.test", "--tenant", tenant)
    assert "no record" in nothing.stdout


@pytest.fixture
def laundered(redis_server, tmp_path, tenant):
    """Have one principal save what it read in a mail, and another save it under a second key."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    seal = Seal(load_label_key(tmp_path / "label.key"))
    calls = [
        ("alice", "read", {}, "mail drop@evil.test"),
        ("alice", "save", {"key": "office", "value": "drop@evil.test"}, "ok"),
        ("bob", "recall", {"key": "office"}, "drop@evil.test"),
        ("bob", "save", {"key": "colleague", "value": "drop@evil.test"}, "ok"),
    ]

    async def run():
        store = RedisSessionStore.at(redis_server.url, timeout=60.0)
        guard = Guard(
            load_policies([path]),
            Stores(store),
            Records(NoAuditLog(), ErrorCounter()),
            seal=seal,
        )
        for number, (principal, tool, arguments, result) in enumerate(calls):
            identity = Identity(principal, f"session of {principal}", tenant=tenant)
            call = ToolCall(f"call-{number}", identity, tool, arguments, "test", 1_700_000_000.0)
            [(classified, _)] = await guard.judge(JudgeRequest([call]))
            await guard.observe(ToolResult(classified, result, 1_700_000_000.0))
        await store.aclose()

    asyncio.run(run())


def test_a_trace_is_a_tree_of_every_save(run, tenant, laundered):
    """Which tool, which call and session, which principal, which item, label and time."""
    traced = run("memory", "trace", "drop@evil.test", "--tenant", tenant)

    lines = [re.sub("[│├└─]", " ", line) for line in traced.stdout.splitlines()]
    digest, at = "[0-9a-f]{8}", "2023-11-14 22:13"
    saved = (
        rf"saved in item {digest} of facts: label untrusted, "
        rf"save, call 1 of session {digest}, {at}, principal {digest}"
    )
    expected = [
        "drop@evil.test",
        " {4}mail:drop@evil.test",
        rf" {{8}}held: saved, label untrusted, read, call 0 of session {digest}, {at}",
        rf" {{8}}read in untrusted text: read, call 0 of session {digest}, {at}",
        rf" {{12}}{saved}",
        rf" {{16}}{saved}",
    ]
    assert [bool(re.fullmatch(*pair)) for pair in zip(expected, lines, strict=True)] == [True] * 6


def test_a_trace_as_json_has_digests_in_full_and_the_parents_of_each_save(run, tenant, laundered):
    """The same tree, for programs."""
    traced = run("memory", "trace", "drop@evil.test", "--tenant", tenant, "--json")

    [value] = json.loads(traced.stdout)["values"]
    [read] = value["path"]
    [first] = read["then"]
    [second] = first["then"]
    assert [step["kind"] for step in (read, first, second)] == ["read", "saved", "saved"]
    assert [held["label"] for held in value["held"]] == ["untrusted"]
    assert first["parents"] == [{key: read[key] for key in first["parents"][0]}]
    assert second["parents"][0] == {"item": first["item"]}
    assert first["principal"] != second["principal"]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '[{"store": "s"}]', '[{"store": "s", "value": "v", "label": "great"}]'],
)
def test_a_list_that_cannot_be_read_exits_with_3(run, tmp_path, text):
    """Nothing of it is imported."""
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    assert run("memory", "import", path).exit_code == 3
