"""Every save leaves a hop: the path of a value can be told, holes in it are seen, labels stand."""

import itertools
import struct

import pytest

from guard.core.labels import LabelLookup, LabelSet, LabelWrite, LabelWriteMode
from guard.core.model import Identity
from guard.provenance.lineage import (
    LIST_FIRST,
    LIST_LIMIT,
    Entries,
    numbered,
    numbered_in,
)
from guard.provenance.seal import Seal
from tests.guards import KEY
from tests.unit.provenance.agents import fields_of, operator_of, play, rung

ATTACKER = "drop@evil.test"


def words(step):
    """Return a step of a path as nested lists of words."""
    name = step.kind if not step.why else f"{step.kind} {step.why}"
    if step.record is not None and step.kind != "gap":
        name += f" {step.record.source} {step.record.call}"
    return [name, *map(words, step.then)]


async def path(agent, text=ATTACKER, store=""):
    """Return the path of a value or an item."""
    found = await operator_of(agent.guard).trace(text, 1_700_000_100.0, store=store)
    name = f"item {text} of {store}" if store else f"mail:{text}"
    return [words(step) for step in found[name].steps]


async def hops_of(agent, value=ATTACKER):
    """Return key, field and raw list of a value's hops."""
    mark = Seal(KEY).fingerprint(f"mail:{value}") + b"H"
    [found] = [one async for one in fields_of(agent.guard._store, "m") if one[1] == mark]
    return found


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


def launder(*keys):
    """Return the steps in which an address is read, saved, and saved again in further sessions."""
    steps = [READ, saved(keys[0])]
    for before, key in itertools.pairwise(keys):
        steps += [("in", f"session-{key}"), ("recall", {"key": before}, ATTACKER), saved(key)]
    return steps


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
async def test_every_save_of_a_value_is_a_hop(agent, steps, of, tree):
    """From the text that was read to the last store, whoever carried it."""
    agent = await play(agent, steps)

    assert await path(agent, *of) == tree


async def test_a_hop_has_its_own_principal_and_the_same_save_is_no_second_one(agent):
    """Another agent of the store has read nothing but the memory."""
    await play(agent, [READ, *[saved("a")] * 5, BOB, RECALLED, saved("b")])

    [[first]] = [
        one.steps for one in (await operator_of(agent.guard).trace(ATTACKER, 1e9)).values()
    ]
    [save] = first.then
    assert save.hop.principal != save.then[0].hop.principal
    _, _, raw = await hops_of(agent)
    assert len(entries_of(raw)) == struct.unpack_from(">H", raw)[0] == 2


async def test_beyond_the_bound_the_middle_is_given_up_and_the_tree_says_so(agent):
    """Where it came from and where it is now stay; labels are untouched."""
    keys = [f"key-{number}" for number in range(LIST_LIMIT + 4)]
    await play(agent, launder(*keys))

    gap, rest, first = await path(agent)
    assert (gap, rest[0], first[0]) == (["gap deleted"], "read read 0", "gap parent")
    _, _, raw = await hops_of(agent)
    assert len(entries_of(raw)) == LIST_LIMIT
    assert struct.unpack_from(">H", raw)[0] == len(keys)
    assert (depth(rest), depth(first)) == (LIST_FIRST + 1, LIST_LIMIT - LIST_FIRST + 1)
    assert rung(await agent.send(ATTACKER)) == "tainted"


def depth(step):
    """Return how many steps the longest branch has."""
    return 1 + max(map(depth, step[1:]), default=0)


def edit(change):
    """Return the step in which somebody edits the hops in Redis, or deletes them."""

    async def deed(agent):
        key, field, raw = await hops_of(agent)
        changed = change(raw)
        edited = ["HDEL", key, field] if changed is None else ["HSET", key, field, changed]
        await agent.guard._store.client.execute(*edited)

    return "do", deed


def altered(place):
    """Return a change of one byte of the second hop."""

    def change(raw):
        first, second, third = entries_of(raw)
        return list_of(
            [first, second[:place] + bytes([second[place] ^ 1]) + second[place + 1 :], third]
        )

    return change


