"""What an incident reached, on a graph whose answer is known: each thing that a scope tells."""

from dataclasses import replace

import pytest

from guard.core.model import Integrity
from guard.extensions.propagation.events import Edge, Event, EventKind, Flag, pack_event
from guard.extensions.propagation.evidence import Kind, Tier
from guard.extensions.propagation.graph import Graph
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


RULE, CAUSE, GOOD, COPY, ALIKE, NEXT, MAIL, NOTE, ASKED, SEEN, AFTER = (
    2,
    0,
    1,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
)


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


def test_a_scope_tells_hops_depth_coverage_and_agents(scope):
    """Of what was saved since the first root, four of five; three hops to the mail."""
    assert {one.reached.place: one.reached.hops for one in scope.items} == {
        RULE: 0, COPY: 1, ALIKE: 1, NEXT: 2,
    }  # fmt: skip
    assert (scope.depth, scope.mean_hops, scope.coverage) == (3, pytest.approx(4 / 3), 4 / 5)
    assert set(scope.agents) == {b"princip%d" % number for number in (2, 3, 4, 5)}


def test_a_scope_tells_what_left_what_was_asked_and_who_was_exposed(graph, scope):
    """A send within and one to the outside; what was saved after a recall is one step out."""
    counts = scope_document(graph, scope)["counts"]

    assert {one.reached.place for one in scope.sends} == {MAIL, NOTE}
    assert (counts["sends"], counts["sends_outside"]) == (2, 1)
    assert [one.reached.place for one in scope.asked] == [ASKED]
    assert scope.exposed == {AFTER: SEEN}


def test_a_scope_tells_the_cause_the_cut_and_what_is_not_known(graph, scope):
    """Where it came from, the one item without which nothing had left, what is missing."""
    [cause] = scope_document(graph, scope)["root_cause"]

    assert scope.causes == (CAUSE,)
    assert (cause["read_in_call"], cause["read_by_tool"]) == (3, "fetch")
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
