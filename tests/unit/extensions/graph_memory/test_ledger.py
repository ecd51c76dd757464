"""The structural ledger: two graphs of one sequence of writes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.core.model import Integrity
from guard.extensions.graph_memory.ledger import (
    Change,
    Ledger,
    LedgerReader,
    Write,
    Writer,
    ledger_set,
    pack,
    seal_writes,
    unpack,
)
from guard.provenance.seal import KEY_BYTES, Seal

US = Writer("curator", label=Integrity.ADVISORY)
PEER = Writer("peer", label=Integrity.ADVISORY)


def ledger(*writes, duplicates_add=True):
    """Return the ledger of some writes, of which the curator's count."""
    found = Ledger(lambda writer: writer.principal == "curator", duplicates_add=duplicates_add)
    found.extend(writes)
    return found


def edges(made, graph):
    """Return the edges of a graph by the names of their ends."""
    names = made.names
    ends = zip(graph.source.tolist(), graph.target.tolist(), graph.weight.tolist(), strict=True)
    return sorted((names[a], names[b], w) for a, b, w in ends)


def edge(one, two, by=US, weight=1.0, **more):
    """Return a write of one edge."""
    return Write(Change.EDGE, one, two, "r", weight, writer=by, **more)


def merge(one, two, by=US):
    """Return a write that makes two nodes one."""
    return Write(Change.MERGE, one, two, writer=by)


def gone(one, two="", by=PEER):
    """Return a write that takes an edge or a node away."""
    return Write(
        Change.DELETE_EDGE if two else Change.DELETE_NODE, one, two, "r" * bool(two), writer=by
    )


AB, BC, CD, AD = (("a", "b", 1.0), ("b", "c", 1.0), ("c", "d", 1.0), ("a", "d", 1.0))


@pytest.mark.parametrize(
    ("writes", "full", "authentic"),
    [
        pytest.param(
            [edge("a", "b"), edge("b", "c"), edge("a", "d", PEER)],
            [AB, AD, BC],
            [AB, BC],
            id="an edge of a stranger between authenticated nodes",
        ),
        pytest.param(
            [edge("a", "b"), edge("b", "c"), gone("b", "c"), gone("a")],
            [],
            [AB, BC],
            id="deletions by a stranger",
        ),
        pytest.param(
            [edge("a", "b"), edge("c", "d"), merge("a", "c", PEER)],
            [AB, AD],
            [AB, CD],
            id="a merge by a stranger",
        ),
        pytest.param(
            [edge("a", "b"), merge("a", "c"), merge("c", "a")], [AB], [AB], id="merges in a circle"
        ),
        pytest.param([edge("a", "b"), edge("a", "b")], [AB, AB], [AB, AB], id="written again"),
        pytest.param(
            [edge("a", "a"), edge("b", "c")],
            [("a", "a", 1.0), BC],
            [("a", "a", 1.0), BC],
            id="loops and undeclared ends",
        ),
        pytest.param(
            [edge("bank", "b"), edge("b\N{CYRILLIC SMALL LETTER A}nk", "b", PEER)],
            [("bank", "b", 1.0), ("b\N{CYRILLIC SMALL LETTER A}nk", "b", 1.0)],
            [("bank", "b", 1.0)],
            id="names that look alike",
        ),
    ],
)
def test_a_ledger_makes_two_graphs(writes, full, authentic):
    """A write has the integrity of its writer, not of the nodes that it names."""
    made = ledger(*writes)
    assert edges(made, made.full) == full
    assert edges(made, made.authentic) == authentic


