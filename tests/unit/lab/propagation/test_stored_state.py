"""Two moments of a tenant's state are compared key by key, whatever the type of a key."""

import pytest

from guard.adapters.redis.store import RedisSessionStore
from guard.core.errors import GuardError
from guard.propagation.incident import incidents_of, journal_of
from lab.propagation.stored_state import differences, stored_state

CHANGES = {
    "hash": (("HSET", "a", "1"), ("HSET", "a", "2")),
    "string": (("SET", "1"), ("SET", "2")),
    "list": (("RPUSH", "1", "2"), ("RPUSH", "3")),
    "set": (("SADD", "1"), ("SADD", "2")),
    "zset": (("ZADD", "1", "a"), ("ZADD", "2", "a")),
    "stream": (("XADD", "1-1", "n", "1"), ("XADD", "2-1", "n", "1")),
    "end": (("SET", "1", "PX", "600000"), ("PERSIST",)),
    "gone": (("SET", "1"), ("DEL",)),
}


@pytest.fixture
async def store(redis_client, redis_namespace):
    """Return a store of the test's own."""
    return RedisSessionStore(redis_client, namespace=redis_namespace)


def on(store, key, command):
    """Return a command about a key of the tenant."""
    name = f"{store.namespace}:{{t:default}}:{key}"
    return store.client.execute(command[0], name, *command[1:])


@pytest.mark.parametrize(("first", "then"), CHANGES.values(), ids=CHANGES)
async def test_every_change_of_a_key_shows(store, first, then):
    """Its content, its type, and whether it ends by itself."""
    await on(store, "k", first)
    before = await stored_state(store)
    assert differences(before, await stored_state(store)) == []
    await on(store, "k", then)
    [changed] = differences(before, await stored_state(store))
    assert changed.endswith(b":k")


async def test_the_order_of_fields_and_what_expired_are_no_difference(store):
    """A field that was removed and written again is as it was; a key's time may run out."""
    await on(store, "h", ("HSET", "a", "1", "b", "2"))
    await on(store, "short", ("SET", "1", "PX", "1"))
    before = await stored_state(store)
    await on(store, "h", ("HDEL", "a"))
    await on(store, "h", ("HSET", "a", "1"))
    await on(store, "short", ("DEL",))
    before = {k: one._replace(expires=0.0) if one.expires else one for k, one in before.items()}
    assert differences(before, await stored_state(store)) == []


async def test_what_incidents_did_is_left_out_and_nothing_else_of_their_kind(store):
    """Their records and journals; a key that only begins alike is compared."""
    await store.client.execute("HSET", store.key_of("default", incidents_of("default")), "i", "1")
    await store.client.execute("HSET", store.key_of("default", journal_of("default", "i")), "1", "")
    assert await stored_state(store) == {}
    await on(store, "i:0123", ("SET", "1"))
    assert len(await stored_state(store)) == 1


async def test_a_key_that_cannot_be_read_whole_is_an_error(store, monkeypatch):
    """Rather than one that is left out in silence."""
    await on(store, "k", ("SET", "1"))
    monkeypatch.setattr("lab.propagation.stored_state._READS", {})
    with pytest.raises(GuardError, match="cannot be compared"):
        await stored_state(store)
