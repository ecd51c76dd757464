"""A grant holds for a repeated request, and for none that says or goes anything else."""

import pytest

from guard.lab.trust.harness import world_of
from guard.wiring import assemble

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
