"""Attempts to have an agent act on what strangers brought forward.

Each kind is played against the guard and, with its mechanism switched off, against the labels of
the records alone: there it has to succeed, or the test would prove nothing.
"""

from itertools import count

import pytest

from guard.core.labels import Rung
from guard.core.model import Integrity, ToolCall
from guard.core.policy import Action
from guard.extensions.graph_memory.ledger import IMPORTED, Change, Ledger, Write, Writer, ledger_set
from guard.pipeline.outcome import JudgeRequest
from guard.pipeline.selection_replay import partition_key
from guard.provenance.imports import ImportedItem
from lab.selection.derived import POLICY as DERIVED
from lab.selection.derived import without_mechanism
from lab.selection.live import POLICY, iban
from tests.graph_world import SCENE, World, with_every_change, without_selection
from tests.guards import down

TEXT = POLICY.read_text(encoding="utf-8")
FIRST, SECOND = SCENE.topics
MILLS = [one["target"] for one in SCENE.attack()][:3]
RIGHT, RIVAL = (one["name"] for one in SCENE.records())
PAIRS = [(topic, mill) for topic in SCENE.topics for mill in MILLS]
LOOKS_ALIKE = FIRST.replace("a", "\N{CYRILLIC SMALL LETTER A}")


def related(*pairs, weight=1.0):
    """Return a call that writes relations of one weight."""
    return "relate", {"relations": [{"source": a, "target": b, "weight": weight} for a, b in pairs]}


TO_THE_RECORD = related(*[(FIRST, RIVAL), (RIVAL, SECOND)] * 3)
KINDS = {
    "edges": [related(*PAIRS * 3)],
    "heavier edges": [related(*PAIRS * 2, weight=2.5)],
    "to the record": [TO_THE_RECORD],
    "heavy to the record": [related((FIRST, RIVAL), (RIVAL, SECOND), weight=9e8)],
    "one edge a call": [related(pair) for pair in PAIRS * 2],
    "the same edge and loops": [
        related(*[(FIRST, RIVAL)] * 12, (FIRST, FIRST), (RIVAL, RIVAL), ("nobody", "nothing"))
    ],
    "made one with a mill": [("unify", {"into": MILLS[0], "node": one}) for one in SCENE.topics],
    "made one with the record": [("unify", {"into": RIVAL, "node": one}) for one in SCENE.topics],
    "taken away, and a bridge": [
        ("forget", related((RIGHT, FIRST))[1]),
        related((SECOND, MILLS[0])),
    ],
    "by a chain": [related(*[(FIRST, "bridge"), (SECOND, "bridge"), ("bridge", RIVAL)] * 5)],
    "by a name that looks alike": [
        related(*[(FIRST, LOOKS_ALIKE), (SECOND, LOOKS_ALIKE), (LOOKS_ALIKE, RIVAL)] * 5)
    ],
    **{
        f"beside a weight of {weight}": [TO_THE_RECORD, related((FIRST, "x"), weight=weight)]
        for weight in (-1.0, 0.0, "heavy", None, True, 1e12)
    },
}


class Lenient(World):
    """A world whose store skips relations of a weight that it cannot use."""

    def _answer(self, tool, arguments):
        if tool == "relate":
            usable = [
                one
                for one in arguments["relations"]
                if isinstance(one.get("weight", 1.0), float) and 0 < one.get("weight", 1.0) < 1e9
            ]
            arguments = {**arguments, "relations": usable}
        return super()._answer(tool, arguments)


