"""A grant holds for a repeated request, and for none that says or goes anything else."""

import secrets
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


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("com.acme/requestId", lambda: str(uuid.uuid4())),
        ("com.acme.agents/run-id", lambda: secrets.token_hex(16)),
        ("toolCallId", lambda: f"call_{secrets.token_hex(12)}"),
        ("acme.dev/timestamp", lambda: f"2026-01-01T00:00:{secrets.randbelow(60):02}Z"),
        ("attempt", lambda: secrets.randbelow(9)),
    ],
)
async def test_a_member_that_a_client_makes_anew_keeps_no_retry_back(world_redis, name, drawn):
    """Named after one attempt, with a value as programs draw it."""
    async with world_of(assemble, world_redis, "default.yaml") as world:
        asked = await world.agent().call("send_email", MAIL, meta={name: drawn()})
        await world.approve(asked.decision_id)
        again = await world.agent(session="s2").call("send_email", MAIL, meta={name: drawn()})
        assert again.verdict == "allow"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"com.acme/account": "8f14e45f"}, {"com.acme/account": "1c383cd3"}),
        ({"com.acme/note": "the usual"}, {"com.acme/note": "to another account"}),
        (
            {"com.acme/requestId": str(uuid.UUID(int=1))},
            {"com.acme/requestId": "to my account now"},
        ),
        ({"com.acme/requestId": "1"}, {"com.acme/requestId": b"drop@evil.test".hex()}),
    ],
)
async def test_any_other_member_is_part_of_what_was_approved(world_redis, first, second):
    """The same message is released once it was approved; one that says something else is not."""
    async with world_of(assemble, world_redis, "default.yaml") as world:
        agent = world.agent()
        for meta, verdicts in ((first, ("ask", "allow")), (second, ("ask",))):
            for verdict in verdicts:
                outcome = await agent.call("send_email", MAIL, meta=meta)
                assert outcome.verdict == verdict
                if verdict == "ask" and meta is first:
                    await world.approve(outcome.decision_id)


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
