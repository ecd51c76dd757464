"""A real client repeats a call that was approved, and it goes out, once.

What differs between two calls of a client (JSON-RPC ids, progress tokens, dates) must not keep a
grant from being found, and what does not differ must not open another call.
"""

import asyncio
import socket
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.processes.loopback import Rig, free_port
from lab.mcp_scenarios import Client, session
from tests.e2e.raw_server import RawServer
from tests.e2e.running_guard import (
    BEHIND_ENVOY,
    ROOT,
    Elsewhere,
    Upstream,
    default_answer,
    not_behind_envoy,
    serving,
    tool_call,
)

pytestmark = pytest.mark.e2e

POLICY = """version: 1
name: echo-is-a-send
tools:
  - match: [echo]
    role: send
    destinations: ["$.text"]
"""


FIRST = ("no server listens", "the server fails")
"""What a call meets at a server that begins to listen later."""


@pytest.fixture(scope="module")
def guard(tmp_path_factory):
    """Start the fixture server of the official SDK and a guard before it, and before others."""
    directory = tmp_path_factory.mktemp("retry")
    extra = directory / "echo.yaml"
    extra.write_text(POLICY, encoding="utf-8")
    state = {"XDG_STATE_HOME": str(directory / "state")}
    options = ["--policy", str(extra), "--label-key", str(directory / "label.key")]
    late = {name: (free_port(), free_port()) for name in FIRST}
    for listener, server in () if BEHIND_ENVOY else late.values():
        options += ["--reverse", f"127.0.0.1:{listener}=http://127.0.0.1:{server}"]
    with Rig() as rig:
        upstream = Elsewhere(rig.server("lab.fixture_server"))
        policy = ROOT / "policies" / "default.yaml"
        given = {"policy": policy, "options": tuple(options), "environment": state}
        with serving(directory / "guard", upstream, **given) as running:
            running.state, running.late = state, late
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


class Late(Upstream):
    """A tool server that begins to listen on a known port."""

    def __init__(self, port):
        self.received, self.answer = bytearray(), default_answer
        RawServer.__init__(self, socket.create_server(("127.0.0.1", port)))


@not_behind_envoy("Envoy connects to the server")
@pytest.mark.parametrize("first", FIRST)
async def test_an_answer_outlives_a_server_that_received_nothing(guard, first):
    """A failed connection gives the answer back; a server that was sent the call uses it up."""
    listener, server = guard.late[first]
    call = tool_call("new@partner.test")
    elsewhere = replace(guard, port=listener)
    _, asked = await asyncio.to_thread(elsewhere.post, call)
    await approved(guard, asked["result"]["_meta"]["guard"]["decision_id"])
    fails = first == "the server fails"
    if fails:
        failing = Late(server)
        failing.answer = lambda _: b"not HTTP\r\n\r\n"
    await asyncio.to_thread(elsewhere.post, call)
    if fails:
        failing.close()
    late = Late(server)
    _, repeated = await asyncio.to_thread(elsewhere.post, call)
    _, again = await asyncio.to_thread(elsewhere.post, call)
    late.close()

    assert (repeated["result"].get("isError", False)) is fails
    assert (b"new@partner.test" in late.received) is not fails
    assert again["result"]["isError"]
