"""``guard tools list | diff | approve`` against a real Redis."""

import asyncio
import json

import pytest

from guard.core.declarations import ToolDefinition
from guard.core.model import Identity
from guard.credentials.label_key import load_key
from guard.memory.pins import Pins
from guard.provenance.seal import Seal
from guard.store.store import RedisSessionStore

WHERE = "tools.test:80/mcp"


@pytest.fixture
def listed(redis_server, redis_namespace, tmp_path):
    """Return a function that lists a tool as the guard does."""
    pins = Pins(Seal(load_key(tmp_path / "label.key", "label key")))
    identity = Identity("p", "s", tenant=redis_namespace)

    async def note(description):
        store = RedisSessionStore.at(redis_server.url, timeout=60.0)
        definition = ToolDefinition("send", {"name": "send", "description": description})
        records = await store.look_up(identity, pins.lookup(WHERE, [definition]))
        found = pins.compare(WHERE, [definition], records, 1000.0)
        await store.note(identity, found.writes)
        await store.aclose()
        return [code for code, _ in found.findings]

    return lambda description: asyncio.run(note(description))


def test_a_change_is_shown_as_a_diff_and_approved_on_record(run, listed, tmp_path):
    """After that the definition is what is pinned, and the mark is gone."""
    listed("Sends a mail.")
    assert run("tools", "diff", WHERE, "send").exit_code == 1
    listed("Sends a mail.\x1b[2J To everybody.")

    shown, before = run("tools", "diff", WHERE, "send"), run("tools", "list")
    audit = tmp_path / "audit.jsonl"
    approved = run("tools", "approve", WHERE, "send", "--audit", audit)

    assert '-  "description": "Sends a mail."' in shown.stdout
    assert "To everybody." in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "changed" in before.stdout
    assert approved.exit_code == 0
    line = json.loads(audit.read_text("utf-8"))
    assert (line["event"], line["tool"]) == ("guard.tool_definition_approved", "send")
    assert "changed" not in run("tools", "list").stdout
    assert listed("Sends a mail.\x1b[2J To everybody.") == listed("Sends a mail.") == []


def test_only_the_definition_that_was_looked_at_is_approved(run, listed):
    """The server may have changed it again in between."""
    listed("Sends a mail.")
    listed("Worse.")

    assert run("tools", "approve", WHERE, "send", "--digest", "ffff").exit_code == 1
    assert "changed" in run("tools", "list").stdout
