"""Reach, its way back, exposure and the cut, on graphs whose answer is known."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from guard.core.model import Integrity
from guard.extensions.propagation.events import Edge, Event, EventKind, pack_event, unpack_event
from guard.extensions.propagation.evidence import Kind, Tier
from guard.extensions.propagation.graph import Adjacency, Graph


def node(number):
    """Return the id of a numbered node."""
    return number.to_bytes(8, "big")


def event(number, parents=(), *, what=EventKind.SAVE, session=b"s" * 8, values=(), kind=Kind.RUN):
    """Return the body of an event that follows from others."""
    edges = tuple(
        Edge(node(one), kind) if isinstance(one, int) else Edge(node(one[0]), one[1])
        for one in parents
    )
    return pack_event(
        Event(
            what=what,
            node=node(number),
            label=Integrity.UNTRUSTED,
            call=number,
            at=float(number),
            session=session,
            principal=b"p" * 8,
            place=bytes(12),
            tool="save",
            store="facts",
            edges=edges,
            values=values,
        )
    )


def numbers(reached):
    """Return the nodes of a reach with their hops."""
    return {one.place: one.hops for one in reached}


def test_an_event_is_read_as_it_was_written():
    """Packing loses nothing but what is beyond its bounds."""
    made = Event(
        what=EventKind.SEND,
        node=b"n" * 8,
        label=Integrity.ADVISORY,
        call=7,
        at=1_700_000_000.0,
        session=b"s" * 8,
        principal=b"p" * 8,
        place=b"i" * 12,
        tool="send_email",
        store="",
        server=b"v" * 8,
        origin=b"o" * 12,
        root=3,
        root_tool="rag_query",
        flags=3,
        edges=(Edge(b"a" * 8, Kind.VALUE), Edge(b"b" * 8, Kind.RESEMBLANCE)),
        values=(b"value1value1",),
        runs=(b"passa1", b"passa2"),
        wholes=(b"whole1",),
    )

    assert unpack_event(pack_event(made)) == made


def test_a_node_behind_resemblance_is_likely_unless_a_sure_path_leads_there():
    """The tier is that of the best path."""
    likely = (0, Kind.RESEMBLANCE)
    graph = Graph([event(0), event(1, [likely]), event(2, [1]), event(3, [likely, 0])])

    assert {one.place: one.tier for one in graph.reach([0])} == {
        0: Tier.CONFIRMED,
        1: Tier.LIKELY,
        2: Tier.LIKELY,
        3: Tier.CONFIRMED,
    }


def test_what_cites_itself_or_the_future_gets_no_edge():
    """A record that an attacker shapes cannot make a cycle, nor blame an earlier item."""
    graph = Graph([event(0, [0, 1]), event(1, [1])])

    assert numbers(graph.reach([1])) == {1: 0}
    assert len(graph.sources) == 0


def test_an_edge_from_a_node_that_is_gone_is_counted():
    """What was dropped shows as a gap."""
    assert Graph([event(5, [4])], missing=4).lost == 1


def test_exposure_is_one_step_out_and_not_followed():
    """Who recalled a reached item and then wrote is listed; what followed from that is not."""
    graph = Graph(
        [
            event(0, values=(b"mark00mark00",)),
            event(1, what=EventKind.RECALL, session=b"t" * 8, values=(b"mark00mark00",)),
            event(2, session=b"t" * 8),
            event(3, [2], session=b"u" * 8),
        ]
    )

    assert numbers(graph.reach([0])) == {0: 0}
    assert graph.exposed({0}) == {2: 1}


def test_the_cut_is_the_node_on_every_way():
    """Two paths that meet in one node are cut there; paths that never meet are not."""
    graph = Graph([event(0), event(1, [0]), event(2, [0]), event(3, [1, 2]), event(4, [3])])

    assert graph.cut({0}, {4}) == [3]
    assert graph.cut({0}, {1, 4}) is None
    assert graph.cut({0}, {3}) is None
    assert graph.cut({3}, {0}) is None


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=120),
    st.sets(st.integers(0, 30), min_size=1, max_size=3),
)
def test_reach_over_arrays_is_breadth_first_search(edges, roots):
    """Cycles and self-loops included, the hops are those of the textbook's search."""
    count = 31
    after = {}
    for one, other in edges:
        after.setdefault(one, []).append(other)
    expected = dict.fromkeys(roots, 0)
    level = list(roots)
    while level:
        level = [n for one in level for n in after.get(one, ()) if expected.setdefault(n, -1) == -1]
        depth = max(expected.values()) + 1
        for one in set(level):
            expected[one] = depth
        level = list(set(level))
    ends = np.array(edges, dtype=np.int32).reshape(-1, 2)
    hops = Adjacency.of(count, ends[:, 0], ends[:, 1]).reach(
        np.array(sorted(roots), dtype=np.int32)
    )

    assert {n: int(h) for n, h in enumerate(hops) if h >= 0} == expected
