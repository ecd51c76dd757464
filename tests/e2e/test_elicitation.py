"""The guard asks the person at an MCP client, as far as the policy lets that person answer.

The official SDK's client asks its callback, as it would ask its user; revision 2026-07-28 is spoken
by hand, as its clients do.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

from guard.processes.loopback import Rig, free_port
from lab.modern_server import REVISION, VERSION
from tests.e2e.approval_desk import SECONDS, Place, holding
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
      principals: [form]
    - {by: url, principals: [url]}
"""
TOOL = '{match: [echo, ask], role: send, destinations: ["$.text", "$.words"]}'
PAGE = "https://console.test"
CAPABLE = "io.modelcontextprotocol/clientCapabilities"


@dataclass
class Listeners:
    """A guard with a listener for each principal, before servers of both revisions."""

    place: Place
    ports: dict[str, int]

    def url(self, principal):
        """Return where a principal's agent calls."""
        return f"http://127.0.0.1:{self.ports[principal]}/mcp"


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Start one that holds calls open."""
    with Rig() as rig:
        older, newer = rig.server("lab.fixture_server"), rig.server("lab.modern_server")
        text = POLICY.replace("TOOL", TOOL)
        text = text.replace("OLDER", str(older)).replace("NEWER", str(newer))
        ports = {name: free_port() for name in ("form", "url", "new form", "new url")}
        options = ["--console-url", PAGE]
        for name, port in ports.items():
            to = newer if name.startswith("new ") else older
            principal = name.removeprefix("new ")
            options += ["--reverse", f"{principal}@127.0.0.1:{port}=http://127.0.0.1:{to}"]
        directory = tmp_path_factory.mktemp("held")
        with holding(directory, text, Elsewhere(older), *options) as place:
            yield Listeners(place, ports)


@dataclass
class Person:
    """Whoever sits at a client: what was shown, and what is answered."""

    action: str = "accept"
    content: dict[str, Any] | None = None
    shown: list[Any] = field(default_factory=list)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def asked(self, context, params):
        """Answer as the SDK's callback."""
        del context
        self.shown.append(params)
        self.opened.set()
        return types.ElicitResult(action=self.action, content=self.content)


@asynccontextmanager
async def client(url, person):
    """Open a session of the official SDK, with somebody to ask."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=SECONDS) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(
            read,
            write,
            timedelta(seconds=SECONDS),
            elicitation_callback=person.asked,
        ) as opened,
    ):
        await opened.initialize()
        yield opened


async def test_a_form_that_is_accepted_releases_the_call(held):
    """The person sees whom the call would reach; the answer is on record as his."""
    person = Person("accept", {"approve": True})
    async with client(held.url("form"), person) as mcp:
        result = await mcp.call_tool("echo", {"text": "one@partner.test"})

    assert result.content[0].text == "one@partner.test"
    assert "one@partner.test" in person.shown[0].message
    line = [one for one in held.place.guard.audit() if one["event"] == "guard.approval"][-1]
    assert (line["answer"], line["how"]) == ("granted", "elicitation")


async def test_a_page_that_is_opened_is_no_answer(held):
    """The call waits for the answer on the page; then the client is told that it is complete."""
    person = Person("accept")
    async with client(held.url("url"), person) as mcp, held.place.desk() as people:
        call = asyncio.get_running_loop().create_task(
            mcp.call_tool("echo", {"text": "four@partner.test"})
        )
        await person.opened.wait()
        [*_, decision] = await people.asked(receiver="four@partner.test")
        await asyncio.sleep(0)
        before = call.done()
        await people.answer(decision, granted=True)
        result = await call

    [shown] = person.shown
    assert not before
    assert shown.mode == "url"
    assert shown.url == f"{PAGE}/approvals/default/{decision}"
    assert result.content[0].text == "four@partner.test"


async def test_an_answer_that_nobody_asked_for_is_dropped(held):
    """An agent that guesses, or answers another's question, is not heard."""
    answer = {"action": "accept", "content": {"approve": True}}
    message = {"jsonrpc": "2.0", "id": f"guard-elicit-{'0' * 32}", "result": answer}
    async with httpx.AsyncClient(trust_env=False, timeout=SECONDS) as http:
        told = await http.post(held.url("form"), json=message)

    refused = [one for one in held.place.guard.audit() if one["event"] == "guard.unreadable"]
    assert told.status_code == 202
    assert refused[-1]["code"] == "unasked_answer"


class Modern:
    """A client of revision 2026-07-28."""

    def __init__(self, place, principal, able):
        self._url = place.url(f"new {principal}")
        self._meta = {VERSION: REVISION, CAPABLE: {"elicitation": able}}
        self._number = 0

    async def call(self, name, arguments, **more):
        """Call a tool; return the result."""
        self._number += 1
        params = {"name": name, "arguments": arguments, "_meta": self._meta, **more}
        message = {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}
        headers = {
            "mcp-protocol-version": REVISION,
            "mcp-method": "tools/call",
            "mcp-name": name,
            "accept": "application/json, text/event-stream",
        }
        async with httpx.AsyncClient(trust_env=False, timeout=SECONDS) as http:
            answer = await http.post(self._url, json=message, headers=headers)
        assert answer.status_code == 200, answer.text
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            text = [one for one in text.splitlines() if one.startswith("data: ")][-1][6:]
        document = json.loads(text)
        assert document["id"] == self._number
        return dict(document["result"])


def again(result, answer):
    """Return what a request that comes again carries."""
    responses = {"inputResponses": {"guard-approval": answer}}
    return {"requestState": result["requestState"], **responses}


YES = {"action": "accept", "content": {"approve": True}}


async def test_a_request_comes_again_with_the_answer(held):
    """It is answered `input_required`, held by nobody, and goes out once it has come again.

    A yes for one call opens no other, and a state of another client opens none.
    """
    modern = Modern(held, "form", {"form": {}})
    call = ("echo", {"words": "seven@partner.test"})
    first = await modern.call(*call)
    other = await modern.call("echo", {"words": "ten@partner.test"}, **again(first, YES))
    elsewhere = await Modern(held, "url", {"url": {}}).call(*call, **again(first, YES))
    second = await modern.call(*call, **again(first, YES))
    third = await modern.call(*call, **again(first, YES))

    asked_for = first["inputRequests"]["guard-approval"]
    assert asked_for["method"] == "elicitation/create"
    assert "seven@partner.test" in asked_for["params"]["message"]
    assert "seven" not in first["requestState"]
    assert second["content"][0]["text"] == "seven@partner.test"
    assert elsewhere["_meta"]["guard"]["code"] == "bad_request_state"
    assert {one["resultType"] for one in (first, other, third)} == {"input_required"}
