"""An attempt that cannot be played proves nothing."""

from __future__ import annotations

from guard.runtime.wiring import assemble
from lab.eval_trust import play
from lab.trust.attacks import Attempt


async def test_an_attempt_that_cannot_be_played_counts_as_not_stopped(world_redis):
    """An error proves nothing about the guard."""

    async def broken(_):
        raise LookupError("no such tool")

    played = await play(assemble, world_redis, Attempt("broken", broken))
    assert not played.stopped
    assert "no such tool" in played.error
