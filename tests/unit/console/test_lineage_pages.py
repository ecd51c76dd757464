"""Sessions and lineage, from real state."""

from __future__ import annotations

import re

import pytest

from tests.unit.extensions.propagation.test_incidents import spread
from tests.unit.provenance.agents import agent, guard, policy

__all__ = ["agent", "guard", "policy"]


@pytest.fixture
def sections():
    """The guard keeps the propagation graph."""
    return "propagation: {events: 1000}\n"


async def test_a_value_is_traced_from_the_text_that_named_it_to_every_save(console, agent):
    """Each event leads to its own page; the value is in no URL."""
    await spread(agent)
    async with console.as_("viewer") as client:
        page = (await client.post("/lineage", data={"value": "drop@evil.test"})).text
        nodes = set(re.findall(r'href="(/lineage/default/[0-9a-f]+)"', page))
        each = [(await client.get(path)).status_code for path in nodes]

    assert "read in untrusted text" in page
    assert page.count("saved in facts") >= 2
    assert (len(nodes), set(each)) == (2, {200})
