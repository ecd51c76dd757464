"""What the adversarial class about proposed policies shows, and that it needs its rule."""

from __future__ import annotations

import itertools
import random

import pytest

from guard.wiring import assemble
from lab.eval_trust import play
from lab.trust.attacks import Patch
from lab.trust.init_guess import InitGuess


@pytest.mark.parametrize("number", range(len(InitGuess.switches)))
async def test_a_name_opens_nothing_and_trusting_it_would(world_redis, number):
    """With the rule on nothing gets through; with names trusted, something does."""
    attempts = list(itertools.islice(InitGuess().attempts(random.Random(1)), 32))
    patch = Patch()

    stopped = [await play(assemble, world_redis, one) for one in attempts]
    InitGuess.switches[number].off(patch)
    try:
        opened = [await play(assemble, world_redis, one) for one in attempts]
    finally:
        patch.undo()

    assert not any(one.got_through or one.error for one in stopped)
    assert any(one.got_through for one in opened)