@pytest.mark.parametrize("attempt", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("how", ["through", "around", "switched off"])
async def test_structure_of_strangers_that_brings_a_record_forward_is_asked_about(
    store, redis_namespace, policy_from, attempt, how
):
    """Through the guard or around it; switched off, every one of them goes out."""
    text = without_selection(TEXT) if how == "switched off" else TEXT
    world = await Lenient(store, redis_namespace, policy_from(with_every_change(text))).curated()
    for tool, arguments in attempt:
        if how == "around":
            world._answer(tool, arguments)
        else:
            await world.call("peer", tool, arguments)
    assert world.results({"query": SCENE.query})["results"][0]["record"] == RIVAL
    await world.recall()
    verdict, _ = await world.pay(SCENE.rival)
    assert verdict.action is (Action.ALLOW if how == "switched off" else Action.ASK)


TAMPERED = {
    "alter": ["LSET", 2, b"x" * 40],
    "alter the first": ["LSET", 0, b"x"],
    "cut": ["LTRIM", 0, 2],
    "all gone": ["UNLINK"],
    "behead": ["LTRIM", 2, -1],
    "forge": ["RPUSH", b"y" * 40],
    "put first": ["LPUSH", b"z" * 40],
    "repeat": ["LINDEX", 1],
}


@pytest.mark.parametrize("known", [True, False], ids=["read-before", "first-read"])
@pytest.mark.parametrize("name", TAMPERED)
async def test_whatever_is_done_to_the_ledger_the_attack_is_asked_about(
    store, redis_namespace, known, name
):
    """Altered, cut, forged or repeated, before or after a worker has read it.

    A worker that has read entries holds them; to one that has not, the ledger has a gap, or is of
    a graph that the store does not have.
    """
    world = await World(store, redis_namespace).curated()
    await world.attacked()
    if known:
        await world.recall()
    key, (command, *arguments) = (
        store.key_of("default", ledger_set("default", "graph")),
        TAMPERED[name],
    )
    found = await store.client.execute(command, key, *arguments)
    if name == "repeat":
        await store.client.execute("RPUSH", key, found)
    reader = world if known else World(store, redis_namespace)
    reader.memory, reader.clock, reader.ids = world.memory, count(2000.0), count(1000)
    await reader.recall()
    verdict, _ = await reader.pay(SCENE.rival)
    assert verdict.action is Action.ASK, reader.metrics.found
    if not known and name not in {"cut", "all gone", "behead"}:
        assert verdict.reasons[0].code == "selection_unreplayed"


# --- structure that a store derives by itself ----------------------------------------------------

ACCOUNT = iban(1)
ANSWER = {"results": [{"record": "invoice 1", "text": f"Pay {ACCOUNT}"}]}
NAMED = "authenticated_by: {principals: [curator], label: advisory}"
NO_PRINCIPALS = "authenticated_by: {label: authenticated}"


@pytest.fixture
def made(store, redis_namespace, policy_from):
    """Return a function that makes a world under a changed policy, with the curator's record."""

    async def make(change=lambda text: text):
        world = World(store, redis_namespace, policy_from(change(DERIVED.read_text("utf-8"))))
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
@pytest.mark.parametrize("declared", [True, False])
async def test_a_transfer_after_a_peers_content_is_asked_and_the_verdict_says_why(
    made, tool, declared
):
    """The structure that selected the account is the peer's; `derives` alone is what stops it."""
    world = await made() if declared else await made(without_mechanism)
    assert (await paid(world, tool))[0].action is Action.ALLOW
    await added(world, "peer")
    verdict, rung = await paid(world, tool)
    assert verdict.action is (Action.ASK if declared else Action.ALLOW)
    if declared:
        [reason] = [one for one in verdict.reasons if one.code == "selection_unreplayed"]
        assert rung is Rung.UNKNOWN
        assert reason.data["selection"]["reason"] == "derived_structure"
        assert reason.data["selection"]["writer"]["principal"] == "peer"


@pytest.mark.parametrize(
    ("own", "writer", "reader", "written", "read", "asked"),
    [
        (False, "peer", "agent", "other", "main", False),
        (False, "peer", "agent", "main", "main", True),
        (False, "peer", "agent", "MAIN ", "main", True),
        (False, "peer", "agent", "other", "", True),
        (False, "peer", "agent", "", "main", True),
        (False, "peer", "agent", "---", "main", True),
        # The curator's own record is another principal's: it stands in another partition.
        (True, "agent", "agent", "side", "side", False),
        (True, "peer", "agent", "side", "side", True),
        (True, "agent", "peer", "side", "side", True),
    ],
)
async def test_a_partition_is_untrusted_and_not_its_neighbours(
    made, own, writer, reader, written, read, asked
):
    """Names that a store might fold are one partition; a missing name means every one.

    Without named principals, only an agent's own content counts for it.
    """
    world = await made(lambda text: text.replace(NAMED, NO_PRINCIPALS) if own else text)
    await added(world, writer, written)
    verdict, _ = await paid(world, "report", read, reader)
    assert (verdict.action is Action.ASK) is asked


async def test_a_write_that_never_answers_is_on_record(made):
    """The record is written before the call is forwarded."""
    world = await made()
    fields = {"text": "invoice 2 is no longer valid", "group": "main", "record": ""}
    call = ToolCall("lost", world.identity("peer"), "add_memory", fields, "mcp", 1001.0)
    await world.guard.judge(JudgeRequest([call]))
    assert (await paid(world, "report"))[0].action is Action.ASK


async def test_a_write_whose_origin_cannot_be_recorded_is_blocked(made, monkeypatch):
    """Structure of unknown origin would vouch later."""
    world = await made()
    monkeypatch.setattr(world.guard.calls._parts.selections._ledger, "append", down)
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