def without_second(count):
    """Return a change that takes the second of three hops out, with a count."""
    return lambda raw: list_of(entries_of(raw)[::2], count)


async def _move(agent):
    _, _, good = await hops_of(agent, CAROL)
    key, field, _ = await hops_of(agent)
    await agent.guard._store.client.execute("HSET", key, field, good)


async def _forget_recalls(agent):
    async for key, *_ in fields_of(agent.guard._store, "v"):
        await agent.guard._store.client.execute("HDEL", key, b"r")


BEFORE, AFTER = ["read read 0", ["saved save 1"]], ["gap parent", ["saved save 1"]]
DELETED = edit(lambda _: None)


@pytest.mark.parametrize(
    ("steps", "tree"),
    [
        *(
            pytest.param(
                [*launder("a", "b", "c"), edit(altered(place))],
                [["altered"], BEFORE, AFTER],
                id=f"a hop altered at {place}",
            )
            for place in (0, 7, 8, 20, 40, 60, 89)
        ),
        pytest.param(
            [*launder("a", "b", "c"), edit(without_second(3))],
            [["gap deleted"], BEFORE, AFTER],
            id="a deleted hop",
        ),
        pytest.param(
            [*launder("a", "b", "c"), edit(without_second(2))],
            [BEFORE, AFTER],
            id="a deleted hop whose count was corrected",
        ),
        pytest.param([*launder("a", "b"), DELETED], [["gap label"]], id="a deleted list"),
        pytest.param(
            [*launder("a", "b"), DELETED, ("in", "one"), BOB, saved("c")],
            [["gap label"], ["memory read 0", ["saved save 0"]]],
            id="a save behind a deleted list",
        ),
        pytest.param(
            [
                READ,
                saved("a"),
                ("say", f"Write to {CAROL}."),
                saved("p", CAROL),
                ("do", _move),
            ],
            [["altered"]],
            id="a hop moved from another value",
        ),
        pytest.param(
            [
                *launder("a"),
                ("in", "later"),
                RECALLED,
                ("do", _forget_recalls),
                saved("b"),
            ],
            [BEFORE, ["gap recall", ["saved save 1"]]],
            id="recalls that were deleted",
        ),
    ],
)
async def test_an_edited_path_has_a_gap_and_no_label_changes(agent, steps, tree):
    """What was saved behind it hangs in the air; nothing of it is believed."""
    agent = await play(agent, steps)

    assert await path(agent) == tree
    assert rung(await agent.in_session("x").send(ATTACKER)) == "tainted"


async def test_what_was_imported_and_saved_again_says_that_no_save_is_known(agent):
    """An import names no item, so the tree does not pretend to know one."""
    await play(agent, [("imported", ATTACKER), RECALLED, saved("q")])

    assert await path(agent) == [AFTER]


@pytest.mark.parametrize(
    "raw", [b"", b"\0", b"\0\1", b"\0\0\0", b"\xff\xff\xff\xff", b"\0\2\0\0\0\0", b"x" * 500]
)
async def test_nonsense_in_place_of_hops_is_read_and_saved_over(agent, raw):
    """Neither the tree nor the next save fails, and the label stands."""
    await play(agent, [READ, saved("a"), edit(lambda _: raw), ("do", path)])
    bob = await play(agent, [BOB, RECALLED, saved("b"), ("send", ATTACKER, "tainted")])

    steps = await path(bob)
    assert AFTER in steps or ["altered"] in steps


@pytest.mark.parametrize("count", [0, 1, LIST_FIRST, LIST_LIMIT, LIST_LIMIT + 1, 3 * LIST_LIMIT])
async def test_of_what_is_counted_the_first_and_the_last_are_held(store, count):
    """In order; what was altered or deleted is told from what the bound let go."""
    seal, area = Seal(KEY), LabelSet("y", ("t",), "", ttl=0, limit=400)
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
