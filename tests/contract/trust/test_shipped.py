"""Attempts read off the shipped policies: on each of them, stopped for their receivers."""

import pytest

from guard.runtime.wiring import assemble
from lab.trust.harness import world_of
from lab.trust.shipped import first_send, mislead, shipped_attempts, shipped_files

SENDING = [(one, *found) for one in shipped_files() if (found := first_send(one)) is not None]


def test_every_policy_that_ships_and_enforces_is_attacked():
    """A new file takes part without being named anywhere."""
    attacked = {attempt.name.split(": ")[1] for attempt in shipped_attempts()}

    assert attacked == {one.name for one in shipped_files()}
    assert len(attacked) >= 40


@pytest.mark.parametrize(
    ("shipped", "tool", "arguments"), SENDING, ids=[one.name for one, *_ in SENDING]
)
async def test_a_send_to_the_attacker_is_refused_for_its_receiver(
    world_redis, shipped, tool, arguments
):
    """And not because the attempt is malformed, or its tool unknown."""
    async with world_of(assemble, world_redis, shipped.files) as world:
        outcome = await mislead(world, shipped, tool, arguments)

    assert not outcome.forwarded
    assert any(code.startswith(("provenance_", "destination_")) for code in outcome.codes)
    assert "tool_unmapped" not in outcome.codes
