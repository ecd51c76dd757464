"""A resource of a server that keeps a memory is read as a recall."""

import pytest

from guard.core.calls import ToolResult
from guard.core.model import Identity, Role, ToolCall
from guard.pipeline.outcome import JudgeRequest
from guard.policy import load_policies
from guard.settings import builtin_policies
from guard.store.store import RedisSessionStore
from lab.write_path.default_gate import Lines, recorded_guard

MEMORY = "memory.test:443/mcp"
RULE = "recall-before-unknown-send"


@pytest.mark.parametrize("size", [10, 300_000], ids=["small", "large"])
@pytest.mark.parametrize(
    ("offered", "is_recall"),
    [
        ((MEMORY, "open_nodes"), True),
        ((MEMORY, "create_entities"), False),
        (("elsewhere.test:443/mcp", "open_nodes"), False),
        ((MEMORY, "read_file"), False),
    ],
)
async def test_a_resource_of_a_memory_counts_as_recall(
    redis_server, redis_namespace, offered, is_recall, size
):
    """So a send after it is a recall before a send; another server's resource is none."""
    policy = load_policies([builtin_policies()["default"]])
    store = RedisSessionStore.at(redis_server.url, namespace=redis_namespace, timeout=10.0)
    guard = recorded_guard(policy, store, Lines(), redis_namespace)
    upstream, tool = offered
    guard.calls.offers.note(upstream, [tool])

    async def judge(name, at, arguments, upstream):
        call = ToolCall(f"c{at}", Identity("p", "s"), name, arguments, "mcp", at, upstream=upstream)
        [judged] = await guard.judge(JudgeRequest([call]))
        return judged

    try:
        uri = {"uri": "memory://knowledge-graph", "_meta": {"x": "y" * size}}
        read, _ = await judge("resources/read", 1.0, uri, MEMORY)
        await guard.observe(ToolResult(read, {"contents": [{"text": "notes"}]}, 2.0))
        mail = {"to": "someone@elsewhere.test", "body": "hello"}
        _, verdict = await judge("send_email", 3.0, mail, "mail.test:443/mcp")
    finally:
        await store.aclose()

    assert read.classified.role is (Role.RECALL if is_recall else Role.RETRIEVE)
    assert (RULE in {reason.rule for reason in verdict.reasons}) is is_recall
