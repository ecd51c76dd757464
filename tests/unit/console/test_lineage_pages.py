"""Lineage drawn from real state."""

from __future__ import annotations

import re

import pytest

from guard.console.drawing import MOST, Node, draw
from tests.unit.propagation.test_incidents import HONEST, POISON, SUMMARY, spread
from tests.unit.provenance.agents import agent, guard, policy

__all__ = ["agent", "guard", "policy"]


@pytest.fixture
def sections():
    """The guard keeps the propagation graph."""
    return "propagation: {events: 1000}\n"


async def test_a_value_is_drawn_from_where_it_was_read_to_where_it_went(console, agent):
    """Read, saved, recalled, saved again: each is a box, and leads to its own page."""
    await spread(agent)
    async with console.as_("viewer") as client:
        page = await client.post("/lineage", data={"value": "drop@evil.test"})
        nodes = re.findall(r'href="(/lineage/default/[0-9a-f]+)"', page.text)
        each = [(await client.get(path)).status_code for path in nodes]

    assert "read in untrusted text" in page.text
    assert page.text.count("saved in facts") >= 2
    assert len(nodes) == 2
    assert set(each) == {200}


async def test_an_items_lineage_leaves_others_out(console, agent):
    """What carol saved has nothing to do with it."""
    await spread(agent)
    async with console.as_("viewer") as client:
        page = await client.post("/lineage", data={"item": "meeting", "store": "facts"})
    assert "item meeting of facts" in page.text
    assert "the agent&#39;s own words" in page.text
    assert 'class="node untrusted"' not in page.text


@pytest.mark.parametrize("path", ["/lineage/default/zz", "/lineage/default/00ff"])
async def test_a_node_that_is_none_is_an_error(console, path):
    """Neither a wrong name nor an unknown one breaks the page."""
    async with console.as_("viewer") as client:
        assert (await client.get(path)).status_code in {400, 409}


def test_texts_of_the_corpus_are_what_they_are():
    """The poison and its summary name the address, the honest text does not."""
    assert "drop@evil.test" in POISON
    assert "drop@evil.test" in SUMMARY
    assert "evil" not in HONEST


def test_a_picture_has_its_boxes_apart_and_says_what_it_leaves_out():
    """No two boxes overlap, arrows join what is drawn, the nearest are kept."""
    nodes = [
        Node(f"n{n}", n // 3, "a title that is longer than any box is wide", "note", "x")
        for n in range(200)
    ]
    edges = [(f"n{n}", f"n{n + 3}", "value") for n in range(197)]
    picture = draw(nodes, edges)
    places = {(box.x, box.y) for box in picture.boxes}

    assert (len(picture.boxes), picture.left_out, len(places)) == (MOST, 200 - MOST, MOST)
    assert all(0 <= box.x < picture.width and 0 <= box.y < picture.height for box in picture.boxes)
    assert len(picture.arrows) == MOST - 3
    assert all(len(box.title) < 36 for box in picture.boxes)
