"""The birth of a label store on real servers: flushed, restarted, exchanged, forged, raced for."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from guard.core.errors import StateError
from guard.core.model import Identity, Role
from guard.core.policy import StateLimits
from guard.core.ports import Attempt
from guard.provenance.seal import Seal
from guard.provenance.store_continuity import Loss, StoreIdentity, sealed_identity
from guard.store.connection import RedisClient, parse_endpoint
from guard.store.continuity import (
    ContinuityCheck,
    ContinuityNote,
    ContinuityWatch,
    accept_loss,
)
from guard.store.embedded import EmbeddedRedis
from guard.store.store import RedisSessionStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

SEAL = Seal(bytes(range(32)))
NOW = 1_700_000_000.0
LIFETIME = StateLimits().labels
KEY = "guard:birth"


class Deployment:
    """One machine: a label key's directory, and guards that are started on it."""

    def __init__(self, directory: Path) -> None:
        self.key = directory / "label.key"
        self.at = NOW
        self.seen: list[ContinuityCheck] = []
        self.stores: list[RedisSessionStore] = []

    def guard(self, url: str, *, kept: bool = True, seal: Seal = SEAL) -> RedisSessionStore:
        """Return the store of a guard that has just started."""
        client = RedisClient(parse_endpoint(url), timeout=60.0, backoff=(0.0, 0.0))
        birth = ContinuityWatch(
            client,
            seal=seal,
            note=ContinuityNote(self.key, "redis" if kept else "embedded"),
            now=lambda: self.at,
            told=self.seen.append,
            kept=kept,
        )
        store = RedisSessionStore(client, continuity=birth)
        self.stores.append(store)
        return store

    @property
    def losses(self) -> list[Loss]:
        """What was lost so far."""
        return [seen.loss for seen in self.seen if seen.loss is not Loss.NONE]


@pytest.fixture
async def deployments(tmp_path: Path) -> AsyncIterator[Callable[[str], Deployment]]:
    """Make deployments; their connections are closed at the end."""
    made: list[Deployment] = []

    def make(name: str = "one") -> Deployment:
        directory = tmp_path / name
        directory.mkdir()
        made.append(Deployment(directory))
        return made[-1]

    yield make
    for one in made:
        for store in one.stores:
            await store.aclose()


@pytest.fixture
def deployment(deployments: Callable[[str], Deployment]) -> Deployment:
    """Return the only deployment."""
    return deployments("one")


async def states(store: RedisSessionStore, at: float = NOW) -> tuple[bool, bool]:
    """Return whether a call now finds labels incomplete, and its principal full."""
    call = Attempt("id", Identity("alice", "one"), Role.SEND, at)
    snapshot = await store.attempt(call)
    return snapshot.incomplete, snapshot.full


async def flush(store: RedisSessionStore) -> None:
    """Do what an operator's slip does."""
    await store.client.execute("FLUSHALL")


async def emptied(deployment: Deployment, server: EmbeddedRedis) -> RedisSessionStore:
    """Return the store of a guard that has found its labels gone."""
    store = deployment.guard(server.url)
    await store.verify()
    await flush(store)
    await store.recheck()
    return store


def kill(server: EmbeddedRedis) -> None:
    """Do what a crash does."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    while server.pid is not None:
        pass


async def test_a_new_deployment_is_complete_and_stays_so(
    deployment: Deployment, own_server: EmbeddedRedis
) -> None:
    """At the first start, at every look, and after a restart of the guard."""
    first = deployment.guard(own_server.url)
    await first.verify()
    await first.recheck()
    second = deployment.guard(own_server.url)
    await second.verify()

    assert await states(first) == await states(second) == (False, False)
    assert deployment.losses == []


async def test_a_flush_under_way_is_found_by_the_watch(
    deployment: Deployment, own_server: EmbeddedRedis
) -> None:
    """Until the lost labels would have expired, every principal counts as full; then no more."""
    store = await emptied(deployment, own_server)

    assert deployment.losses == [Loss.EMPTY]
    assert await states(store) == (True, True)
    assert await states(store, NOW + LIFETIME - 1) == (True, True)
    assert await states(store, NOW + LIFETIME) == (False, False)


async def test_a_flush_under_way_is_found_by_the_next_call(
    deployment: Deployment, own_server: EmbeddedRedis
) -> None:
    """The store no longer knows the principal, so the record is looked at before it is judged."""
    store = deployment.guard(own_server.url)
    await store.verify()
    assert await states(store) == (False, False)
    await flush(store)

    assert await states(store) == (True, True)
    assert deployment.losses[-1] is Loss.EMPTY


async def test_a_server_that_comes_back_empty_is_found_by_the_next_call(
    deployment: Deployment, own_server: EmbeddedRedis
) -> None:
    """A new connection is looked at before the first call on it is judged."""
    store = deployment.guard(own_server.url)
    await store.verify()
    assert await states(store) == (False, False)
    kill(own_server)
    with pytest.raises(StateError):
        await states(store)
    own_server.start()

    assert await states(store) == (True, True)
    assert deployment.losses == [Loss.EMPTY]


async def test_a_loss_while_no_guard_ran_is_found_at_the_start(
    deployment: Deployment, own_server: EmbeddedRedis
) -> None:
    """The note beside the label key remembers."""
    store = deployment.guard(own_server.url)
    await store.verify()
    await flush(store)

    later = deployment.guard(own_server.url)
    await later.verify()

    assert await states(later) == (True, True)


async def test_another_server_is_not_the_same_store(
    deployment: Deployment, own_server: EmbeddedRedis, deployments: Callable[[str], Deployment]
) -> None:
    """Neither an empty one nor one that another machine's guard has begun."""
    await deployment.guard(own_server.url).verify()
    with EmbeddedRedis() as empty, EmbeddedRedis() as used:
        moved = deployment.guard(empty.url)
        await moved.verify()
        assert await states(moved) == (True, True)

        await deployments("two").guard(used.url).verify()
        again = deployment.guard(used.url)
        await again.verify()
        assert await states(again) == (True, True)

    back = deployment.guard(own_server.url)
    await back.verify()
    assert await states(back) == (True, True), "what was read elsewhere is not here"
    assert deployment.losses == [Loss.EMPTY, Loss.REPLACED, Loss.REPLACED]


