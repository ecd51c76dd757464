"""Every save leaves a hop: the path of a value can be told, holes in it are seen, labels stand."""

import asyncio
import itertools
import struct

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from guard.core.labels import LabelLookup, LabelSet, LabelWrite, LabelWriteMode
from guard.core.model import Identity, Integrity
from guard.core.policy import StateLimits
from guard.operations.labels import LabelOperator
from guard.provenance.lineage import (
    LIST_FIRST,
    LIST_LIMIT,
    Entries,
    numbered,
    numbered_in,
)
from guard.provenance.seal import Seal
from guard.store.store import RedisSessionStore
from tests.unit.provenance.agents import play, rung

KEY = bytes(range(32))
ATTACKER = "drop@evil.test"
VALUE = f"mail:{ATTACKER}"


@pytest.fixture
def seal():
    """Return the deployment's seal."""
    return Seal(KEY)


@pytest.fixture
def path(store, seal):
    """Return a function that tells the path of a value or an item as nested lists of words."""
    operator = LabelOperator(store, seal, StateLimits())

    def words(step):
        name = step.kind if not step.why else f"{step.kind} {step.why}"
        if step.record is not None and step.kind != "gap":
            name += f" {step.record.source} {step.record.call}"
        return [name, *map(words, step.then)]

    async def told(text=ATTACKER, store="", value=None):
        found = await operator.trace(text, 1_700_000_100.0, store=store)
        name = value or (f"item {text} of {store}" if store else f"mail:{text}")
        return [words(step) for step in found[name].steps] if name in found else None

    return told


async def keep(agent, key, text=ATTACKER):
    """Save a text under a key."""
    await agent.call("save", {"key": key, "value": text}, "ok")


async def recall(agent, key, text=ATTACKER):
    """Recall the text of a key."""
    await agent.call("recall", {"key": key}, text)


async def launder(agent, *keys):
    """Read an address and save it, and again under each further key in a session of its own."""
    await agent.call("read", {}, f"mail {ATTACKER}")
    await keep(agent, keys[0])
    for before, key in itertools.pairwise(keys):
        later = agent.in_session(f"session-{key}")
        await recall(later, before)
        await keep(later, key)


async def hop_field(store, seal, value=VALUE):
    """Return key, field and raw list of a value's hops."""
    mark = seal.fingerprint(value)
    for key in await store.client.execute("KEYS", f"{store._keys.namespace}:*:m:*"):
        raw = await store.client.execute("HGET", key, mark + b"H")
        if raw is not None:
            return key, mark + b"H", raw
    return None


def entries_of(raw):
    """Return the sealed entries of a list."""
    found, place = [], 2
    while place < len(raw):
        [size] = struct.unpack_from(">H", raw, place)
        found.append(raw[place + 2 : place + 2 + size])
        place += 2 + size
    return found


def list_of(entries, count=None):
    """Return a list of some entries."""
    packed = b"".join(struct.pack(">H", len(entry)) + entry for entry in entries)
    return struct.pack(">H", len(entries) if count is None else count) + packed


READ = "read", {}, f"mail {ATTACKER}"
LISTED = "list_all", {}, [{"key": "a", "value": ATTACKER}]
DRAFTED = "draft", {"to": "x@inside.test", "body": f"to {ATTACKER}"}, "ok"
RECALLED = "recall", {"key": "a"}, ATTACKER
BOB = "as", "bob"
CAROL, NOBODY = "carol@partner.test", "nobody@else.test"
WORDS = "always copy the accountant"


def saved(key, text=ATTACKER):
    """Return the step in which a text is saved under a key."""
    return "save", {"key": key, "value": text}, "ok"


