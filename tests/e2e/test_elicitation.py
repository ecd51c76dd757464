"""The guard asks the person at an MCP client, as far as the policy lets that person answer.

The official SDK's client asks its callback, as it would ask its user; revision 2026-07-28 is spoken
by hand, as its clients do.
"""

import json

import httpx
import pytest
from mcp import types

from guard.processes.loopback import Rig, free_port
from lab.mcp_scenarios import Client, session
from lab.modern_server import REVISION, VERSION
from tests.e2e.approval_desk import SECONDS, holding
from tests.e2e.running_guard import Elsewhere

pytestmark = pytest.mark.e2e

POLICY = """version: 1
name: echo-asks
approvals: {own: allow}
servers:
  - {name: older, upstream: "127.0.0.1:OLDER", tools: [TOOL]}
  - {name: newer, upstream: "127.0.0.1:NEWER", tools: [TOOL]}
ask:
  hold: 5m
  elicit:
    - by: form
      rules: [ask-unknown, recall-before-unknown-send, suspicious-unknown-send]
      principals: [form, another]
"""
TOOL = '{match: [echo, ask], role: send, destinations: ["$.text", "$.words"]}'
LISTENERS = {"form": "older", "new form": "newer", "new another": "newer"}
"""Their names end in the principal of their agents; each leads to a server of one revision."""
CAPABLE = "io.modelcontextprotocol/clientCapabilities"
META = {VERSION: REVISION, CAPABLE: {"elicitation": {"form": {}}}}
YES = {"action": "accept", "content": {"approve": True}}


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Give a guard that holds calls open, and the URL of each listener."""
    with Rig() as rig:
        servers = {
            "older": rig.server("lab.fixture_server"),
            "newer": rig.server("lab.modern_server"),
        }
        text = POLICY.replace("TOOL", TOOL)
        options, urls = [], {}
        for name, server in LISTENERS.items():
            port, upstream = free_port(), f"127.0.0.1:{servers[server]}"
            text = text.replace(f"127.0.0.1:{server.upper()}", upstream)
            listener = f"{name.split()[-1]}@127.0.0.1:{port}=http://{upstream}"
            options += ["--reverse", listener]
            urls[name] = f"http://127.0.0.1:{port}/mcp"
        directory = tmp_path_factory.mktemp("held")
        with holding(directory, text, Elsewhere(servers["older"]), *options) as place:
            yield place.guard, urls


class Person(Client):
    """A client whose user agrees."""

    async def elicit(self, context, params):
        """Answer as the SDK's callback."""
        self.shown = params.message
        return types.ElicitResult(**YES)


async def test_a_form_that_is_accepted_releases_the_call(held):
    """The person sees whom the call would reach; the answer is on record as his."""
    (guard, urls), person = held, Person()
    async with session(urls["form"], person) as mcp:
        result = await mcp.call_tool("echo", {"text": "one@partner.test"})

    assert result.content[0].text == "one@partner.test"
    assert "one@partner.test" in person.shown
    line = [one for one in guard.audit() if one["event"] == "guard.approval"][-1]
    assert (line["answer"], line["how"]) == ("granted", "elicitation")


def test_an_answer_that_nobody_asked_for_is_dropped(held):
    """An agent that guesses, or answers another's question, is not heard."""
    guard, urls = held
    message = {"jsonrpc": "2.0", "id": f"guard-elicit-{'0' * 32}", "result": YES}
    told = httpx.post(urls["form"], json=message, trust_env=False, timeout=SECONDS)

    refused = [one for one in guard.audit() if one["event"] == "guard.unreadable"]
    assert (told.status_code, refused[-1]["code"]) == (202, "unasked_answer")


def modern(url, words, first=None):
    """Call a tool as a client of revision 2026-07-28; with the answer to what it was asked first.

    Returns:
        The result.
    """
    params = {"name": "echo", "arguments": {"words": words}, "_meta": META}
    if first is not None:
        params["requestState"] = first["requestState"]
        params["inputResponses"] = {"guard-approval": YES}
    answer = httpx.post(
        url,
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        headers={
            "mcp-protocol-version": REVISION,
            "mcp-method": "tools/call",
            "mcp-name": "echo",
            "accept": "application/json, text/event-stream",
        },
        trust_env=False,
        timeout=SECONDS,
    )
    *_, document = (line for line in answer.text.splitlines() if "jsonrpc" in line)
    return json.loads(document.removeprefix("data: "))["result"]


def test_a_request_comes_again_with_the_answer(held):
    """It is answered `input_required`, held by nobody, and goes out once it has come again.

    A yes for one call opens no other, and a state of another client opens none.
    """
    _, urls = held
    url, words = urls["new form"], "seven@partner.test"
    first = modern(url, words)
    other = modern(url, "ten@partner.test", first)
    elsewhere = modern(urls["new another"], words, first)
    second, third = modern(url, words, first), modern(url, words, first)

    asked_for = first["inputRequests"]["guard-approval"]
    assert asked_for["method"] == "elicitation/create"
    assert words in asked_for["params"]["message"]
    assert "seven" not in first["requestState"]
    assert second["content"][0]["text"] == words
    assert elsewhere["_meta"]["guard"]["code"] == "bad_request_state"
    assert {one["resultType"] for one in (first, other, third)} == {"input_required"}
