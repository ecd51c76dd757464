"""Calls that are held open: the client waits, a person answers, and these very bytes go out, once.

Every case runs against a real guard, Redis and upstream; ``GUARD_PEP=lean`` runs them all against
the other enforcement point.
"""

import asyncio
import json
import os
import signal
from contextlib import ExitStack, suppress

import httpx
import pytest

from tests.e2e.approval_desk import SECONDS, holding, outcomes
from tests.e2e.clients import Reading, Wrapper
from tests.e2e.running_guard import ROOT, tool_call, wait_until

pytestmark = pytest.mark.e2e

READS_EVENTS = {"accept": "application/json, text/event-stream"}


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


class Call(Reading):
    """One POST of a client whose answer is read as it comes."""

    def __init__(self, guard, document, headers=None):
        super().__init__()
        self._client = httpx.AsyncClient(trust_env=False, timeout=SECONDS)
        self._url = f"http://127.0.0.1:{guard.port}/mcp"
        self._document, self._headers = document, headers or READS_EVENTS
        self.status = 0
        self.type = ""
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self):
        posted = self._client.stream("POST", self._url, json=self._document, headers=self._headers)
        async with self._client, posted as answer:
            self.status, self.type = answer.status_code, answer.headers.get("content-type", "")
            async for piece in answer.aiter_text():
                self.text += piece
        return self

    async def leave(self):
        """Hang up."""
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    @property
    def messages(self):
        """The messages in the events so far."""
        lines = [one for one in self.text.splitlines() if one.startswith("data: ")]
        return [json.loads(one.removeprefix("data: ")) for one in lines]


def refusal(message):
    """Return a refusal's data in a message."""
    return dict(message["result"]["_meta"]["guard"])


async def test_a_call_waits_and_goes_out_when_it_is_approved(shared):
    """The client is told that it waits; nothing leaves before the yes, and one call after it."""
    document = tool_call("waits@outside.test")
    document["params"]["_meta"] = {"progressToken": 7}
    async with shared.desk() as people:
        call = Call(shared.guard, document)
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


async def test_of_two_calls_alike_one_yes_releases_one(shared):
    """A grant is used once: the other call waits for its own answer, here a no, and is told."""
    async with shared.desk() as people:
        calls = [Call(shared.guard, tool_call("twins@outside.test", ident=n)) for n in (1, 2)]
        first, _ = await people.asked(2)
        await people.answer(first, granted=True)
        await asyncio.wait([one.task for one in calls], return_when="FIRST_COMPLETED")
        count = sent(shared, "twins@outside.test")
        [left] = [one for one in calls if not one.task.done()]
        [denied] = await people.asked()
        await people.deny(denied)
        await left.task

    assert count == sent(shared, "twins@outside.test") == 1
    told = refusal(left.messages[-1])
    assert (told["code"], told["retry"]) == ("approval_denied", False)
    assert ended(shared, denied) == "denied"


async def test_a_yes_for_a_call_that_was_given_up_releases_nothing(shared):
    """Who has hung up is not sent for; the grant waits for the call to come again."""
    document = tool_call("left@outside.test")
    async with shared.desk() as people:
        call = Call(shared.guard, document)
        [decision] = await people.asked()
        await call.reads(":")
        await call.leave()
        await asyncio.to_thread(ended, shared, decision)
        await people.answer(decision, granted=True)
        other = await Call(shared.guard, tool_call("team@example.com")).task
        count = sent(shared, "left@outside.test")
        again = await Call(shared.guard, document).task

    assert ended(shared, decision) == "left"
    assert other.status == 200
    assert count == 0
    assert json.loads(again.text)["result"]["content"][0]["text"] == "done"


async def test_a_policy_that_changed_meanwhile_judges_anew(shared):
    """An answer to the old question releases nothing; the new policy's verdict counts."""
    async with shared.desk() as people:
        call = Call(shared.guard, tool_call("changed@changed.test"))
        [old] = await people.asked()
        at = max(one.at for one in await people.waiting())
        text = shared.policy.read_text("utf-8")
        shared.policy.write_text(text + "deny: [changed.test]\n", encoding="utf-8")
        shared.guard.process.send_signal(signal.SIGHUP)
        await call.task
        await people.approve(old, at)

    [answer] = call.messages
    assert refusal(answer)["decision"] == "block"
    assert refusal(answer)["decision_id"] != old
    assert sent(shared, "changed@changed.test") == 0
    assert ended(shared, old) == "refused"


async def test_neither_a_dead_worker_nor_a_stopped_guard_releases_anything(place):
    """Who waits at a worker that dies is cut off; who waits at a guard that stops is told."""
    async with place.desk() as people:
        call = Call(place.guard, tool_call("dies@outside.test"))
        [decision] = await people.asked()
        await call.reads(":")
        os.kill(place.guard.worker, signal.SIGKILL)
        with suppress(httpx.HTTPError):
            await call.task
        await people.answer(decision, granted=True)
        await asyncio.to_thread(place.guard.child.wait_ready, 2)
        other = Call(place.guard, tool_call("stops@outside.test"))
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
        asyncio.run(answer_one(place, granted=True))
        released = wrapper.hear()
        wrapper.say(tool_call("other@outside.test", ident=7))
        asyncio.run(answer_one(place, granted=False))
        denied = wrapper.hear()
        wrapper.say(tool_call("gone@outside.test", ident=8))
        [decision] = asyncio.run(decisions_of(place))
        notice = {"method": "notifications/cancelled", "params": {"requestId": 8}}
        wrapper.say({"jsonrpc": "2.0", **notice})
        left = ended(place, decision)

    assert told["method"] == "notifications/progress"
    assert passed["id"] == 6
    assert passed["params"]["arguments"]["to"] == "team@example.com"
    assert released["id"] == 5
    assert released["params"]["arguments"]["to"] == "pipe@outside.test"
    assert refusal(denied)["code"] == "approval_denied"
    assert left == "left"


async def decisions_of(place):
    """Return what waits, once something does."""
    async with place.desk() as people:
        return list(await people.asked())


async def answer_one(place, *, granted):
    """Answer the one request that waits."""
    async with place.desk() as people:
        await people.answer(*await people.asked(), granted=granted)
