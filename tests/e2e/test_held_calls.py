"""Calls that are held open: the client waits, a person answers, and these very bytes go out, once.

Every case runs against a real guard, Redis and upstream; ``GUARD_PEP=lean`` runs them all against
the other enforcement point.
"""

import asyncio
import os
import signal
from contextlib import ExitStack, suppress

import httpx
import pytest

from tests.e2e.approval_desk import holding, outcomes
from tests.e2e.clients import Posting, Wrapper
from tests.e2e.running_guard import ROOT, tool_call, wait_until

pytestmark = pytest.mark.e2e

HOLD = "version: 1\nname: hold\nask: {hold: 5m}\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Return one for every test that leaves it as it was."""
    with holding(tmp_path_factory.mktemp("held"), HOLD) as place:
        yield place


@pytest.fixture
def place(tmp_path):
    """Return one of a test's own."""
    with holding(tmp_path, HOLD) as place:
        yield place


def sent(place, text):
    """Return how often something has reached the upstream."""
    return place.guard.upstream.received.count(text.encode())


def ended(place, decision):
    """Wait for the end of a held request, whose line may follow the answer; return how it ended."""
    return str(wait_until(lambda: outcomes(place.guard).get(decision), "the end of the wait"))


def asked_of(guard, document):
    """Return the call of a client that reads events."""
    return Posting(f"http://127.0.0.1:{guard.port}/mcp", document)


def refusal(message):
    """Return a refusal's data in a message."""
    return dict(message["result"]["_meta"]["guard"])


async def test_a_call_waits_and_goes_out_when_it_is_approved(shared):
    """The client is told that it waits; nothing leaves before the yes, and one call after it."""
    document = tool_call("waits@outside.test")
    document["params"]["_meta"] = {"progressToken": 7}
    async with shared.desk() as people:
        call = asked_of(shared.guard, document)
        [decision] = await people.asked()
        await call.reads("notifications/progress")
        before = sent(shared, "waits@outside.test")
        await people.answer(decision, granted=True)
        await call.task

    assert before == 0
    assert call.type == "text/event-stream"
    told, answer = call.messages
    assert told["params"]["progressToken"] == 7
    assert answer["id"] == 1
    assert answer["result"]["content"][0]["text"] == "done"
    assert sent(shared, "waits@outside.test") == 1
    assert ended(shared, decision) == "released"


async def test_neither_a_dead_worker_nor_a_stopped_guard_releases_anything(place):
    """Who waits at a worker that dies is cut off; who waits at a guard that stops is told."""
    async with place.desk() as people:
        call = asked_of(place.guard, tool_call("dies@outside.test"))
        [decision] = await people.asked()
        await call.reads(":")
        os.kill(place.guard.worker, signal.SIGKILL)
        with suppress(httpx.HTTPError):
            await call.task
        await people.answer(decision, granted=True)
        await asyncio.to_thread(place.guard.child.wait_ready, 2)
        other = asked_of(place.guard, tool_call("stops@outside.test"))
        await people.asked(1)
        await other.reads(":")
        await asyncio.gather(asyncio.to_thread(place.guard.stop), other.task)

    assert "result" not in call.text
    assert refusal(other.messages[-1])["code"] == "approval_required"
    assert place.guard.upstream.received == b""


def test_a_frame_on_standard_input_waits_while_others_pass(tmp_path, short_directory):
    """Its agent is told that its call waits; another call passes it, and a yes sends it."""
    socket_path = short_directory() / "s"
    with (
        holding(tmp_path, HOLD, None, "--decisions", str(socket_path)) as place,
        ExitStack() as stack,
    ):
        policies = (ROOT / "policies" / "default.yaml", place.policy)
        wrapper = stack.enter_context(Wrapper(socket_path, policies, "cat"))
        document = tool_call("pipe@outside.test", ident=5)
        document["params"]["_meta"] = {"progressToken": "p"}
        wrapper.say(document)
        told = wrapper.hear()
        wrapper.say(tool_call("team@example.com", ident=6))
        passed = wrapper.hear()
        asyncio.run(answer_one(place))
        released = wrapper.hear()

    assert told["method"] == "notifications/progress"
    assert passed["id"] == 6
    assert passed["params"]["arguments"]["to"] == "team@example.com"
    assert released["id"] == 5
    assert released["params"]["arguments"]["to"] == "pipe@outside.test"


async def answer_one(place):
    """Approve the one request that waits."""
    async with place.desk() as people:
        await people.answer(*await people.asked(), granted=True)
