"""The store on a real Cluster, under real Sentinels, over TLS, and under the printed ACL."""

import asyncio
import gc
import hashlib
import os
import signal
import warnings
from urllib.parse import quote

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from redis.crc import key_slot

from guard.core.errors import StateError
from guard.core.model import Identity, Role
from guard.core.ports import Attempt, Completion
from guard.settings import Durability
from guard.store.access import acl_rule
from guard.store.store import RedisSessionStore, UnfitError
from guard.store.topology import open_client
from lab.redis_servers import RedisServers, free_ports
from tests.e2e.tls_upstream import issue

pytestmark = pytest.mark.programs("redis-server", "redis-cli")


@pytest.fixture(autouse=True)
def nothing_left():
    """Collect what redis-py leaves open of a Cluster's lost nodes here, not within other tests."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


TENANTS = [f"tenant-{n}" for n in range(12)]


def attempt_of(tenant):
    """Return an attempted send."""
    return Attempt("id", Identity("alice", "one", tenant=tenant), Role.SEND, 0.0)


async def judged(store, tenant):
    """Attempt and execute one send; return how many were attempted before."""
    asked = attempt_of(tenant)
    snapshot = await store.attempt(asked)
    await store.complete(Completion("id", asked.identity, Role.SEND, 0.0, executed=True))
    return sum(snapshot.session.attempted)


async def eventually(call):
    """Return the first answer of a call that may fail for a while; bounded, not timed."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await call()
            except StateError:
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three primaries with a replica each."""
    with RedisServers(tmp_path_factory.mktemp("cluster")) as servers:
        servers.cluster()
        yield servers


@pytest.fixture
async def connect(redis_namespace):
    """Return a function that opens stores of one namespace, which are closed after the test."""
    stores = []

    def opened(url, timeout=60.0, **options):
        client = open_client(url, timeout=timeout, **options)
        stores.append(RedisSessionStore(client, namespace=redis_namespace))
        return stores[-1]

    yield opened
    for store in stores:
        await store.aclose()


@pytest.fixture
def clustered(cluster, connect):
    """A store on the Cluster."""
    return connect(cluster.url)


def counted(cluster):
    """Return how many scripts all servers have run."""
    return sum(
        int(line.split("calls=")[1].partition(",")[0])
        for server in cluster.servers
        if server.pid
        for line in server.cli("INFO", "commandstats").splitlines()
        if line.startswith("cmdstat_evalsha:")
    )


async def test_tenants_are_spread_and_each_call_is_one_script_on_one_server(cluster, clustered):
    """No call crosses a slot, none is redirected, and each direction is one round trip."""
    await clustered.verify()
    before = counted(cluster)
    client = clustered.client
    for tenant in TENANTS:
        assert await judged(clustered, tenant) == 0
    assert await judged(clustered, TENANTS[0]) == 1

    assert counted(cluster) - before == 2 * (len(TENANTS) + 1)
    assert len({client._owners[key_slot(f"{{t:{tenant}}}".encode())] for tenant in TENANTS}) == 3


async def test_a_slot_that_moves_loses_no_call_and_refuses_none_after_the_move(cluster, clustered):
    """ASK and MOVED are followed; what cannot be judged under way is refused, not passed."""
    tenant = "moving"
    await clustered.verify()
    assert await judged(clustered, tenant) == 0
    client = clustered.client
    slot = key_slot(f"{{t:{tenant}}}".encode())
    source = next(s for s in cluster.servers if s.port == client._owners[slot][1])
    target = next(
        s for s in cluster.servers if s.port in {p for _, p in client._owners} and s != source
    )
    ids = {s.port: s.cli("CLUSTER", "MYID").strip() for s in (source, target)}
    target.cli("CLUSTER", "SETSLOT", str(slot), "IMPORTING", ids[source.port])
    source.cli("CLUSTER", "SETSLOT", str(slot), "MIGRATING", ids[target.port])

    # Its keys are half here, half new: Redis cannot tell, so neither can the guard.
    with pytest.raises(StateError, match="TRYAGAIN"):
        await clustered.attempt(attempt_of(tenant))
    keys = source.cli("CLUSTER", "GETKEYSINSLOT", str(slot), "1000").split()
    source.cli("MIGRATE", "127.0.0.1", str(target.port), "", "0", "5000", "KEYS", *keys)
    # ASK: all keys are gone from here, and one key at a time is followed to the other server.
    window = next(key for key in keys if ":s:" in key)
    assert await client.execute("EXISTS", window) == 1
    with pytest.raises(StateError, match="TRYAGAIN"):
        await clustered.attempt(attempt_of(tenant))
    for server in (target, source):
        server.cli("CLUSTER", "SETSLOT", str(slot), "NODE", ids[target.port])
    # MOVED: the table is out of date.
    assert await judged(clustered, tenant) == 1
    assert await judged(clustered, tenant) == 2


async def test_a_primary_that_dies_is_followed_by_its_replica(tmp_path, connect):
    """Calls of its tenants are refused until the replica has taken over; what it knew is there."""
    with RedisServers(tmp_path) as servers:
        servers.cluster()
        store = connect(servers.url, durability=Durability.REPLICATED)
        client = store.client
        await store.verify()
        for tenant in TENANTS:
            await judged(store, tenant)
        slots = {tenant: key_slot(f"{{t:{tenant}}}".encode()) for tenant in TENANTS}
        dead = client._owners[slots[TENANTS[0]]]
        hit = [tenant for tenant in TENANTS if client._owners[slots[tenant]] == dead]
        next(s for s in servers.servers if s.port == dead[1]).kill()
        with pytest.raises(StateError):
            await store.attempt(attempt_of(hit[0]))

        # REPLICATED: the promoted server has no replica, so nothing is acknowledged any more.
        client.durability = Durability.RELAXED
        snapshots = [await eventually(lambda t=t: store.attempt(attempt_of(t))) for t in hit]

    assert all(sum(s.session.attempted) >= 1 for s in snapshots)
    assert {sum(s.session.trajectory.executed) for s in snapshots} == {1}


async def test_a_sentinel_failover_is_followed_and_replicated_writes_are_all_there(
    tmp_path, connect
):
    """Every attempt that was acknowledged before the primary died is counted by its successor."""
    with RedisServers(tmp_path) as servers:
        primary, replica, _ = servers.watched()
        store = connect(servers.url, durability=Durability.REPLICATED)
        await store.verify()
        for _ in range(200):
            await store.attempt(attempt_of("t"))
        os.kill(primary.pid, signal.SIGKILL)
        with pytest.raises(StateError):
            await store.attempt(attempt_of("t"))
        replica.wait_for("role:master", "INFO", "replication")
        # Nobody confirms writes now; the relaxed reader shows what the successor has.
        other = connect(servers.url)
        snapshot = await eventually(lambda: other.attempt(attempt_of("t")))

    assert sum(snapshot.session.attempted) >= 200


async def test_fsync_is_refused_where_the_server_does_not_sync(tmp_path, connect):
    """The setting is a promise about the server, so the server is asked."""
    with RedisServers(tmp_path) as servers:
        lazy = servers.single("appendonly yes", "appendfsync everysec")
        sure = servers.single("appendonly yes", "appendfsync always")
        with pytest.raises(UnfitError, match="appendfsync always"):
            await connect(lazy.url, durability=Durability.FSYNC).verify()
        held = connect(sure.url, durability=Durability.FSYNC)
        await held.verify()
        for _ in range(50):
            await held.attempt(attempt_of("t"))
        sure.kill()
        sure.start()
        snapshot = await eventually(lambda: held.attempt(attempt_of("t")))

    assert sum(snapshot.session.attempted) == 50


SECRET = "correct horse"
RULE = acl_rule().replace("SHA256-OF-PASSWORD", hashlib.sha256(SECRET.encode()).hexdigest())


async def test_the_printed_rule_is_enough_and_no_more(cluster):
    """On a Cluster every kind of command passes under it; other keys and commands do not."""
    for server in cluster.servers:
        server.cli("ACL", "SETUSER", *RULE.split()[1:])
    url = cluster.url.replace("://", f"://guard:{quote(SECRET)}@")
    store = RedisSessionStore(open_client(url, timeout=60.0), namespace="guard")
    await store.verify()
    for tenant in TENANTS:
        await judged(store, tenant)
    found = [key async for page in store.client.scan("guard:") for key in page]
    assert found
    for command in (("GET", "other"), ("FLUSHALL",), ("CONFIG", "SET", "save", ""), ("KEYS", "*")):
        with pytest.raises(StateError, match="NOPERM"):
            await store.client.execute(*command)
    await store.aclose()


async def test_tls_is_checked_on_every_connection(tmp_path, connect):
    """Client certificate demanded; a server of another authority is not talked to."""
    chain = issue(tmp_path / "ca.pem", "localhost", "127.0.0.1")
    issue(tmp_path / "other.pem", "localhost")
    own = issue(tmp_path / "guards.pem", "guard", usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    with RedisServers(tmp_path) as servers:
        port = free_ports(2)
        servers.single(
            f"tls-port {port[0]}",
            f"tls-cert-file {chain}",
            f"tls-key-file {chain}",
            f"tls-ca-cert-file {tmp_path / 'guards.pem'}",
            "tls-auth-clients yes",
            port=port[1],
        )
        url = f"rediss://localhost:{port[0]}?ssl_ca_certs={tmp_path}"
        shown = f"ssl_certfile={own}&ssl_keyfile={own}"
        store = connect(f"{url}/ca.pem&{shown}")
        await store.verify()
        assert await judged(store, "t") == 0
        records = os.urandom(60_000)  # Of several TLS records, which arrive together.
        await store.client.execute("SET", f"{store.namespace}:long", records)
        assert await store.client.execute("GET", f"{store.namespace}:long") == records
        for stranger in (f"{url}/other.pem&{shown}", f"{url}/ca.pem"):
            with pytest.raises(StateError, match=r"cannot be reached|was lost"):
                await connect(stranger).verify()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+cluster://127.0.0.1:1/0", "has no path"),
        ("redis+sentinel://127.0.0.1:1", "names no service"),
        ("redis+other://127.0.0.1:1", "must begin with"),
        ("redis+cluster://127.0.0.1:1?ssl_cert_reqs=none", "unknown option"),
        ("redis+cluster://127.0.0.1:1?sentinel_password=x", "no option of a Sentinel"),
    ],
)
def test_a_url_that_says_something_else_is_refused(url, message):
    """No part of a URL is dropped in silence."""
    with pytest.raises(StateError, match=message):
        open_client(url)
