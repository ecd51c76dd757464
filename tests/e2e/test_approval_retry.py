"""A real client repeats a call that was approved, and it goes out, once.

What differs between two calls of a client (JSON-RPC ids, progress tokens, dates) must not keep a
grant from being found, and what does not differ must not open another call.
"""

import asyncio

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.processes.loopback import Rig
from lab.mcp_scenarios import Client, session
from tests.e2e.running_guard import (
    ROOT,
    Elsewhere,
    serving,
)

pytestmark = pytest.mark.e2e

POLICY = """version: 1
name: echo-is-a-send
tools:
  - match: [echo]
    role: send
    destinations: ["$.text"]
"""


@pytest.fixture(scope="module")
def guard(tmp_path_factory):
    """Start the fixture server of the official SDK and a guard before it."""
    directory = tmp_path_factory.mktemp("retry")
    extra = directory / "echo.yaml"
    extra.write_text(POLICY, encoding="utf-8")
    state = {"XDG_STATE_HOME": str(directory / "state")}
    options = ["--policy", str(extra), "--label-key", str(directory / "label.key")]
    with Rig() as rig:
        upstream = Elsewhere(rig.server("lab.fixture_server"))
        policy = ROOT / "policies" / "default.yaml"
        given = {"policy": policy, "options": tuple(options), "environment": state}
        with serving(directory / "guard", upstream, **given) as running:
            running.state = state
            yield running


async def approved(guard, decision):
    """Approve a call on the command line, which has an event loop of its own, on record."""
    command = ["approvals", "grant", decision]
    done = await asyncio.to_thread(CliRunner().invoke, cli.app, command, env=guard.state)
    assert done.exit_code == 0, done.output
    answers = [line for line in guard.audit() if line["event"] == "guard.approval"]
    assert (answers[-1]["decision_id"], answers[-1]["answer"]) == (decision, "granted")


def refusal_in(result):
    """Return the refusal's data in a tool result."""
    return dict(result.meta["guard"])


async def test_an_mcp_client_repeats_what_was_approved(guard):
    """Under another id, once, and in the session that asked: its server chose the session's id."""
    url = f"http://127.0.0.1:{guard.port}/mcp"
    call = ("echo", {"text": "new@partner.test"})
    async with session(url, Client()) as mcp:
        first = await mcp.call_tool(*call)
        await approved(guard, str(refusal_in(first)["decision_id"]))
        async with session(url, Client()) as other:
            elsewhere = await other.call_tool(*call)
        second, third = await mcp.call_tool(*call), await mcp.call_tool(*call)

    assert "repeat this exact call" in first.content[0].text
    for one in (first, elsewhere, third):
        assert refusal_in(one)["code"] == "approval_required"
    assert not second.isError
    assert call[1]["text"] in second.content[0].text
