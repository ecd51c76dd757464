"""Answers to requests for approval are told once, in order, to whoever asks for what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from guard.provenance.label_sets import request
from guard.store.approval_requests import RedisAnswers

if TYPE_CHECKING:
    from guard.store.store import RedisSessionStore


async def test_what_became_of_a_request_can_be_asked(store: RedisSessionStore) -> None:
    """Whoever answers takes its record away; a no is remembered for who asks later."""
    answers = RedisAnswers(store)
    fates = []
    for decision in ("yes", "no"):
        key = store.key_of("t", request("t", decision, 1))
        await store.client.execute("HSET", key, "q", "asked")
        fates.append(await answers.fate("t", decision))
        assert await answers.take("t", [decision], granted=decision == "yes")
        fates.append(await answers.fate("t", decision))
        await answers.tell("t", [decision], granted=decision == "yes")
        fates.append(await answers.fate("t", decision))

    assert fates == ["open", "open", "gone", "open", "denied", "denied"]


@pytest.mark.parametrize("first", [True, False])
async def test_a_request_is_taken_by_one_answer(store: RedisSessionStore, *, first: bool) -> None:
    """Another that has read the request before finds it taken, and undoes nothing."""
    answers = RedisAnswers(store)
    await store.client.execute("HSET", store.key_of("t", request("t", "d", 1)), "q", "asked")
    assert await answers.take("t", ["d"], granted=first)
    fate = await answers.fate("t", "d")

    assert not await answers.take("t", ["d"], granted=not first)
    assert not await answers.take("t", ["other"], granted=True)
    assert await answers.fate("t", "d") == fate
