"""A resource of a server that keeps a memory is read as a recall."""

from dataclasses import replace

import pytest

from guard.core.calls import ToolResult
from guard.core.model import Role
from guard.policy import load_policies
from guard.settings import builtin_policies
from tests.guards import guard_on
from tests.unit.provenance.agents import Agent

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
async def test_a_resource_of_a_memory_counts_as_recall(store, offered, is_recall, size):
    """So a send after it is a recall before a send; another server's resource is none."""
    agent = Agent(
        guard_on(store, load_policies([builtin_policies()["default"]])),
        protocol="mcp",
        upstream=MEMORY,
    )
    agent.guard.calls.offers.note(offered[0], offered[1:])
    uri = {"uri": "memory://knowledge-graph", "_meta": {"x": "y" * size}}
    read, _ = await agent.ask("resources/read", uri)
    await agent.guard.observe(ToolResult(read, {"contents": [{"text": "notes"}]}, agent.at))
    mail = {"to": "someone@elsewhere.test", "body": "hello"}
    _, verdict = await replace(agent, upstream="mail.test:443/mcp").ask("send_email", mail)

    assert read.classified.role is (Role.RECALL if is_recall else Role.RETRIEVE)
    assert (RULE in {reason.rule for reason in verdict.reasons}) is is_recall
