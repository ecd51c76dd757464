"""What the class about tools of two servers shows, and that it needs its rule."""

from __future__ import annotations

import itertools
import random

from guard.wiring import assemble
from lab.eval_trust import play
from lab.trust.attacks import Patch
from lab.trust.tools import Tools


async def test_a_name_of_two_servers_opens_neither_and_forgetting_that_would(world_redis):
    """With the rule on nothing gets through; with it off, something does."""
    attempts = list(itertools.islice(Tools().attempts(random.Random(1)), 30))
    patch = Patch()

    stopped = [await play(assemble, world_redis, one) for one in attempts]
    Tools.switches[0].off(patch)
    try:
        opened = [await play(assemble, world_redis, one) for one in attempts]
    finally:
        patch.undo()

    assert not any(one.got_through or one.error for one in stopped)
    assert any(one.got_through for one in opened)
