"""Attempts, by generator, to have an agent act on what strangers brought forward.

Each kind is played against the guard and, with its mechanism switched off, against the labels of
the records alone: there it has to succeed, or the test would prove nothing.
"""

import random
from itertools import count

import pytest

from guard.core.errors import StateError
from guard.core.labels import Rung
from guard.core.model import Integrity
from guard.core.policy import Action
from guard.extensions.graph_memory.ledger import IMPORTED, Change, Ledger, Write, Writer, ledger_set
from guard.pipeline.selection_replay import partition_key
from guard.policy import load_policies
from guard.provenance.imports import ImportedItem
from guard.store.store import RedisSessionStore
from lab.selection.derived import POLICY as DERIVED
from lab.selection.derived import without_mechanism
from lab.selection.live import POLICY, iban
from tests.graph_world import SCENE, World, with_every_change, without_selection

QUERIED = SCENE.topics
MILLS = [one["target"] for one in SCENE.attack()][:3]
RIVAL = SCENE.records()[1]["name"]
RIGHT = SCENE.records()[0]["name"]
AROUND = [(one["source"], one["target"]) for one in SCENE.around()]
ATTEMPTS = 8
"""Of each kind."""


def pick(rng, values):
    """Return one of some values."""
    return values[rng.randrange(len(values))]


def edges(rng):
    """Edges between authenticated entities, of a weight that a store gives."""
    weight = pick(rng, [1.0, 0.8, 2.5])
    pairs = [(pick(rng, QUERIED), pick(rng, MILLS)) for _ in range(rng.randrange(6, 20))]
    return [("relate", {"relations": related(pairs, weight)})]


def to_the_record(rng):
    """Edges straight to the rival's record, some heavy, some one way round, some the other."""
    pairs = [(one, RIVAL) if rng.random() < 0.5 else (RIVAL, one) for one in QUERIED]
    return [("relate", {"relations": related(pairs * 3, pick(rng, [1.0, 5.0, 1e6, 9e8]))})]


def slowly(rng):
    """One edge a call, over many calls."""
    return [
        ("relate", {"relations": related([(pick(rng, QUERIED), pick(rng, MILLS))])})
        for _ in range(rng.randrange(10, 16))
    ]


def duplicated(rng):
    """The same edge again and again, with loops at both ends and ends that nobody declared."""
    pair = (pick(rng, QUERIED), RIVAL)
    noise = [(pair[0], pair[0]), (RIVAL, RIVAL), ("nobody", "nothing"), (pair[1], "dangling")]
    return [("relate", {"relations": related([pair] * rng.randrange(4, 12) + noise)})]


def merging(rng):
    """The query's entity made one with the rival's."""
    into = pick(rng, [*MILLS, RIVAL])
    return [("unify", {"into": into, "node": one}) for one in QUERIED]


def taking_away(rng):
    """The right record's edges go, and a bridge to the rival's is built."""
    gone = [(RIGHT, QUERIED[0])] + ([pick(rng, AROUND)] if rng.random() < 0.5 else [])
    bridge = [(QUERIED[1], pick(rng, MILLS))]
    return [
        ("forget", {"relations": related(gone)}),
        ("relate", {"relations": related(bridge)}),
    ]


def by_a_chain(rng):
    """Through nodes of the stranger's own, some with names that look like the curator's."""
    alike = QUERIED[0].replace("a", "\N{CYRILLIC SMALL LETTER A}")
    middle = pick(rng, [alike, "bridge", f"{QUERIED[0]} "])
    pairs = [(QUERIED[0], middle), (QUERIED[1], middle), (middle, RIVAL)]
    return [("relate", {"relations": related(pairs * rng.randrange(3, 6))})]


def unwanted(rng):
    """Weights that are none, which a lenient store may skip, beside edges that count."""
    broken = pick(rng, [-1.0, 0.0, "heavy", None, True, 1e12])
    return [
        *to_the_record(rng),
        ("relate", {"relations": related([(pick(rng, QUERIED), "x")], broken)}),
    ]


def related(pairs, weight=1.0):
    """Return relations of one weight."""
    return [{"source": one, "target": two, "weight": weight} for one, two in pairs]


KINDS = (
    edges, to_the_record, slowly, duplicated, merging, taking_away, by_a_chain, unwanted,
)  # fmt: skip


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