@pytest.mark.parametrize(
    "writes",
    [
        pytest.param([edge("a", "b", PEER), edge("a", "b")], id="a stranger wrote it first"),
        pytest.param([edge("a", "b"), edge("a", "b")], id="written again"),
        pytest.param(
            [edge("a", "b"), gone("a", by=US), edge("a", "b"), edge("a", "b")], id="deleted between"
        ),
    ],
)
def test_where_duplicates_are_skipped_an_edge_counts_once(writes):
    """The reference server skips it, HippoRAG's stores add it."""
    made = ledger(*writes, duplicates_add=False)
    assert edges(made, made.full) == edges(made, made.authentic) == [AB]


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 1e10])
@pytest.mark.parametrize("by", [PEER, US], ids=["peer", "us"])
def test_an_edge_whose_weight_is_none_is_in_no_graph(weight, by):
    """It is counted, whoever wrote it; all others stay."""
    made = ledger(edge("a", "b"), edge("a", "c", by, weight))
    assert edges(made, made.full) == edges(made, made.authentic) == [AB]
    assert made.ignored == 1


OTHER = Writer("other", label=Integrity.ADVISORY)


@pytest.mark.parametrize(
    ("writes", "writers", "without", "duplicates_add"),
    [
        pytest.param(
            [edge("a", "b"), edge("a", "c", PEER), edge("a", "d", OTHER)],
            [OTHER, PEER],
            [AB, AD],
            True,
            id="newest first",
        ),
        pytest.param(
            [edge("a", "b"), edge("c", "d"), gone("a", "b"), merge("a", "c", PEER)],
            [PEER],
            [AB, CD],
            True,
            id="what was taken away or made one is there again",
        ),
        pytest.param(
            [edge("a", "b", PEER), edge("a", "b")],
            [PEER],
            [AB],
            False,
            id="of two edges that count once the second is there",
        ),
    ],
)
def test_who_wrote_what_does_not_count_is_known(writes, writers, without, duplicates_add):
    """And the graph without the peer's writes."""
    made = ledger(*writes, duplicates_add=duplicates_add)
    found = made.uncounted_by_writer()
    graph, root = made.without(found[PEER])
    assert list(found) == writers
    assert edges(made, graph) == without
    assert root(made.number("b")) == made.number("b")


names = st.sampled_from("abcd")
written = st.tuples(
    st.sampled_from([US, PEER]),
    st.sampled_from([Change.NODE, Change.NODE, Change.EDGE]),
    names,
    names,
    st.lists(names, max_size=2, unique=True),
)


def counted_by_closure(writes):
    """Return which of some writes count: the least over what each was derived from, to the end.

    A reference that works it out from all writes at once: what had nothing it could be derived from
    when it was written never counts, and what rests on something that does not falls with it.
    """
    found = []
    for at, write in enumerate(writes):
        known = {one.one for one in writes[:at] if one.change is Change.NODE}
        found.append(write.writer is US and known.issuperset(write.parents))
    while True:
        good = {
            name: all(
                ok
                for ok, one in zip(found, writes, strict=True)
                if (one.change, one.one) == (Change.NODE, name)
            )
            for name in "abcd"
        }
        after = [
            ok and all(good[parent] for parent in one.parents)
            for ok, one in zip(found, writes, strict=True)
        ]
        if after == found:
            return found
        found = after


@settings(max_examples=300, deadline=None)
@given(st.lists(written, max_size=14))
def test_what_counts_is_the_least_over_the_derivation_whatever_the_order(rows):
    """Circles, texts that strangers write to later, and what was never there."""
    writes = [
        Write(change, one, two if change is Change.EDGE else "", writer=by, parents=tuple(parents))
        for by, change, one, two, parents in rows
    ]
    made = ledger(*writes)
    counted = counted_by_closure(writes)
    assert [made.is_counted(number) for number in range(len(writes))] == counted
    kept = [w for w, ok in zip(writes, counted, strict=True) if ok and w.change is Change.EDGE]
    assert edges(made, made.authentic) == sorted((w.one, w.two, 1.0) for w in kept)


def test_without_the_derivation_the_text_of_a_stranger_would_count():
    """What the rule stops: the same edge, with no word of what it was made of."""
    episode = Write(Change.NODE, "episode", item=True, writer=PEER)
    for parents, found in ((("episode",), []), ((), [AB])):
        made = ledger(episode, edge("a", "b", parents=parents))
        assert edges(made, made.authentic) == found


