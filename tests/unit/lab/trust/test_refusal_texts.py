"""Refusals say what became of the request: each code, by side, against what the upstream got."""

import json

import pytest

from guard.adapters.metrics import reason_codes
from guard.core.errors import Fate, MessageError
from guard.core.metrics import REFUSAL_CODES
from guard.core.policy import Action, Mode, Reason, Verdict
from guard.protocols.refusals import unanswered
from guard.wiring import assemble
from lab.trust.harness import TOOLS, Answer, world_of

NOT_SENT = "did not reach the tool"
WITHHELD = "This call reached the tool; its result was withheld"
UNKNOWN = "whether the tool carried it out is not known"
READ = ("read_file", {"path": "figures.txt"})


@pytest.fixture
async def world(world_redis):
    """Open a world for every code of one side."""
    async with world_of(assemble, world_redis, "default.yaml") as opened:
        yield opened


def refusal(reply):
    """Return the words and the fields of a refusal."""
    result = json.loads(reply)["result"]
    return result["content"][0]["text"], result["_meta"]["guard"]


def verdict(code, action=Action.BLOCK):
    """Return a verdict with one reason."""
    return Verdict(action, Mode.ENFORCE, (Reason(code, "", action),), policy="")


@pytest.mark.parametrize("action", [Action.BLOCK, Action.ASK])
async def test_a_call_that_is_refused_is_said_not_to_have_been_sent(world, monkeypatch, action):
    """Whatever the code: the upstream has got nothing."""
    guard = world.parts.guard
    original = guard.authorize
    for code in sorted(reason_codes()):

        async def authorize(calls, rewrite=None, code=code):
            judged = await original(calls, rewrite)
            return [(traced, verdict(code, action)) for traced, _ in judged]

        monkeypatch.setattr(guard, "authorize", authorize)
        text, fields = refusal((await world.agent().call(*READ)).reply)

        assert fields["request"] == Fate.NOT_SENT.value, code
        assert NOT_SENT in text, code
        assert "reached the tool;" not in text, code
    assert world.received == []


@pytest.mark.parametrize("action", [Action.BLOCK, Action.ASK])
async def test_a_result_that_is_withheld_is_said_to_have_been_answered(world, monkeypatch, action):
    """Whatever the code: the upstream has got the call once, and a repeat would be a second one."""
    codes = sorted(reason_codes())
    for code in codes:

        async def observe(_result, code=code):
            return verdict(code, action)

        monkeypatch.setattr(world.parts.guard, "observe", observe)
        text, fields = refusal((await world.agent().call(*READ, "some text")).reply)

        assert (fields["request"], fields["retry"]) == (Fate.WITHHELD.value, False), code
        assert text.startswith(WITHHELD), code
        assert NOT_SENT not in text, code
    assert len(world.received) == len(codes)


async def test_an_answer_that_cannot_be_read_is_said_to_have_come(world, monkeypatch):
    """Whatever the code: the upstream has got the call."""
    for code in sorted(REFUSAL_CODES):

        async def on_answer(*_arguments, code=code):
            raise MessageError(code, "not to be read")

        monkeypatch.setattr(world.parts.enforcement.responses, "on_answer", on_answer)
        text = (await world.agent().call(*READ, "some text")).reply.decode()

        assert WITHHELD in text, code
        assert NOT_SENT not in text, code
        assert UNKNOWN not in text, code
    assert len(world.received) == len(REFUSAL_CODES)


async def test_an_answer_that_does_not_come_leaves_it_open(world, monkeypatch):
    """The upstream has got the call, and nobody knows more."""
    responses, before = world.parts.enforcement.responses, len(world.received)

    async def on_answer(*_arguments):
        raise unanswered("the tool server did not answer")

    monkeypatch.setattr(responses, "on_answer", on_answer)
    text = (await world.agent().call(*READ, "some text")).reply.decode()

    assert len(world.received) == before + 1
    assert UNKNOWN in text
    assert NOT_SENT not in text
    assert WITHHELD not in text


@pytest.mark.parametrize("body", [b"{", b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "x"}'])
async def test_a_message_that_cannot_be_read_is_said_not_to_have_been_sent(world, body):
    """The upstream has got nothing."""
    agent, before = world.agent(), len(world.received)
    outcome = await agent.raw(
        agent.request("POST", "/mcp", body, {"content-type": "application/json"})
    )

    assert len(world.received) == before
    assert NOT_SENT in outcome.reply.decode()


async def test_a_result_of_a_server_that_failed_leaves_it_open(world, monkeypatch):
    """A status of 500 says neither that it was carried out nor that it was not."""

    async def observe(_result):
        return verdict("guard_error")

    def failed(request):
        said = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": {"content": []}}
        return Answer(json.dumps(said).encode(), status=500)

    monkeypatch.setattr(world.parts.guard, "observe", observe)
    monkeypatch.setitem(world._upstreams, TOOLS, failed)
    text, fields = refusal((await world.agent().call(*READ)).reply)

    assert fields["request"] == Fate.UNKNOWN.value
    assert UNKNOWN in text
