"""Reach, exposure, the cut and the scope of an incident, on graphs whose answer is known."""

from dataclasses import replace

import igraph
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.model import Integrity
from guard.extensions.propagation.events import (
    Edge,
    Event,
    EventKind,
    Flag,
    pack_event,
    unpack_event,
)
from guard.extensions.propagation.evidence import Kind, Tier
from guard.extensions.propagation.graph import Adjacency, Graph
from guard.extensions.propagation.scope import scope_document, scope_of, without_items

SAVED = Event(
    what=EventKind.SAVE,
    node=bytes(8),
    label=Integrity.UNTRUSTED,
    call=0,
    at=0.0,
    session=b"session0",
    principal=b"princip0",
    place=bytes(12),
    tool="save",
    store="facts",
)


def node(number):
    """Return the id of a numbered node."""
    return number.to_bytes(8, "big")


def event(number, *parents, by=0, **more):
    """Return the body of a numbered event; it follows from others by a run, if not said."""
    edges = [one if isinstance(one, Edge) else Edge(node(one), Kind.RUN) for one in parents]
    made = replace(
        SAVED,
        node=node(number),
        call=number,
        at=float(number),
        session=b"session%d" % by,
        principal=b"princip%d" % by,
        place=b"place%07d" % number,
        edges=tuple(edges),
    )
    return pack_event(replace(made, **more))


def test_an_event_is_read_as_it_was_written():
    """Packing loses nothing but what is beyond its bounds."""
    made = replace(
        SAVED,
        what=EventKind.SEND,
        place=b"i" * 12,
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


def test_what_cites_itself_or_the_future_gets_no_edge():
    """A record that an attacker shapes cannot make a cycle, nor blame an earlier item."""
    graph = Graph([event(0, 0, 1), event(1, 1)])

    assert [(one.place, one.hops) for one in graph.reach([1])] == [(1, 0)]
    assert len(graph.sources) == 0


def test_a_node_behind_resemblance_is_likely_unless_a_sure_path_leads_there():
    """The tier is that of the best path."""
    likely = Edge(node(0), Kind.RESEMBLANCE)
    graph = Graph([event(0), event(1, likely), event(2, 1), event(3, likely, 0)])

    assert {one.place: one.tier for one in graph.reach([0])} == {
        0: Tier.CONFIRMED,
        1: Tier.LIKELY,
        2: Tier.LIKELY,
        3: Tier.CONFIRMED,
    }


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=120),
    st.sets(st.integers(0, 30), min_size=1, max_size=3),
)
def test_reach_over_arrays_is_breadth_first_search(edges, roots):
    """Cycles and self-loops included, the hops are those of igraph."""
    ends = np.array(edges, dtype=np.int32).reshape(-1, 2)
    adjacency = Adjacency.of(31, ends[:, 0], ends[:, 1])
    other = igraph.Graph(n=31, edges=edges, directed=True)
    expected = np.min(other.distances(source=sorted(roots)), axis=0)

    hops = adjacency.reach(np.array(sorted(roots), dtype=np.int32))

    assert hops.tolist() == np.where(np.isinf(expected), -1, expected).tolist()


CAUSE, GOOD, RULE, COPY, ALIKE, NEXT, MAIL, NOTE, ASKED, SEEN, AFTER = range(11)


@pytest.fixture
def graph():
    """Return what followed from a rule that a page had brought in the place of a good version."""
    rule = {"place": b"the rule....", "root": 17, "root_tool": "read", "origin": b"o" * 12}
    return Graph(
        [
            event(CAUSE, by=1, root=3, root_tool="fetch"),
            event(GOOD, place=b"the rule....", label=Integrity.ADVISORY, runs=(b"good00",)),
            event(RULE, CAUSE, by=2, runs=(b"poison",), **rule),
            event(COPY, RULE, by=3, runs=(b"copied",)),
            event(ALIKE, Edge(node(RULE), Kind.RESEMBLANCE), by=3),
            event(NEXT, COPY, by=4),
            event(MAIL, NEXT, by=4, what=EventKind.SEND, flags=Flag.OUTSIDE),
            event(NOTE, COPY, by=3, what=EventKind.SEND),
            event(ASKED, COPY, by=5, what=EventKind.ASKED),
            event(SEEN, by=6, what=EventKind.RECALL, runs=(b"copied",)),
            event(AFTER, by=6),
        ],
        missing=2,
        altered=1,
    )


@pytest.fixture
def scope(graph):
    """Return what the rule has reached."""
    return scope_of(graph, [RULE])


def test_items_stand_by_tier_and_then_by_what_carries_on(scope):
    """R is 0.5 P + 0.3 spread + 0.2 conflict, each as the graph has it."""
    assert [(one.reached.place, one.reached.tier, one.priority) for one in scope.items] == [
        (RULE, Tier.CONFIRMED, pytest.approx(0.5 + 0.3 + 0.2)),
        (COPY, Tier.CONFIRMED, pytest.approx(0.5 + 0.3 * 2 / 3, abs=1e-6)),
        (NEXT, Tier.CONFIRMED, pytest.approx(0.5 + 0.3 * 1 / 3, abs=1e-6)),
        (ALIKE, Tier.LIKELY, pytest.approx(0.5 * 0.6)),
    ]
    assert [one.reached.place for one in scope.nodes(Tier.CONFIRMED)] == [RULE, COPY, NEXT]


def test_a_scope_tells_what_was_reached_what_left_and_what_is_not_known(graph, scope):
    """Hops, depth, coverage, agents, sends, exposure, the cause, the cut and gaps."""
    document = scope_document(graph, scope)
    counts, [cause] = document["counts"], document["root_cause"]

    assert {one.reached.place: one.reached.hops for one in scope.items} == {
        RULE: 0, COPY: 1, ALIKE: 1, NEXT: 2,
    }  # fmt: skip
    assert (scope.depth, scope.mean_hops, scope.coverage) == (3, pytest.approx(4 / 3), 4 / 5)
    assert set(scope.agents) == {b"princip%d" % number for number in (2, 3, 4, 5)}
    assert {one.reached.place for one in scope.sends} == {MAIL, NOTE}
    assert (counts["sends"], counts["sends_outside"]) == (2, 1)
    assert [one.reached.place for one in scope.asked] == [ASKED]
    assert scope.exposed == {AFTER: SEEN}
    assert (scope.causes, cause["read_in_call"], cause["read_by_tool"]) == ((CAUSE,), 3, "fetch")
    assert scope.cut == (COPY,)
    assert scope.unknown == {"events_missing": 2, "events_altered": 1}


def test_a_scope_upwards_is_what_something_follows_from(graph):
    """From the mail back to the page; nothing else that the rule led to."""
    scope = scope_of(graph, [MAIL], up=True)

    assert {one.reached.place for one in (*scope.items, *scope.sends)} == {
        MAIL, NEXT, COPY, RULE, CAUSE,
    }  # fmt: skip


def test_what_a_person_has_cleared_is_no_item_any_more(graph):
    """And the others stay."""
    left = without_items(scope_of(graph, [RULE]), {node(COPY).hex()})

    assert {one.reached.place for one in left.items} == {RULE, ALIKE, NEXT}
