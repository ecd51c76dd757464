"""Answers to requests for approval are told once, in order, to whoever asks for what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.adapters.redis.answers import RedisAnswers
from guard.provenance.label_sets import request

if TYPE_CHECKING:
    from guard.adapters.redis.store import RedisSessionStore


async def test_what_is_new_is_told_in_order(
    store: RedisSessionStore, second_store: RedisSessionStore
) -> None:
    """What was told before the mark is not told again, and another tenant hears nothing."""
    here, there = RedisAnswers(store), RedisAnswers(second_store)
    await here.tell("t", ["old"], granted=True)
    mark, before = await there.since("t", "")
    await here.tell("t", ["a", "b"], granted=True)
    await here.tell("t", ["c"], granted=False)
    later, told = await there.since("t", mark)

    assert before == []
    assert told == [("a", True), ("b", True), ("c", False)]
    assert await there.since("t", later) == (later, [])
    assert await there.since("other", "") == ("0-0", [])


async def test_a_request_is_open_until_it_is_answered(store: RedisSessionStore) -> None:
    """Whoever answers takes its record away."""
    answers = RedisAnswers(store)
    key = store.key_of("t", request("t", "d", 1))
    await store.client.execute("HSET", key, "q", "asked")
    before = await answers.is_open("t", "d")
    await store.client.execute("DEL", key)

    assert before
    assert not await answers.is_open("t", "d")