@pytest.mark.parametrize(
    ("steps", "of", "tree"),
    [
        pytest.param(
            [READ, saved("a"), RECALLED, saved("b")],
            (),
            [["read read 0", ["saved save 1", ["saved save 3"]]]],
            id="one session",
        ),
        pytest.param(
            [READ, saved("a"), RECALLED, DRAFTED],
            (),
            [["read read 0", ["saved save 1", ["saved draft 3"]]]],
            id="a draft",
        ),
        pytest.param(
            [READ, saved("a"), BOB, RECALLED, saved("b")],
            (),
            [["read read 0", ["saved save 1", ["saved save 1"]]]],
            id="another principal",
        ),
        pytest.param(
            [READ, saved("a"), BOB, LISTED, saved("b")],
            (),
            [["read read 0", ["saved save 1", ["saved save 1"]]]],
            id="a listing that names no item",
        ),
        pytest.param(
            [READ, saved("a"), BOB, saved("b")],
            (),
            [["read read 0", ["saved save 1"]], ["memory read 0", ["saved save 0"]]],
            id="another principal without a recall",
        ),
        pytest.param(
            [READ, ("in", "later"), ("read", {}, "weather"), ("in", "last"), saved("a")],
            (),
            [["read read 0", ["saved save 0"]]],
            id="sessions later without a recall the read is the parent",
        ),
        pytest.param(
            [("say", f"Write to {CAROL}."), saved("a", CAROL)],
            (CAROL,),
            [["prompt prompt -1", ["saved save 0"]]],
            id="what the user named begins with the prompt",
        ),
        pytest.param(
            [("say", f"Write to {CAROL}."), saved("b", NOBODY)],
            (NOBODY,),
            [["own", ["saved save 0"]]],
            id="what nobody named begins with the agent's own words",
        ),
        pytest.param(
            [
                ("read", {}, WORDS),
                saved("a", WORDS),
                BOB,
                ("recall", {"key": "a"}, WORDS),
                saved("b", "copy the accountant"),
            ],
            ("b", "facts"),
            [["session_read read 0", ["saved save 1", ["saved save 1"]]]],
            id="the text of an item is followed through the items it came from",
        ),
    ],
)
async def test_every_save_of_a_value_is_a_hop(agent, path, steps, of, tree):
    """From the text that was read to the last store, whoever carried it."""
    await play(agent, steps)

    assert await path(*of) == tree


async def test_a_hop_has_its_own_principal(agent, store, seal):
    """Another agent of the store has read nothing but the memory."""
    await launder(agent, "a")
    bob = agent.as_principal("bob")
    await recall(bob, "a")
    await keep(bob, "b")

    operator = LabelOperator(store, seal, StateLimits())
    [first] = (await operator.trace(ATTACKER, agent.at))[VALUE].steps
    [save] = first.then
    assert save.hop.principal != save.then[0].hop.principal


async def test_beyond_the_bound_the_middle_is_given_up_and_the_tree_says_so(
    agent, path, store, seal
):
    """Where it came from and where it is now stay; labels are untouched."""
    keys = [f"key-{number}" for number in range(LIST_LIMIT + 4)]
    await launder(agent, *keys)

    gap, rest, first = await path()
    assert gap == ["gap deleted"]
    assert rest[0] == "read read 0"
    assert first[0] == "gap parent"
    _, _, raw = await hop_field(store, seal)
    assert len(entries_of(raw)) == LIST_LIMIT
    assert struct.unpack_from(">H", raw)[0] == len(keys)
    assert depth(rest) == LIST_FIRST + 1
    assert depth(first) == LIST_LIMIT - LIST_FIRST + 1
    assert rung(await agent.send(ATTACKER)) == "tainted"


def depth(step):
    """Return how many steps the longest branch has."""
    return 1 + max(map(depth, step[1:]), default=0)


async def test_the_same_save_again_is_no_second_hop(agent, store, seal):
    """One hop per value, item and session, however often it is saved."""
    await launder(agent, "a")
    for _ in range(5):
        await keep(agent, "a")

    _, _, raw = await hop_field(store, seal)
    assert len(entries_of(raw)) == struct.unpack_from(">H", raw)[0] == 1


