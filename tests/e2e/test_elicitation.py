"""The guard asks the person at an MCP client, as far as the policy lets that person answer.

The official SDK's client asks its callback, as it would ask its user; revision 2026-07-28 is spoken
by hand, as its clients do.
"""

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
from mcp import ClientSession, McpError, types
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
  HOLD
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


@contextmanager
def running(directory, ask):
    """Start one."""
    with Rig() as rig:
        older, newer = rig.server("lab.fixture_server"), rig.server("lab.modern_server")
        text = POLICY.replace("HOLD", ask).replace("TOOL", TOOL)
        text = text.replace("OLDER", str(older)).replace("NEWER", str(newer))
        ports = {n: free_port() for n in ("form", "url", "other", "new form", "new url")}
        options = ["--console-url", PAGE]
        for name, port in ports.items():
            to = newer if name.startswith("new ") else older
            principal = name.removeprefix("new ")
            options += ["--reverse", f"{principal}@127.0.0.1:{port}=http://127.0.0.1:{to}"]
        with holding(directory, text, Elsewhere(older), *options) as place:
            yield Listeners(place, ports)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Return one that holds calls open."""
    with running(tmp_path_factory.mktemp("held"), "hold: 5m") as place:
        yield place


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """Return one that refuses them at once."""
    with running(tmp_path_factory.mktemp("refused"), "# nothing is held") as place:
        yield place


@pytest.fixture(params=["held", "refused"])
def place(request):
    """Return each of them."""
    return request.getfixturevalue(request.param)


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
    """Open a session of the official SDK, with somebody to ask or without."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=SECONDS) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(
            read,
            write,
            timedelta(seconds=SECONDS),
            elicitation_callback=person.asked if person is not None else None,
        ) as opened,
    ):
        await opened.initialize()
        yield opened


def guard_of(result):
    """Return a refusal's data in a tool result."""
    return dict(result.meta["guard"])


async def test_a_form_that_is_accepted_releases_the_call(held):
    """The person sees whom the call would reach; the answer is on record as his."""
    person = Person("accept", {"approve": True})
    async with client(held.url("form"), person) as mcp:
        result = await mcp.call_tool("echo", {"text": "one@partner.test"})

    assert result.content[0].text == "one@partner.test"
    assert "one@partner.test" in person.shown[0].message
    line = [one for one in held.place.guard.audit() if one["event"] == "guard.approval"][-1]
    assert (line["answer"], line["how"]) == ("granted", "elicitation")


@pytest.mark.parametrize(
    ("person", "code"),
    [
        (Person("decline"), "approval_denied"),
        (Person("accept", {"approve": False}), "approval_denied"),
        (Person("cancel"), "approval_required"),
        (Person("accept", {"approve": "true"}), "approval_required"),
        (Person("accept", {}), "approval_required"),
    ],
    ids=["declined", "accepted with no", "cancelled", "a text", "empty"],
)
async def test_anything_but_a_yes_releases_nothing(held, person, code):
    """A no denies it; what is no answer leaves it to somebody else."""
    async with client(held.url("form"), person) as mcp:
        result = await mcp.call_tool("echo", {"text": "two@partner.test"})
    async with held.place.desk() as people:
        for one in await people.waiting():
            await people.deny(one.decision)

    assert guard_of(result)["code"] == code


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


@pytest.mark.parametrize("principal", ["other", "form", "url"])
async def test_who_is_not_named_or_cannot_ask_is_not_asked(held, principal):
    """A client without elicitation, and one whose principal the policy does not name, wait."""
    person = Person("accept", {"approve": True}) if principal == "other" else None
    async with client(held.url(principal), person) as mcp, held.place.desk() as people:
        call = asyncio.get_running_loop().create_task(
            mcp.call_tool("echo", {"text": f"five-{principal}@partner.test"})
        )
        await people.deny((await people.asked(receiver=f"five-{principal}@partner.test"))[-1])
        result = await call

    assert person is None or person.shown == []
    assert guard_of(result)["code"] == "approval_denied"


async def test_an_answer_that_nobody_asked_for_is_dropped(place):
    """An agent that guesses, or answers another's question, is not heard."""
    answer = {"action": "accept", "content": {"approve": True}}
    message = {"jsonrpc": "2.0", "id": f"guard-elicit-{'0' * 32}", "result": answer}
    async with httpx.AsyncClient(trust_env=False, timeout=SECONDS) as http:
        told = await http.post(place.url("form"), json=message)

    refused = [one for one in place.place.guard.audit() if one["event"] == "guard.unreadable"]
    assert told.status_code == 202
    assert refused[-1]["code"] == "unasked_answer"


async def test_where_nothing_is_held_a_url_is_asked_for_by_an_error(refused):
    """Code -32042 names the page; after the answer there the call goes out."""
    async with client(refused.url("url"), Person("accept")) as mcp, refused.place.desk() as people:
        with pytest.raises(McpError) as failed:
            await mcp.call_tool("echo", {"text": "six@partner.test"})
        [*_, decision] = await people.asked(receiver="six@partner.test")
        await people.answer(decision, granted=True)
        result = await mcp.call_tool("echo", {"text": "six@partner.test"})

    [wanted] = failed.value.error.data["elicitations"]
    assert failed.value.error.code == -32042
    assert wanted["url"] == f"{PAGE}/approvals/default/{decision}"
    assert wanted["elicitationId"] == decision
    assert result.content[0].text == "six@partner.test"


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
    responses = {} if answer is None else {"inputResponses": {"guard-approval": answer}}
    return {"requestState": result["requestState"], **responses}


YES = {"action": "accept", "content": {"approve": True}}


async def test_a_request_comes_again_with_the_answer(place):
    """It is answered `input_required`, held by nobody, and goes out once it has come again."""
    modern = Modern(place, "form", {"form": {}})
    call = ("echo", {"words": "seven@partner.test"})
    first = await modern.call(*call)
    second = await modern.call(*call, **again(first, YES))
    third = await modern.call(*call, **again(first, YES))

    assert first["resultType"] == "input_required"
    asked_for = first["inputRequests"]["guard-approval"]
    assert asked_for["method"] == "elicitation/create"
    assert "seven@partner.test" in asked_for["params"]["message"]
    assert "seven" not in first["requestState"]
    assert second["content"][0]["text"] == "seven@partner.test"
    assert third["resultType"] == "input_required"


async def test_a_state_is_for_its_call_its_principal_and_whole(place):
    """A yes for one call opens no other; a state of another client, or an altered one, none."""
    modern = Modern(place, "form", {"form": {}})
    first = await modern.call("echo", {"words": "nine@partner.test"})
    other = await modern.call("echo", {"words": "ten@partner.test"}, **again(first, YES))
    elsewhere = await Modern(place, "url", {"url": {}}).call(
        "echo", {"words": "nine@partner.test"}, **again(first, YES)
    )
    state = first["requestState"]
    altered = {**first, "requestState": state[:-8] + ("A" * 8)}
    broken = await modern.call("echo", {"words": "nine@partner.test"}, **again(altered, YES))

    assert other["resultType"] == "input_required"
    assert elsewhere["_meta"]["guard"]["code"] == "bad_request_state"
    assert broken["_meta"]["guard"]["code"] == "bad_request_state"
