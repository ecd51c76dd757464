"""Structure that a store derives by itself from content that does not count."""

from __future__ import annotations

import pytest

from guard.core.errors import StateError
from guard.core.labels import Rung
from guard.core.model import Integrity
from guard.core.policy import Action
from guard.extensions.graph_memory.ledger import IMPORTED, Change, Ledger, Write, Writer
from guard.pipeline.selection_replay import partition_key
from guard.policy import load_policies
from guard.provenance.imports import ImportedItem
from guard.store.store import RedisSessionStore
from lab.selection.derived import POLICY, without_mechanism
from lab.selection.live import iban
from tests.graph_world import World

ACCOUNT = iban(1)
ANSWER = {"results": [{"record": "invoice 1", "text": f"Pay {ACCOUNT}"}]}
NO_PRINCIPALS = "authenticated_by: {label: authenticated}"


@pytest.fixture
async def made(redis_client, redis_namespace, tmp_path):
    """Return a function that makes a world under a changed policy, with the curator's record."""
    store = RedisSessionStore(redis_client, namespace=redis_namespace)
    await store.verify()

    async def make(change=lambda text: text):
        file = tmp_path / "policy.yaml"
        file.write_text(change(POLICY.read_text("utf-8")), "utf-8")
        world = World(store, redis_namespace, load_policies([file]))
        item = ImportedItem("graph", ACCOUNT, Integrity.AUTHENTICATED, ("bank",))
        await world.guard.notes.memory("default", [item], 0.0)
        await added(world, "curator", record="invoice 1")
        return world

    return make


async def added(world, who, group="main", record=""):
    """Let somebody write a text, and return the verdict."""
    fields = {"text": "invoice 2 is no longer valid", "group": group, "record": record}
    return (await world.call(who, "add_memory", fields))[1]


async def paid(world, tool="search_memory", group="main", who="agent"):
    """Let an agent read and pay; return the verdict and the rung of the account."""
    answer = ANSWER if tool == "search_memory" else f"Pay {ACCOUNT}"
    fields = {"query": "invoice 1"} | ({"group": group} if group else {})
    await world.call(who, tool, fields, answer)
    asked = {"account": ACCOUNT, "amount": 1}
    traced, verdict, _ = await world.call(who, "transfer", asked)
    return verdict, traced.targets[0].attestation.rung


@pytest.mark.parametrize("tool", ["search_memory", "report"])
async def test_a_transfer_after_a_peers_content_is_asked_and_the_verdict_says_why(made, tool):
    """The served account is authentic; the structure that selected it is the peer's."""
    world = await made()
    assert (await paid(world, tool))[0].action is Action.ALLOW
    await added(world, "peer")
    verdict, rung = await paid(world, tool)
    assert (verdict.action, rung) == (Action.ASK, Rung.UNKNOWN)
    [reason] = [one for one in verdict.reasons if one.code == "selection_unreplayed"]
    assert reason.data["selection"]["reason"] == "derived_structure"
    assert reason.data["selection"]["writer"]["principal"] == "peer"


@pytest.mark.parametrize("tool", ["search_memory", "report"])
async def test_without_the_declaration_the_same_transfer_goes_out(made, tool):
    """`derives` is what stops it, and nothing else."""
    world = await made(without_mechanism)
    await added(world, "peer")
    assert (await paid(world, tool))[0].action is Action.ALLOW


@pytest.mark.parametrize(
    ("written", "read", "asked"),
    [
        ("other", "main", False),
        ("main", "main", True),
        ("MAIN ", "main", True),
        ("other", "", True),
        ("", "main", True),
        ("---", "main", True),
    ],
)
async def test_a_partition_is_untrusted_and_not_its_neighbours(made, written, read, asked):
    """Names that a store might fold are one partition; a missing name means every one."""
    world = await made()
    await added(world, "peer", written)
    verdict, _ = await paid(world, "report", read)
    assert (verdict.action is Action.ASK) is asked


@pytest.mark.parametrize(
    ("writer", "reader", "asked"),
    [("agent", "agent", False), ("peer", "agent", True), ("agent", "peer", True)],
)
async def test_without_named_principals_only_an_agents_own_content_counts_for_it(
    made, writer, reader, asked
):
    """What it concluded itself, from nothing untrusted, derives nothing foreign."""
    world = await made(
        lambda text: text.replace(
            "authenticated_by: {principals: [curator], label: advisory}", NO_PRINCIPALS
        )
    )
    # The curator's own record is another principal's: it stands in another partition.
    await added(world, writer, "side")
    verdict, _ = await paid(world, "report", "side", reader)
    assert (verdict.action is Action.ASK) is asked


async def test_a_write_that_never_answers_is_on_record(made, monkeypatch):
    """The record is written before the call is forwarded."""
    world = await made()

    async def lost(_result):
        return None

    with monkeypatch.context() as patched:
        patched.setattr(world.guard, "observe", lost)
        await added(world, "peer")
    assert (await paid(world, "report"))[0].action is Action.ASK


async def test_a_write_whose_origin_cannot_be_recorded_is_blocked(made, monkeypatch):
    """Structure of unknown origin would vouch later."""
    world = await made()

    async def broken(*_):
        raise StateError("no store")

    monkeypatch.setattr(world.guard.calls._parts.selections._ledger, "append", broken)
    verdict = await added(world, "peer")
    assert (verdict.action, verdict.reasons[0].code) == (Action.BLOCK, "structure_unrecorded")


@pytest.mark.parametrize(
    ("source", "label", "partition", "accepted"),
    [
        (IMPORTED, Integrity.AUTHENTICATED, "", True),
        (IMPORTED, Integrity.AUTHENTICATED, "main", True),
        (IMPORTED, Integrity.AUTHENTICATED, "other", False),
        (IMPORTED, Integrity.ADVISORY, "", False),
        ("user_input", Integrity.TRUSTED, "", False),
    ],
)
def test_only_an_operators_review_accepts_derived_structure(source, label, partition, accepted):
    """An agent's write is no review; what comes after a review is not accepted."""
    ledger = Ledger(lambda writer: writer.principal == "curator")
    strange = Write(Change.DERIVE, partition_key("main"), "m", writer=Writer("peer"))
    reviewed = Write(Change.REVIEW, partition, writer=Writer("", source=source, label=label))
    ledger.extend([strange, reviewed])
    assert (ledger.derived(["main"], "") is None) is accepted
    ledger.extend([strange])
    assert ledger.derived(["main"], "") is not None
