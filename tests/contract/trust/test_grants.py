"""A grant holds for a repeated request, and for none that says or goes anything else."""

import uuid

import pytest

from guard.runtime.wiring import assemble
from lab.trust.harness import world_of

MAIL = {"to": "pat@partner.test", "subject": "s", "body": "b"}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "allow"),
        ({"meta": {"vscode.conversationId": "a", "progressToken": 9}}, "allow"),
        ({"headers": {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}}, "allow"),
        ({"path": "/other/mcp"}, "ask"),
        ({"meta": {"vscode.conversationId": "b"}}, "ask"),
        ({"meta": None}, "ask"),
        ({"headers": {"authorization": "Bearer other"}}, "ask"),
    ],
)
async def test_a_grant_is_for_one_request(world_redis, change, verdict):
    """Progress tokens and trace context differ in a retry; path, credential and meta do not."""
    async with world_of(assemble, world_redis, "default.yaml") as world:
        agent = world.agent()
        asked = await agent.call("send_email", MAIL, meta={"vscode.conversationId": "a"})
        assert asked.verdict == "ask"
        await world.approve(asked.decision_id)
        again = await agent.later("s2").call(
            "send_email", MAIL, **{"meta": {"vscode.conversationId": "a"}, **change}
        )
        assert again.verdict == verdict


ONE, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.mark.parametrize(
    ("name", "first", "second", "verdict"),
    [
        ("com.acme/requestId", ONE, OTHER, "allow"),
        ("com.acme.agents/run-id", "0f" * 16, "e1" * 16, "allow"),
        ("toolCallId", "call_" + "0f" * 12, "call_" + "e1" * 12, "allow"),
        ("acme.dev/timestamp", "2026-01-01T00:00:01Z", "2026-01-01T00:00:59Z", "allow"),
        ("attempt", 1, 2, "allow"),
        ("com.acme/account", "8f14e45f", "1c383cd3", "ask"),
        ("com.acme/note", "the usual", "to another account", "ask"),
        ("com.acme/requestId", ONE, "to my account now", "ask"),
        ("com.acme/requestId", "1", b"drop@evil.test".hex(), "ask"),
    ],
)
async def test_a_retry_may_differ_in_the_ids_of_an_attempt_alone(
    world_redis, name, first, second, verdict
):
    """Named after one attempt, with a value as programs draw it; the rest was approved."""
    async with world_of(assemble, world_redis, "default.yaml") as world:
        asked = await world.agent().call("send_email", MAIL, meta={name: first})
        await world.approve(asked.decision_id)
        again = await world.agent(session="s2").call("send_email", MAIL, meta={name: second})
        assert again.verdict == verdict


def upload(boundary, text):
    """Return a form with one part."""
    head = 'Content-Disposition: form-data; name="note"'
    return f"--{boundary}\r\n{head}\r\n\r\n{text}\r\n--{boundary}--\r\n".encode()


@pytest.mark.parametrize(("text", "verdict"), [("hello", "allow"), ("hallo", "ask")])
async def test_a_form_that_is_cut_anew_is_the_same_one(world_redis, text, verdict):
    """A client draws another boundary for every attempt; what stands between them counts."""
    async with world_of(assemble, world_redis, "default.yaml") as world:
        agent = world.agent()
        answers = []
        for boundary, said in (("a1b2c3d4e5", "hello"), ("f6a7b8c9d0", text)):
            headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
            url = "https://files.partner.test/in"
            outcome = await agent.http("POST", url, upload(boundary, said), headers)
            answers.append(outcome.verdict)
            if outcome.verdict == "ask" and len(answers) == 1:
                await world.approve(outcome.decision_id)
        assert answers == ["ask", verdict]
