"""A grant holds for a repeated request, and for none that says or goes anything else."""

import uuid

import pytest

from guard.runtime.wiring import assemble
from lab.trust.harness import world_of

MAIL = {"to": "pat@partner.test", "subject": "s", "body": "b"}


FIRST = {"vscode.conversationId": "a"}
ONE, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.mark.parametrize(
    ("first", "change", "verdict"),
    [
        (FIRST, {}, "allow"),
        (FIRST, {"meta": {**FIRST, "progressToken": 9}}, "allow"),
        (FIRST, {"headers": {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}}, "allow"),
        (FIRST, {"path": "/other/mcp"}, "ask"),
        (FIRST, {"meta": {"vscode.conversationId": "b"}}, "ask"),
        (FIRST, {"meta": None}, "ask"),
        (FIRST, {"headers": {"authorization": "Bearer other"}}, "ask"),
        # Ids of an attempt, with values as programs draw them.
        ({"com.acme/requestId": ONE}, {"meta": {"com.acme/requestId": OTHER}}, "allow"),
        ({"acme/run-id": "0f" * 16}, {"meta": {"acme/run-id": "e1" * 16}}, "allow"),
        (
            {"toolCallId": "call_" + "0f" * 12},
            {"meta": {"toolCallId": "call_" + "e1" * 12}},
            "allow",
        ),
        (
            {"acme.dev/timestamp": "2026-01-01T00:00:01Z"},
            {"meta": {"acme.dev/timestamp": "2026-01-01T00:00:59Z"}},
            "allow",
        ),
        ({"attempt": 1}, {"meta": {"attempt": 2}}, "allow"),
        ({"com.acme/account": "8f14e45f"}, {"meta": {"com.acme/account": "1c383cd3"}}, "ask"),
        ({"com.acme/note": "usual"}, {"meta": {"com.acme/note": "to another account"}}, "ask"),
        ({"com.acme/requestId": ONE}, {"meta": {"com.acme/requestId": "to my account now"}}, "ask"),
        ({"requestId": "1"}, {"meta": {"requestId": b"drop@evil.test".hex()}}, "ask"),
    ],
)
async def test_a_grant_is_for_one_request(world_redis, first, change, verdict):
    """Ids of an attempt and trace context differ in a retry; path, credential and meta do not."""
    async with world_of(assemble, world_redis, "default.yaml") as world:
        agent = world.agent()
        asked = await agent.call("send_email", MAIL, meta=first)
        assert asked.verdict == "ask"
        await world.approve(asked.decision_id)
        again = await agent.later("s2").call("send_email", MAIL, **{"meta": first, **change})
        assert again.verdict == verdict
