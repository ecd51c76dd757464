"""The memory gate on the pages: closed partitions, drift, held-back writes, and who may act."""

from __future__ import annotations

import json

from guard.adapters.redis.gate_operator import GateOperator
from guard.adapters.redis.staging import MemoryKeys, RedisStaging
from guard.provenance.seal import Seal
from tests.guards import KEY
from tests.staged_writes import staged_write

HOSTILE = "<script>xss()</script>"


def acts_of(console):
    """Return the lines about memory in the audit log."""
    lines = [json.loads(one) for one in console.log.read_text("utf-8").splitlines()]
    return [one for one in lines if one["event"].startswith("guard.memory_")]


def gate(store):
    """Return the operator of the console's tenant."""
    return GateOperator(store.client, namespace=store.namespace)


async def test_a_partition_is_closed_and_opened_on_the_page(console, store):
    """Writes to it are refused meanwhile; both acts are on record before they take effect."""
    staging = RedisStaging(store.client, namespace=store.namespace, seal=Seal(KEY))
    named = {"store": "facts", "partition": "poisoned"}
    async with console.as_("approver") as client:
        form = {**named, "act": "close", "hours": "2", "reason": HOSTILE}
        closed = await client.post("/memory", data=form)
        page = (await client.get("/memory")).text
        refused = (await staging.stage(staged_write("c1", partition="poisoned"), "r")).quarantined
        opened = await client.post("/memory", data={**named, "act": "open"})
        twice = await client.post("/memory", data={**named, "act": "open"})
        after = await gate(store).closed()
        free = (await staging.stage(staged_write("c2", partition="poisoned"), "r")).quarantined

    assert (closed.status_code, opened.status_code, twice.status_code) == (303, 303, 409)
    assert "poisoned" in page
    assert HOSTILE not in page
    assert (refused, free, after) == (True, False, [])
    events = [one["event"] for one in acts_of(console)]
    assert events == ["guard.memory_quarantined", *["guard.memory_released"] * 2]
    assert {one["by"] for one in acts_of(console)} == {"pat"}


async def test_drift_is_shown_and_trust_comes_back_with_a_reason(console, store):
    """Whom a finding is about is trusted again by a person only, who says why."""
    keys = MemoryKeys(store.namespace, "default")
    await store.client.execute("ZADD", keys.findings, 1, "mallory\nAcme Cloud")
    await store.client.execute("HSET", keys.trust("principal", "mallory"), "level", 1)
    form = {"act": "trust", "kind": "principal", "name": "mallory"}
    async with console.as_("approver") as client:
        page = (await client.get("/memory")).text
        silent = await client.post("/memory", data=form)
        before = await gate(store).trust("principal", "mallory")
        done = await client.post("/memory", data={**form, "reason": "it was our own campaign"})
        found = (await client.get("/api/memory")).json()

    assert "Acme Cloud" in page
    assert "degraded" in page
    assert (silent.status_code, before, done.status_code) == (400, 1, 303)
    assert found["drift"] == [
        {"tenant": "default", "principal": "mallory", "subject": "Acme Cloud", "trust": "trusted"}
    ]
    assert [one["reason"] for one in acts_of(console)] == ["it was our own campaign"]


async def test_a_write_that_was_held_back_is_shown_as_text(console, store):
    """What was to be kept, whoever wrote it."""
    staging = RedisStaging(store.client, namespace=store.namespace, seal=Seal(KEY))
    await staging.stage(staged_write("c1", content=HOSTILE), "partition_quarantined")
    await store.client.execute("ZADD", MemoryKeys(store.namespace, "default").review, 1, "c1")
    async with console.as_("viewer") as client:
        page = (await client.get("/memory")).text

    assert "&lt;script&gt;" in page
    assert HOSTILE not in page


async def test_a_viewer_closes_nothing(console, store):
    """Nor opens, nor trusts anybody."""
    form = {"act": "close", "store": "facts", "partition": "p", "hours": "1", "reason": "x"}
    async with console.as_("viewer") as client:
        assert (await client.post("/memory", data=form)).status_code == 403
        assert "close-partition" not in (await client.get("/memory")).text
    assert await gate(store).closed() == []