async def test_a_second_machine_joins_a_store_as_it_is(
    deployment: Deployment, own_server: EmbeddedRedis, deployments: Callable[[str], Deployment]
) -> None:
    """With the same key and no memory of its own it takes the sealed record's word."""
    await deployment.guard(own_server.url).verify()
    joined = deployments("two")
    store = joined.guard(own_server.url)
    await store.verify()

    assert await states(store) == (False, False)
    assert joined.losses == []


@pytest.mark.parametrize("forged", [b"", b"complete", bytes(57)])
async def test_a_forged_record_is_a_loss(
    deployment: Deployment, own_server: EmbeddedRedis, forged: bytes
) -> None:
    """Whoever has no key cannot say that nothing was lost."""
    store = deployment.guard(own_server.url)
    await store.verify()
    await store.client.execute("SET", KEY, forged)
    await store.recheck()

    assert await states(store) == (True, True)
    assert deployment.losses[-1] is Loss.ALTERED


async def test_a_record_of_another_key_or_type_is_a_loss(
    deployment: Deployment, own_server: EmbeddedRedis
) -> None:
    """At a first start as well: somebody else's labels fit no seal either."""
    other = Seal(bytes(32))
    await own_seal_record(deployment, own_server.url, other)
    store = deployment.guard(own_server.url)
    await store.verify()
    assert await states(store) == (True, True)

    await store.client.execute("DEL", KEY)
    await store.client.execute("LPUSH", KEY, "x")
    await store.recheck()
    assert deployment.losses == [Loss.ALTERED, Loss.ALTERED]


async def own_seal_record(deployment: Deployment, url: str, seal: Seal) -> None:
    """Write a record under another key."""
    client = RedisClient(parse_endpoint(url), timeout=60.0)
    record = sealed_identity(seal, "guard", StoreIdentity(bytes(16), int(deployment.at)))
    await client.execute("SET", KEY, record)
    await client.aclose()


async def test_an_earlier_state_of_the_store_is_a_loss(
    deployment: Deployment, own_server: EmbeddedRedis
) -> None:
    """A snapshot of minutes ago has its own identity record, and lacks what was read since."""
    store = deployment.guard(own_server.url)
    await store.verify()
    snapshot = await store.client.execute("DUMP", KEY)
    assert isinstance(snapshot, bytes)
    await store.recheck()
    await store.client.execute("RESTORE", KEY, "0", snapshot, "REPLACE")
    await store.recheck()

    assert deployment.losses == [Loss.ROLLED_BACK]
    assert await states(store) == (True, True)


async def test_an_operator_accepts_a_loss_once(
    deployment: Deployment, own_server: EmbeddedRedis
) -> None:
    """Every guard counts labels as complete at its next look, and nobody can replay the record."""
    store = await emptied(deployment, own_server)
    before = await store.client.execute("GET", KEY)
    assert isinstance(before, bytes)

    accepted = await accept_loss(store.client, SEAL)
    await store.recheck()

    assert accepted.incomplete_until == NOW + LIFETIME
    assert await states(store) == (False, False)
    with pytest.raises(StateError, match="lost nothing"):
        await accept_loss(store.client, SEAL)
    with pytest.raises(StateError, match="another key"):
        await accept_loss(store.client, Seal(bytes(32)))
    await flush(store)
    with pytest.raises(StateError, match="no identity record"):
        await accept_loss(store.client, SEAL)


async def test_an_embedded_store_is_incomplete_at_the_next_run_and_nobody_is_full(
    deployment: Deployment,
) -> None:
    """It forgets at every stop: values at sends are suspicious, labels of saves are as ever."""
    with EmbeddedRedis() as server:
        first = deployment.guard(server.url, kept=False)
        await first.verify()
        assert await states(first) == (False, False)
    with EmbeddedRedis() as server:
        second = deployment.guard(server.url, kept=False)
        await second.verify()
        assert await states(second) == (True, False)