texts = st.text(max_size=20)


@given(
    st.builds(
        Write,
        st.sampled_from(Change),
        texts,
        texts,
        texts,
        st.floats(allow_nan=False),
        st.booleans(),
        st.builds(
            Writer,
            texts,
            st.binary(min_size=8, max_size=8),
            st.integers(-1, 2**31),
            st.floats(allow_nan=False),
            texts,
            st.sampled_from(Integrity),
        ),
        st.lists(texts, max_size=3).map(tuple),
    )
)
def test_a_write_is_what_was_packed(write):
    """Every field comes back."""
    assert unpack(pack(write)) == write


@given(st.binary(max_size=80))
def test_bytes_that_are_no_write_are_refused(body):
    """Whatever lies in the store."""
    try:
        unpack(body)
    except ValueError:
        return
    assert pack(unpack(body))


def test_an_entry_is_read_once_and_only_where_it_was_sealed():
    """Altered, moved to another ledger, or stored twice: a gap, and no write."""
    seal = Seal(b"k" * KEY_BYTES)
    area, other = ledger_set("t", "graph"), ledger_set("t", "elsewhere")
    entries = seal_writes(seal, area, "call", [edge("a", "b"), edge("a", "b")])
    reader = LedgerReader(seal, area)
    assert len(list(reader.read(entries))) == 2
    assert reader.faults == 0
    assert list(reader.read([entries[0], entries[1][:-1] + b"x", None])) == []
    assert reader.faults == 3
    assert list(LedgerReader(seal, other).read(entries)) == []


def test_a_long_chain_of_merges_is_walked_once():
    """Whoever writes many of them makes no graph cost the square of their number."""
    size = 2000
    merges = [Write(Change.MERGE, f"n{n + 1}", f"n{n}", writer=PEER) for n in range(size)]
    made = ledger(edge("a", "n0"), *merges)
    assert edges(made, made.full) == [("a", f"n{size}", 1.0)]
    assert set(made._full.alias.values()) == {made.number(f"n{size}")}


def test_what_a_stranger_took_away_is_known_until_somebody_who_counts_writes_it_again():
    """A node that was deleted, or merged into another one."""
    made = ledger(Write(Change.NODE, "a", item=True, writer=US), edge("a", "b"))
    assert not made.taken
    made.extend([Write(Change.DELETE_NODE, "a", writer=US)])
    assert not made.taken
    for taken in (
        Write(Change.DELETE_NODE, "a", writer=PEER),
        Write(Change.MERGE, "b", "a", writer=PEER),
        Write(Change.DELETE_NODE, "never seen", writer=PEER),
    ):
        made.extend([taken])
        assert made.taken
        made.extend([Write(Change.NODE, taken.two or taken.one, item=True, writer=PEER)])
        assert made.taken
        made.extend([Write(Change.NODE, taken.two or taken.one, item=True, writer=US)])
        assert not made.taken


def test_a_node_is_authentic_where_anything_that_counts_names_it():
    """To take it away is no naming."""
    made = ledger(edge("a", "b"), edge("b", "c", PEER), Write(Change.DELETE_NODE, "c", writer=US))
    assert [made.is_authentic(made.number(name)) for name in "abc"] == [True, True, False]
    assert [made.introduced(made.number(name)) for name in "abc"] == [0, 0, 1]


def test_the_calls_since_a_time_are_told_newest_first():
    """Each with all of its writes, up to a number of calls."""
    rows = [("one", 1.0), ("one", 1.0), ("two", 2.0), ("three", 3.0), ("three", 3.0)]
    made = ledger(*(edge("a", "b", Writer(who, at=at)) for who, at in rows))
    assert list(made.calls_since(2.0, 8)) == [[4, 3], [2]]
    assert list(made.calls_since(0.0, 2)) == [[4, 3], [2]]
    assert list(made.calls_since(4.0, 8)) == []
