"""The memory gate on the pages: closed partitions, drift, held-back writes, and who may act."""

import json

from guard.provenance.seal import Seal
from guard.store.staging import GateOperator, MemoryKeys, RedisStaging
from tests.guards import KEY
from tests.staged_writes import staged_write
from tests.unit.console.conftest import events

HOSTILE = "<script>xss()</script>"


def gate(store):
    """Return the operator of the console's tenant."""
    return GateOperator(store.client, namespace=store.namespace)


async def test_a_partition_is_closed_and_opened_on_the_page(console, store):
    """Writes to it are refused meanwhile; both acts are on record before they take effect."""
    staging = RedisStaging(store.client, namespace=store.namespace, seal=Seal(KEY))
    named = {"store": "facts", "partition": "poisoned"}
    async with console.as_("approver") as client:
        form = {**named, "seconds": "7200", "reason": HOSTILE}
        closed = await client.post("/memory/quarantine", data=form)
        page = (await client.get("/memory")).text
        refused = (await staging.stage(staged_write("c1", partition="poisoned"), "r")).quarantined
        opened = await client.post("/memory/release", data=named)
        twice = await client.post("/memory/release", data=named)
        after = await gate(store).closed()
        free = (await staging.stage(staged_write("c2", partition="poisoned"), "r")).quarantined

    assert (closed.status_code, opened.status_code, twice.status_code) == (303, 303, 409)
    assert "poisoned" in page
    assert HOSTILE not in page
    assert (refused, free, after) == (True, False, [])
    acts = events(console, "guard.memory_")
    assert [one["event"] for one in acts] == [
        "guard.memory_quarantined",
        *["guard.memory_released"] * 3,
    ]
    assert "is not closed" in acts[-1]["failed"]
    assert {one["by"] for one in acts} == {"pat"}


async def test_a_refused_write_is_let_in_once_by_whoever_may(console, store):
    """Not by a viewer, nor by whoever the agent runs for; what is kept is shown, and on record."""
    staging = RedisStaging(store.client, namespace=store.namespace, seal=Seal(KEY))
    await staging.stage(staged_write("c1"), "r")
    asked = {"decision": "c1", "seconds": 60}
    async with console.as_("viewer") as viewer, console.as_("approver", name="p") as own:
        kept_out = [
            (await client.post("/api/memory/promote", json=asked)).status_code
            for client in (viewer, own)
        ]
    async with console.as_("approver") as client:
        done = (await client.post("/api/memory/promote", json=asked)).json()
        gone = await client.post("/api/memory/promote", json={**asked, "decision": "c2"})
        long = await client.post("/api/memory/promote", json={**asked, "seconds": 1 << 40})

    assert (kept_out, gone.status_code, long.status_code) == ([403, 409], 409, 400)
    assert (done["memory_class"], done["principal"], done["content"]) == ("L2", "p", "v")
    assert done["token"].startswith("gmt_")
    [line] = events(console, "guard.memory_")
    assert (line["event"], line["by"], line["decision_id"]) == (
        "guard.memory_promoted",
        "pat",
        "c1",
    )
    assert done["token"] not in json.dumps(line)


async def test_nobody_trusts_his_own_agent_again(console, store):
    """Somebody else has to."""
    keys = MemoryKeys(store.namespace, "default")
    await store.client.execute("HSET", keys.trust("principal", "pat"), "level", 1)
    asked = {"kind": "principal", "name": "pat", "reason": "it was me"}
    async with console.as_("approver") as own, console.as_("approver", name="ann") as ann:
        refused = await own.post("/api/memory/trust", json=asked)
        kept = await gate(store).trust("principal", "pat")
        done = await ann.post("/api/memory/trust", json=asked)

    assert (refused.status_code, kept, done.json()) == (409, 1, {"was": "DEGRADED"})
