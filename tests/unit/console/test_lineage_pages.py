"""Lineage drawn from real state, and incidents opened, contained and undone on the pages."""

from __future__ import annotations

import json
import re

import pytest

from guard.adapters.redis.incidents import IncidentOperator
from guard.console.drawing import MOST, Node, draw
from guard.provenance.seal import Seal
from tests.guards import KEY
from tests.unit.propagation.test_incidents import HONEST, POISON, SUMMARY, spread
from tests.unit.provenance.agents import agent, guard, policy

__all__ = ["agent", "guard", "policy"]


@pytest.fixture
def sections():
    """The guard keeps the propagation graph."""
    return "propagation: {events: 1000}\n"


async def _opened(client, **form):
    answer = await client.post("/incidents", data={"tenant": "default", **form})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


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


async def test_an_incident_from_open_to_undo(console, agent, store):
    """The page shows what was touched; containing withholds it, undo gives it back."""
    await spread(agent)
    async with console.as_("approver") as client:
        path = await _opened(client, value="drop@evil.test", note="from the wiki")
        page = (await client.get(path)).text
        assert "from the wiki" in page
        assert page.count("saved in facts") >= 2
        await client.post(path, data={"act": "contain"})
        contained = (await client.get(path)).text
        operator = IncidentOperator(store, Seal(KEY))
        held = await operator._contained()
        answer = await client.post(path, data={"act": "undo", "step": "1"})
        again = await client.post(path, data={"act": "undo", "step": "1"})
        freed = await operator._contained()
        await client.post(path, data={"act": "close"})
        closed = await client.post(path, data={"act": "contain"})

    assert "1 contain" in contained
    assert (len(held) >= 2, freed) == (True, {})
    assert (answer.status_code, again.status_code, closed.status_code) == (303, 409, 409)
    lines = [json.loads(one) for one in console.log.read_text("utf-8").splitlines()]
    acts = [one for one in lines if one["event"] == "guard.incident"]
    assert [one["act"] for one in acts if "failed" not in one] == [
        "open", "contain", "undo", "undo", "close", "contain"
    ]  # fmt: skip
    assert {one["by"] for one in acts} == {"pat"}


async def test_what_is_asked_for_stands_in_no_url(console, agent):
    """Values and items are in the body of the form; pages are named by digests."""
    await spread(agent)
    async with console.as_("approver") as client:
        path = await _opened(client, value="drop@evil.test")
        page = (await client.get(path)).text
    links = re.findall(r'(?:href|action)="([^"]*)"', page)
    assert not [one for one in links if "drop" in one or "evil" in one]


async def test_a_viewer_opens_nothing(console, agent):
    """Whoever may look may not withhold."""
    await spread(agent)
    async with console.as_("viewer") as client:
        answer = await client.post("/incidents", data={"value": "drop@evil.test"})
        page = await client.get("/incidents")
    assert answer.status_code == 403
    assert "open-incident" not in page.text


@pytest.mark.parametrize("form", [{}, {"value": "nobody@nowhere.test"}, {"item": "x"}])
async def test_an_incident_about_nothing_is_not_opened(console, form):
    """The page says what is missing."""
    async with console.as_("approver") as client:
        answer = await client.post("/incidents", data={"tenant": "default", **form})
        page = await client.get("/incidents")
    assert answer.status_code == 409
    assert "/incidents/default/" not in page.text


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
