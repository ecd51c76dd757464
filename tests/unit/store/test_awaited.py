"""What waits for an answer or a second person: enciphered, taken once, told to whoever asks."""

import asyncio
from dataclasses import dataclass

import pytest

from guard.core.errors import GuardError
from guard.provenance.label_sets import request
from guard.provenance.principal_status import ACTS_PART, asked_set
from guard.provenance.seal import Seal
from guard.store import approval_requests as awaited
from guard.store.approval_requests import Awaited, RedisAnswers
from tests.guards import KEY

NOW = 1_700_000_000.0


@dataclass(frozen=True)
class Act:
    """Something that is asked for."""

    id: str
    what: str
    at: float = NOW


def acts(store, key=KEY, tenant="default"):
    """Return what waits, as one console sees it."""
    return Awaited(store, Seal(key), tenant, asked_set(tenant, ACTS_PART), Act, 60.0)


async def test_another_console_sees_it_and_one_of_two_takes_it(store, second_store):
    """Nothing of it is in the memory of who kept it, nor readable in Redis."""
    here, there = acts(store), acts(second_store)
    await here.keep(Act("a", "undo the secret step"))
    raw = await store.client.execute("HGET", store.key_of("default", here._area), "a")

    assert await there.listed(NOW) == [Act("a", "undo the secret step")]
    assert b"secret" not in raw
    assert sorted(await asyncio.gather(here.take("a"), there.take("a"))) == [False, True]
    assert (await here.one("a", NOW), await there.listed(NOW)) == (None, [])


async def test_what_was_put_there_by_somebody_else_does_not_wait(store):
    """Altered, moved to another id or tenant, sealed with another key: it is not there."""
    mine = acts(store)
    await mine.keep(Act("a", "undo"))
    await acts(store, bytes(32)).keep(Act("z", "undo"))
    key = store.key_of("default", mine._area)
    raw = await store.client.execute("HGET", key, "a")
    await store.client.execute("HSET", key, "b", raw)
    await store.client.execute("HSET", key, "c", raw[:-1] + bytes([raw[-1] ^ 1]))
    elsewhere = acts(store, tenant="other")
    await store.client.execute("HSET", store.key_of("other", elsewhere._area), "a", raw)

    assert [one.id for one in await mine.listed(NOW)] == ["a"]
    assert await elsewhere.listed(NOW) == []


async def test_it_waits_for_a_while_and_not_without_bound(store, monkeypatch):
    """What nobody agrees to is over, and what is too much is refused."""
    monkeypatch.setattr(awaited, "WAITING", 2)
    mine = acts(store)
    for name in ("a", "b"):
        await mine.keep(Act(name, "undo"))

    with pytest.raises(GuardError, match="too many wait"):
        await mine.keep(Act("c", "undo"))
    assert await mine.one("a", NOW + 61) is None
    await mine.keep(Act("c", "undo", NOW + 61))
    assert [one.id for one in await mine.listed(NOW + 61)] == ["c"]
    assert await store.client.execute("PTTL", store.key_of("default", mine._area)) > 0


async def test_what_became_of_a_request_can_be_asked(store):
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
async def test_a_request_is_taken_by_one_answer(store, *, first):
    """Another that has read the request before finds it taken, and undoes nothing."""
    answers = RedisAnswers(store)
    await store.client.execute("HSET", store.key_of("t", request("t", "d", 1)), "q", "asked")
    assert await answers.take("t", ["d"], granted=first)
    fate = await answers.fate("t", "d")

    assert not await answers.take("t", ["d"], granted=not first)
    assert not await answers.take("t", ["other"], granted=True)
    assert await answers.fate("t", "d") == fate
