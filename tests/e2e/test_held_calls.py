"""Calls that are held open: the client waits, a person answers, and these very bytes go out, once.

Every case runs against a real guard, Redis and upstream; ``GUARD_PEP=lean`` runs them all against
the other enforcement point.
"""

import asyncio
import os
import signal
from contextlib import suppress

import httpx
import pytest

from tests.e2e.approval_desk import holding, outcomes
from tests.e2e.clients import Posting, Wrapper
from tests.e2e.running_guard import ROOT, tool_call, wait_until

pytestmark = pytest.mark.e2e

HOLD = "version: 1\nname: hold\nask: {hold: 5m}\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory, short_directory):
    """Give a guard for the tests that leave it as it was, and its decision socket."""
    decisions, directory = short_directory() / "s", tmp_path_factory.mktemp("held")
    with holding(directory, HOLD, None, "--decisions", str(decisions)) as place:
        yield place, decisions


async def test_a_call_waits_and_goes_out_when_it_is_approved(shared):
    """The client is told that it waits; nothing leaves before the yes, and one call after it."""
    place, _ = shared
    received = place.guard.upstream.received
    document = tool_call("waits@outside.test")
    document["params"]["_meta"] = {"progressToken": 7}
    async with place.desk() as people:
        call = Posting(f"{place.url}/mcp", document)
        [decision] = await people.asked()
        await call.reads("notifications/progress")
        before = b"waits@outside.test" in received
        await people.answer(decision, granted=True)
        await call.task

    told, answer = call.messages
    assert not before
    assert told["params"]["progressToken"] == 7
    assert answer["id"] == 1
    assert answer["result"]["content"][0]["text"] == "done"
    assert received.count(b"waits@outside.test") == 1
    # The line may follow the answer.
    wait_until(lambda: outcomes(place.guard).get(decision) == "released", "the line")


async def test_neither_a_dead_worker_nor_a_stopped_guard_releases_anything(tmp_path):
    """Who waits at a worker that dies is cut off; who waits at a guard that stops is told."""
    with holding(tmp_path, HOLD) as place:
        async with place.desk() as people:
            call = Posting(f"{place.url}/mcp", tool_call("dies@outside.test"))
            [decision] = await people.asked()
            await call.reads(":")
            os.kill(place.guard.worker, signal.SIGKILL)
            with suppress(httpx.HTTPError):
                await call.task
            await people.answer(decision, granted=True)
            await asyncio.to_thread(place.guard.child.wait_ready, 2)
            other = Posting(f"{place.url}/mcp", tool_call("stops@outside.test"))
            await people.asked(1)
            await other.reads(":")
            await asyncio.gather(asyncio.to_thread(place.guard.stop), other.task)

    told = other.messages[-1]["result"]["_meta"]["guard"]
    assert "result" not in call.text
    assert told["code"] == "approval_required"
    assert place.guard.upstream.received == b""


async def test_a_frame_on_standard_input_waits_while_others_pass(shared):
    """Its agent is told that its call waits; another call passes it, and a yes sends it."""
    place, decisions = shared
    policies = (ROOT / "policies" / "default.yaml", place.policy)
    document = tool_call("pipe@outside.test", ident=5)
    document["params"]["_meta"] = {"progressToken": "p"}
    async with place.desk() as people:
        with Wrapper(decisions, policies, "cat") as wrapper:
            wrapper.say(document)
            told = await asyncio.to_thread(wrapper.hear)
            wrapper.say(tool_call("team@example.com", ident=6))
            passed = await asyncio.to_thread(wrapper.hear)
            await people.answer(*await people.asked(), granted=True)
            released = await asyncio.to_thread(wrapper.hear)

    assert told["method"] == "notifications/progress"
    assert passed["id"] == 6
    assert passed["params"]["arguments"]["to"] == "team@example.com"
    assert released["id"] == 5
    assert released["params"]["arguments"]["to"] == "pipe@outside.test"