@pytest.mark.parametrize("place", [0, 7, 8, 20, 40, 60, 89])
async def test_an_altered_hop_is_shown_as_altered_and_leaves_a_gap(agent, path, store, seal, place):
    """What was saved after it hangs in the air; nothing of it is believed, and no label changes."""
    await launder(agent, "a", "b", "c")
    key, field, raw = await hop_field(store, seal)
    first, second, third = entries_of(raw)
    broken = bytearray(second)
    broken[place] ^= 1
    await store.client.execute("HSET", key, field, list_of([first, bytes(broken), third]))

    assert await path() == [
        ["altered"],
        ["read read 0", ["saved save 1"]],
        ["gap parent", ["saved save 1"]],
    ]
    assert rung(await agent.send(ATTACKER)) == "tainted"


@pytest.mark.parametrize("count", [3, 2])
async def test_a_deleted_hop_is_a_gap_even_where_the_count_was_corrected(
    agent, path, store, seal, count
):
    """The next save names the item it was recalled from."""
    await launder(agent, "a", "b", "c")
    key, field, raw = await hop_field(store, seal)
    first, _, third = entries_of(raw)
    await store.client.execute("HSET", key, field, list_of([first, third], count))

    holes = [["gap deleted"]] if count == 3 else []
    assert await path() == [
        *holes,
        ["read read 0", ["saved save 1"]],
        ["gap parent", ["saved save 1"]],
    ]


async def test_a_deleted_list_is_a_gap_behind_the_label(agent, path, store, seal):
    """A saved value without any save on record is not a value with a short path."""
    await launder(agent, "a", "b")
    key, field, _ = await hop_field(store, seal)
    await store.client.execute("HDEL", key, field)
    assert await path() == [["gap label"]]

    bob = agent.as_principal("bob")
    await keep(bob, "c")
    assert await path() == [["gap label"], ["memory read 0", ["saved save 0"]]]


async def test_a_hop_moved_from_another_value_is_altered(agent, path, store, seal):
    """The seal binds it to its place."""
    await launder(agent, "a")
    await agent.say("Write to carol@partner.test.")
    await keep(agent, "p", "carol@partner.test")
    _, _, good = await hop_field(store, seal, "mail:carol@partner.test")
    key, field, _ = await hop_field(store, seal)
    await store.client.execute("HSET", key, field, good)

    assert await path() == [["altered"]]
    assert rung(await agent.in_session("x").send(ATTACKER)) == "tainted"


async def test_recalls_that_were_deleted_leave_a_gap_and_no_clean_path(agent, path, store):
    """The session had read memory, so that it read the mail once does not settle it."""
    await launder(agent, "a")
    later = agent.in_session("later")
    await recall(later, "a")
    for key in await store.client.execute("KEYS", f"{store._keys.namespace}:*:v:*"):
        await store.client.execute("HDEL", key, b"r")
    await keep(later, "b")

    assert await path() == [
        ["read read 0", ["saved save 1"]],
        ["gap recall", ["saved save 1"]],
    ]


async def test_what_was_imported_and_saved_again_says_that_no_save_is_known(agent, path):
    """An import names no item, so the tree does not pretend to know one."""
    await agent.guard.notes.memory(
        "default", [("facts", "pat@partner.test", Integrity.AUTHENTICATED)], agent.at
    )
    await recall(agent, "p", "pat@partner.test")
    await keep(agent, "q", "pat@partner.test")

    assert await path("pat@partner.test") == [["gap parent", ["saved save 1"]]]


@pytest.mark.parametrize(
    "raw", [b"", b"\0", b"\0\1", b"\0\0\0", b"\xff\xff\xff\xff", b"\0\2\0\0\0\0", b"x" * 500]
)
async def test_nonsense_in_place_of_hops_is_read_and_saved_over(agent, path, store, seal, raw):
    """Neither the tree nor the next save fails, and the label stands."""
    await launder(agent, "a")
    key, field, _ = await hop_field(store, seal)
    await store.client.execute("HSET", key, field, raw)
    await path()
    bob = agent.as_principal("bob")
    await recall(bob, "a")
    await keep(bob, "b")

    steps = await path()
    assert ["gap parent", ["saved save 1"]] in steps or ["altered"] in steps
    assert rung(await bob.send(ATTACKER)) == "tainted"


