"""An attempt got through where its call was forwarded; what cannot be played proves nothing."""

from __future__ import annotations

import pytest

from guard.runtime.wiring import assemble
from lab.eval_trust import play
from lab.trust.attacks import Attempt

MAIL = "email_send_email"
STRANGER = "drop@elsewhere.test"


@pytest.mark.parametrize("through", [True, False])
async def test_an_attempt_tells_whether_it_got_through(world_redis, through):
    """Forwarded unapproved is through; refused is stopped."""

    async def attempt(world):
        receiver = "team@example.com" if through else STRANGER
        return (await world.agent().call(MAIL, {"to": receiver, "body": "b"})).forwarded

    played = await play(assemble, world_redis, Attempt("mail", attempt))
    assert played.stopped is not through
    assert not played.error


async def test_an_attempt_that_cannot_be_played_counts_as_not_stopped(world_redis):
    """An error proves nothing about the guard."""

    async def broken(_):
        raise LookupError("no such tool")

    played = await play(assemble, world_redis, Attempt("broken", broken))
    assert not played.stopped
    assert "no such tool" in played.error