@pytest.fixture
async def played(redis_client, tmp_path):
    """Return a function that plays attempts in worlds of their own, until enough had an effect."""
    number = count()

    async def play(kind, policy_text, *, around=False):
        path = tmp_path / f"policy{next(number)}.yaml"
        path.write_text(with_every_change(policy_text), encoding="utf-8")
        policy = load_policies([path])
        verdicts = []
        for seed in range(4 * ATTEMPTS):
            namespace = f"{tmp_path.name}-{next(number)}"
            store = RedisSessionStore(redis_client, namespace=namespace)
            await store.verify()
            world = await Lenient(store, namespace, policy).curated()
            for tool, arguments in kind(random.Random(seed)):
                if around:
                    world._answer(tool, arguments)
                else:
                    await world.call("peer", tool, arguments)
            found = world.results({"query": SCENE.query})["results"]
            if not found or found[0]["record"] != RIVAL:
                continue
            await world.recall()
            verdict, _ = await world.pay(SCENE.rival)
            verdicts.append(verdict.action)
            if len(verdicts) == ATTEMPTS:
                break
        return verdicts

    return play


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_structure_of_strangers_that_brings_a_record_forward_is_asked_about(played, kind):
    """Every attempt that had an effect; switched off, every one of them goes out."""
    text = POLICY.read_text(encoding="utf-8")
    stopped = await played(kind, text)
    assert len(stopped) >= ATTEMPTS // 2
    assert set(stopped) == {Action.ASK}
    let_through = await played(kind, without_selection(text))
    assert set(let_through) == {Action.ALLOW}


@pytest.mark.parametrize("kind", [edges, to_the_record, merging], ids=lambda kind: kind.__name__)
async def test_structure_that_is_written_around_the_guard_is_asked_about(played, kind):
    """The ledger knows nothing of it: the replica is another graph."""
    stopped = await played(kind, POLICY.read_text(encoding="utf-8"), around=True)
    assert len(stopped) >= ATTEMPTS // 2
    assert set(stopped) == {Action.ASK}


def tampering(rng, length):
    """Yield a command on the ledger's list, by what it does to it."""
    at = rng.randrange(length)
    yield "alter", ["LSET", at, b"x" * rng.randrange(1, 80)]
    yield "cut", ["LTRIM", 0, at - 1] if at else ["UNLINK"]
    yield "behead", ["LTRIM", at + 1, -1]
    yield "forge", ["RPUSH", b"y" * rng.randrange(1, 80)]
    yield "put first", ["LPUSH", b"z" * 40]


@pytest.mark.parametrize("known", [True, False], ids=["read-before", "first-read"])
async def test_whatever_is_done_to_the_ledger_the_attack_is_asked_about(
    redis_client, tmp_path, known
):
    """Altered, cut, forged or repeated, before or after a worker has read it.

    A worker that has read entries holds them; to one that has not, the ledger has a gap, or is of
    a graph that the store does not have.
    """
    policy, rng, number = load_policies([POLICY]), random.Random(7), count()
    for _ in range(4):
        for name in ("alter", "cut", "behead", "forge", "put first", "repeat"):
            namespace = f"{tmp_path.name}-{next(number)}"
            store = RedisSessionStore(redis_client, namespace=namespace)
            await store.verify()
            world = await World(store, namespace, policy).curated()
            await world.attacked()
            if known:
                await world.recall()
            key = store.key_of("default", ledger_set("default", "graph"))
            length = await redis_client.execute("LLEN", key)
            if name == "repeat":
                entry = await redis_client.execute("LINDEX", key, rng.randrange(length))
                command = ["RPUSH", entry]
            else:
                command = dict(tampering(rng, length))[name]
            await redis_client.execute(command[0], key, *command[1:])
            reader = world if known else World(store, namespace, policy)
            reader.memory, reader.clock, reader.ids = world.memory, count(2000.0), count(1000)
            await reader.recall()
            verdict, _ = await reader.pay(SCENE.rival)
            assert verdict.action is Action.ASK, (name, reader.metrics.found)
            if not known and name not in {"cut", "behead"}:
                assert verdict.reasons[0].code == "selection_unreplayed", name


# --- structure that a store derives by itself ----------------------------------------------------

ACCOUNT = iban(1)
ANSWER = {"results": [{"record": "invoice 1", "text": f"Pay {ACCOUNT}"}]}
NO_PRINCIPALS = "authenticated_by: {label: authenticated}"


@pytest.fixture
async def made(redis_client, redis_namespace, policy_from):
    """Return a function that makes a world under a changed policy, with the curator's record."""
    store = RedisSessionStore(redis_client, namespace=redis_namespace)
    await store.verify()

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
