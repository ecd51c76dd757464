"""The feed: every decision once and in order; who does not keep up is sent away."""

from __future__ import annotations

import asyncio

import pytest

from guard.console.decisions import DecisionIndex
from guard.console.feed import BEHIND, Feed
from tests.unit.console.conftest import line


@pytest.fixture
async def feed(log):
    """A feed that follows the log."""
    index = DecisionIndex(log)
    found = Feed(index, lambda row: f"<tr>{row['decision']}</tr>")
    task = asyncio.get_running_loop().create_task(found.follow())
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    index.close()


async def _read(events, count):
    """Return the ids of the next so many decisions."""
    ids: list[int] = []
    async with asyncio.timeout(60):
        async for data in events:
            ids += [int(one[4:]) for one in data.split(b"\n") if one.startswith(b"id: ")]
            if len(ids) >= count:
                return ids
    return ids


async def test_a_browser_that_comes_back_gets_what_it_missed_once(feed, log):
    """After the last id that it saw, from the index and then live, nothing twice."""
    first = feed.events(0, lambda: True)
    assert await _read(first, 3) == [1, 2, 3]
    await first.aclose()
    with log.open("a", encoding="utf-8") as file:
        file.write(line(3) + line(4))
    again = feed.events(3, lambda: True)
    assert await _read(again, 2) == [4, 5]
    await again.aclose()


async def test_a_browser_that_does_not_read_is_sent_away(feed):
    """Its batches are let go, and its stream ends; another one's goes on."""
    slow, good = feed.events(None, lambda: True), feed.events(None, lambda: True)
    assert (await anext(slow)).startswith(b"retry")
    assert (await anext(good)).startswith(b"retry")
    for number in range(BEHIND + 1):
        feed._tell(f"id: {number}\n\n".encode())
        assert await anext(good) == f"id: {number}\n\n".encode()

    assert feed.dropped == 1
    assert [data async for data in slow] == []
    await good.aclose()


async def test_the_feed_ends_with_the_session(feed):
    """Who signs out sees no further decision."""
    events = feed.events(None, lambda: False)
    await anext(events)
    feed._tell(b"id: 1\n\n")
    assert [data async for data in events] == []