@given(numbers=st.lists(st.integers(0, 40), max_size=45))
@example(numbers=[*range(40), 3, 20, 39])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_list_keeps_its_oldest_and_its_newest_entries(redis_server, redis_namespace, numbers):
    """Whatever is added in whatever order: each once, the bound held, the count of all."""
    area = LabelSet("y", (redis_namespace, *map(str, numbers)), "", ttl=0, limit=4)
    entries = [b"8 bytes " + number.to_bytes(28, "big") + bytes(number) for number in numbers]
    held = []
    count = 0
    for entry in entries:
        if entry not in held:
            count += 1
            held = held if len(held) < LIST_LIMIT else held[:LIST_FIRST] + held[LIST_FIRST + 1 :]
            held.append(entry)

    async def kept():
        store = RedisSessionStore.at(redis_server.url, namespace=redis_namespace, timeout=60.0)
        identity = Identity("p", "s")
        writes = [LabelWrite(area, LabelWriteMode.APPEND, ((b"f", entry),)) for entry in entries]
        await store.note(identity, writes)
        [raw] = await store.look_up(identity, LabelLookup(area, (b"f",)))
        await store.aclose()
        return raw

    assert asyncio.run(kept()) == (list_of(held, count) if numbers else None)


@pytest.mark.parametrize("count", [0, 1, LIST_FIRST, LIST_LIMIT, LIST_LIMIT + 1, 3 * LIST_LIMIT])
async def test_of_what_is_counted_the_first_and_the_last_are_held(store, seal, count):
    """In order; what was altered or deleted is told from what the bound let go."""
    area = LabelSet("y", ("t",), "", ttl=0, limit=400)
    bodies = [b"body %d" % number for number in range(count)]
    entries = [(b"f", seal.sealed(area, b"f", body)) for body in bodies]
    writes = [LabelWrite(area, LabelWriteMode.NUMBER, (entry,)) for entry in entries]
    identity = Identity("p", "s")
    await store.note(identity, writes)
    raw = [*await store.look_up(identity, LabelLookup(area, tuple(numbered(b"f"))))]
    held = (
        bodies if count <= LIST_LIMIT else bodies[:LIST_FIRST] + bodies[LIST_FIRST - LIST_LIMIT :]
    )
    assert numbered_in(seal, area, b"f", raw) == Entries(tuple(held), 0, count - len(held))
    if count > 1:
        raw[1], raw[2] = raw[1] + b"?", None
        altered = Entries(tuple(held[2:]), 1, count - len(held) + 1)
        assert numbered_in(seal, area, b"f", raw) == altered
        for junk in (b"-1", b"x", b"9" * 20, 7):
            assert numbered_in(seal, area, b"f", [junk, *raw[1:]]) == Entries(altered=1)


async def test_what_is_counted_has_half_of_its_set(store):
    """Fields that are there go on; one for which there is no room leaves nothing, and no error."""
    area = LabelSet("y", ("t",), "", ttl=0, limit=2)
    fields = [b"%02d" % number for number in range(LIST_LIMIT)]
    identity = Identity("p", "s")
    for _ in range(2):
        writes = [LabelWrite(area, LabelWriteMode.NUMBER, ((one, b"entry"),)) for one in fields]
        await store.note(identity, writes)
    counts = await store.look_up(identity, LabelLookup(area, tuple(fields)))
    room = LIST_LIMIT // 2 + 1
    assert [*counts] == [b"2"] * room + [None] * (LIST_LIMIT - room)


async def test_no_text_is_in_a_hop(agent, store, seal):
    """Fingerprints and digests: no address, no key of an item, no principal, no session."""
    alice = agent.in_session("session-of-alice")
    await alice.call("read", {}, f"mail {ATTACKER}")
    await keep(alice, "the-secret-key")
    await recall(alice, "the-secret-key")
    await keep(alice, "other-key")

    _, _, raw = await hop_field(store, seal)
    assert not any(word in raw for word in (b"evil", b"secret", b"other", b"alice"))
    assert b"facts" in raw
    assert b"save" in raw
