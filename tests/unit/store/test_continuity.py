"""The birth of a label store on real servers: flushed, restarted, exchanged, forged, raced for."""

import pytest

from guard.core.errors import StateError
from guard.core.model import Identity, Role
from guard.core.policy import StateLimits
from guard.core.ports import Attempt
from guard.provenance.seal import Seal
from guard.provenance.store_continuity import Loss, StoreIdentity, sealed_identity
from guard.store.connection import RedisClient, parse_endpoint
from guard.store.continuity import (
    ContinuityNote,
    ContinuityWatch,
    accept_loss,
)
from guard.store.embedded import EmbeddedRedis
from guard.store.store import RedisSessionStore
from tests.unit.store.conftest import kill

SEAL = Seal(bytes(range(32)))
NOW = 1_700_000_000.0
LIFETIME = StateLimits().labels
KEY = "guard:birth"


class Deployment:
    """One machine: a label key's directory, and guards that are started on it."""

    def __init__(self, directory):
        directory.mkdir()
        self.key = directory / "label.key"
        self.at = NOW
        self.seen = []
        self.stores = []

    def guard(self, url):
        """Return the store of a guard that has just started."""
        client = RedisClient(parse_endpoint(url), timeout=60.0, backoff=(0.0, 0.0))
        birth = ContinuityWatch(
            client,
            seal=SEAL,
            note=ContinuityNote(self.key, "redis"),
            now=lambda: self.at,
            told=self.seen.append,
        )
        store = RedisSessionStore(client, continuity=birth)
        self.stores.append(store)
        return store

    @property
    def losses(self):
        """What was lost so far."""
        return [seen.loss for seen in self.seen if seen.loss is not Loss.NONE]


@pytest.fixture
async def deployments(tmp_path):
    """Give two deployments; their connections are closed at the end."""
    made = Deployment(tmp_path / "one"), Deployment(tmp_path / "two")
    yield made
    for one in made:
        for store in one.stores:
            await store.aclose()


@pytest.fixture
def deployment(deployments):
    """Return the first deployment."""
    return deployments[0]


async def states(store, at=NOW):
    """Return whether a call now finds labels incomplete, and its principal full."""
    call = Attempt("id", Identity("alice", "one"), Role.SEND, at)
    snapshot = await store.attempt(call)
    return snapshot.incomplete, snapshot.full


async def flush(store):
    """Do what an operator's slip does."""
    await store.client.execute("FLUSHALL")


async def roll_back(store):
    """Give the store a record of minutes ago, which lacks what was read since."""
    snapshot = await store.client.execute("DUMP", KEY)
    await store.recheck()
    await store.client.execute("RESTORE", KEY, "0", snapshot, "REPLACE")


def sets(record):
    """Return what writes a record."""
    return lambda store: store.client.execute("SET", KEY, record)


async def another_type(store):
    """Put a list where the record was."""
    await store.client.execute("DEL", KEY)
    await store.client.execute("LPUSH", KEY, "x")


FOREIGN = sealed_identity(Seal(bytes(32)), "guard", StoreIdentity(bytes(16), int(NOW)))
BREAKS = {
    "flushed": (flush, Loss.EMPTY),
    "rolled back": (roll_back, Loss.ROLLED_BACK),
    "no record": (sets(b""), Loss.ALTERED),
    "forged": (sets(bytes(57)), Loss.ALTERED),
    "another key's": (sets(FOREIGN), Loss.ALTERED),
    "another type": (another_type, Loss.ALTERED),
}


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.parametrize("restarts", [False, True], ids=["watch", "start"])
async def test_a_loss_is_found_and_every_principal_full_until_it_expires(
    deployment, own_server, name, *, restarts
):
    """By the watch, and at the next start: the note beside the label key remembers."""
    break_it, loss = BREAKS[name]
    store = deployment.guard(own_server.url)
    await store.verify()
    await break_it(store)
    if restarts:
        store = deployment.guard(own_server.url)
        await store.verify()
    else:
        await store.recheck()

    assert deployment.losses == [loss]
    assert await states(store) == (True, True)
    assert await states(store, NOW + LIFETIME - 1) == (True, True)
    assert await states(store, NOW + LIFETIME) == (False, False)


@pytest.mark.parametrize("crashes", [False, True])
async def test_a_loss_under_way_is_found_by_the_next_call(deployment, own_server, *, crashes):
    """The store knows the principal no longer, or the connection is new: looked at first."""
    store = deployment.guard(own_server.url)
    await store.verify()
    assert await states(store) == (False, False)
    if crashes:
        kill(own_server)
        with pytest.raises(StateError):
            await states(store)
        own_server.start()
    else:
        await flush(store)

    assert await states(store) == (True, True)
    assert deployment.losses == [Loss.EMPTY]


async def test_another_server_is_not_the_same_store(deployment, own_server, deployments):
    """Neither an empty one nor one that another machine's guard has begun."""
    await deployment.guard(own_server.url).verify()
    with EmbeddedRedis() as empty, EmbeddedRedis() as used:
        moved = deployment.guard(empty.url)
        await moved.verify()
        assert await states(moved) == (True, True)

        await deployments[1].guard(used.url).verify()
        again = deployment.guard(used.url)
        await again.verify()
        assert await states(again) == (True, True)

    back = deployment.guard(own_server.url)
    await back.verify()
    assert await states(back) == (True, True), "what was read elsewhere is not here"
    assert deployment.losses == [Loss.EMPTY, Loss.REPLACED, Loss.REPLACED]


async def test_an_operator_accepts_a_loss_once(deployment, own_server):
    """Every guard counts labels as complete at its next look, and nobody can replay the record."""
    store = deployment.guard(own_server.url)
    await store.verify()
    await flush(store)
    await store.recheck()
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
