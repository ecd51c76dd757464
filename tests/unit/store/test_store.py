"""The store on Redis: round trips, keys, TTLs, bounds and a server that is not fit."""

import asyncio
from unittest.mock import AsyncMock

import pytest

from guard.core.errors import StateError
from guard.core.model import ROLES, Identity, Role
from guard.core.policy import StateLimits
from guard.core.ports import Attempt, Completion
from guard.store import layout
from guard.store.connection import RedisClient, parse_endpoint
from guard.store.store import RedisSessionStore, check_version, parse_info

ALICE = Identity("alice", "one")
SEND = Attempt("id", ALICE, Role.SEND, 0.0)
SENT = Completion("id", ALICE, Role.SEND, 0.0, executed=True)


def keys_of(store, identity=ALICE):
    """Return the keys of the session and of the principal."""
    return store._keys.of(identity)[:2]


async def calls_by_command(store):
    """Return how often each command ran since the last reset."""
    info = parse_info(await store.client.execute("INFO", "commandstats"))
    return {
        name.removeprefix("cmdstat_"): int(fields.split(",")[0].removeprefix("calls="))
        for name, fields in info.items()
    }


async def test_each_direction_is_exactly_one_round_trip(brittle):
    """INFO commandstats counts one EVALSHA per call and direction, and no other command."""
    await brittle.verify()
    await brittle.client.execute("CONFIG", "RESETSTAT")
    before = brittle.client.writes

    for _ in range(10):
        await brittle.attempt(SEND)
        await brittle.complete(SENT)

    assert brittle.client.writes - before == 20
    counted = await calls_by_command(brittle)
    # What the scripts call inside the server is counted too, and crosses no wire.
    inside = {"mget", "set", "exists", "hget"}
    reset = {"config", "config|resetstat"}
    assert {k: n for k, n in counted.items() if k not in inside | reset} == {"evalsha": 20}


async def test_a_server_that_forgot_the_scripts_is_taught_again(
    brittle,
):
    """After SCRIPT FLUSH every call of a tick succeeds and is counted exactly once."""
    await brittle.verify()
    await brittle.client.execute("SCRIPT", "FLUSH")

    await asyncio.gather(*(brittle.attempt(SEND) for _ in range(5)))
    await brittle.client.execute("SCRIPT", "FLUSH")
    await brittle.complete(SENT)

    window = (await brittle.attempt(SEND)).session
    assert window.attempted[ROLES.index(Role.SEND)] == 5
    assert window.trajectory.count(Role.SEND) == 1


async def test_every_touch_renews_the_time_to_live(redis_server, redis_namespace):
    """Both directions set the limits of the policy on their windows."""
    client = RedisClient(parse_endpoint(redis_server.url), timeout=60.0)
    limits = StateLimits(session_idle=100, principal_window=1000)
    store = RedisSessionStore(client, namespace=redis_namespace, limits=limits)
    session, principal = keys_of(store)

    for touch in (store.attempt(SEND), store.complete(SENT)):
        await touch
        for key, limit in ((session, 100_000), (principal, 1_000_000)):
            left = await client.execute("PTTL", key)
            assert limit - 10_000 < left <= limit
            await client.execute("PERSIST", key)
    await store.aclose()


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x01" + bytes(10), id="short"),
        pytest.param(b"\x02" + bytes(layout.WINDOW_SIZE - 1), id="version"),
        pytest.param(b"\x01" + bytes(layout.WINDOW_SIZE), id="long"),
    ],
)
async def test_an_unreadable_window_is_an_error_and_stays_as_it_is(store, position, value):
    """Neither direction takes it for an empty history or overwrites it with one."""
    key = keys_of(store)[position]
    await store.client.execute("SET", key, value)

    with pytest.raises(StateError, match="unreadable window"):
        await store.attempt(SEND)
    with pytest.raises(StateError, match="unreadable window"):
        await store.complete(SENT)

    assert await store.client.execute("GET", key) == value
    assert await store.client.execute("EXISTS", *keys_of(store)) == 1


@pytest.mark.parametrize("reply", [None, 2, b"x", [], [b"x"], [b"x", b"y"], [1, 2], [b"x"] * 3])
async def test_an_answer_of_another_shape_is_an_error(store, reply, monkeypatch):
    """Whatever Redis says that is not two windows, or not a confirmation, blocks."""
    monkeypatch.setattr(store.client, "run", AsyncMock(return_value=reply))

    with pytest.raises(StateError):
        await store.attempt(SEND)
    with pytest.raises(StateError):
        await store.complete(SENT)


async def test_a_server_that_begins_to_evict_judges_no_call(brittle):
    """Reconfigured under way, or replaced by a replica with other settings; and back again."""
    await brittle.verify()
    await brittle.client.execute("CONFIG", "SET", "maxmemory", str(2**30))
    await brittle.client.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(StateError, match="CONFIG SET maxmemory-policy noeviction"):
        await brittle.verify()
    watching = asyncio.create_task(brittle.watch(0))

    async def refused():
        await asyncio.sleep(0)
        try:
            await brittle.attempt(SEND)
        except StateError as error:
            return "may evict" in str(error)
        return False

    async with asyncio.timeout(60):
        while not await refused():
            pass
        await brittle.client.execute("CONFIG", "SET", "maxmemory-policy", "noeviction")
        while await refused():
            pass
    watching.cancel()


async def test_a_full_server_refuses_and_forgets_nothing(brittle):
    """Under noeviction a write beyond the limit is an error; afterwards the history is there."""
    await brittle.attempt(SEND)
    await brittle.client.execute("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StateError, match="OOM"):
        await brittle.attempt(SEND)

    await brittle.client.execute("CONFIG", "SET", "maxmemory", "0")
    assert (await brittle.attempt(SEND)).session.attempted[ROLES.index(Role.SEND)] == 1


@pytest.mark.parametrize("version", ["", "6.0.16", "5.9", "six.two"])
def test_an_old_server_is_refused(version):
    """Below 6.2, or silent about it."""
    with pytest.raises(StateError, match=r"needs 6\.2"):
        check_version({"redis_version": version})


@pytest.mark.parametrize("tenant", ["default", "a}b{c", "", "{}", "ü" * 200, "%7D"])
def test_both_keys_of_a_call_are_in_one_hash_slot(tenant):
    """The first brace pair of either key is the same non-empty tag, whatever the tenant is."""
    first, second, *_ = layout.Keys("ns").of(Identity("a}{b", "c}{d", tenant=tenant))

    tags = [key.partition(b"{")[2].partition(b"}")[0] for key in (first, second)]
    assert tags[0] == tags[1]
    assert tags[0]
    assert first.count(b"{") == first.count(b"}") == 1
    assert len(first) == len(second) <= 120
