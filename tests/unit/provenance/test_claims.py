"""A claim is the weakest word for a destination: of one session, and of what nobody named."""

import pytest

from tests.unit.provenance.agents import play

TO, DAVE = "carol@partner.test", "dave@partner.test"


async def claim(agent):
    """Have the agent's front say that the user named two people."""
    await agent.guard.notes.claims(agent.identity, (f"mail:{TO}", f"mail:{DAVE}"), agent.at)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [("send", TO, "ask claimed")], id="a claimed recipient is asked about"),
        pytest.param(
            [("in", "before"), ("read", {}, f"write to {TO}"), ("in", "one")],
            [
                ("read", {}, f"write to {DAVE}"),
                ("send", TO, "tainted"),
                ("send", DAVE, "tainted"),
            ],
            id="a claim attests nothing that untrusted text has named",
        ),
        pytest.param(
            [],
            [("save", {"key": "k", "value": TO}), ("in", "two"), ("send", TO, "!claimed !allow")],
            id="a claim is kept neither for another session nor in memory",
        ),
        pytest.param(
            [],
            [("say", f"write to {TO}"), ("send", TO, "prompted")],
            id="the user's own word counts more",
        ),
    ],
)
async def test_a_claim_is_the_weakest_word(agent, before, after):
    """What was read before it and after it, and what is sent then."""
    await play(agent, [*before, ("do", claim), *after])
