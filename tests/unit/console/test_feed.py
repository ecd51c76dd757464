"""The feed: every decision once and in order; who does not keep up is sent away."""

from __future__ import annotations

import asyncio

import pytest

from guard.console.decisions import DecisionIndex
from guard.console.feed import BEHIND, DEGRADED, RESTORED, STALE, Feed
from guard.console.pages import Templates
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


async def test_what_another_console_takes_in_is_told_here_too(feed, log):
    """Two consoles share an index: the browsers of both get every decision once, in order."""
    events = feed.events(0, lambda: True)
    assert await _read(events, 3) == [1, 2, 3]
    beside = DecisionIndex(log)
    lock = feed._index._lock
    with lock:  # Ours waits, so that the other one is first.
        with log.open("a", encoding="utf-8") as file:
            file.write(line(3) + line(4))
        assert len(beside.take_in()) == 2
    with log.open("a", encoding="utf-8") as file:
        file.write(line(5))
    assert await _read(events, 3) == [4, 5, 6]
    await events.aclose()
    beside.close()


async def test_more_than_can_be_told_is_told_as_that(feed, log, monkeypatch):
    """A browser loads its page anew where another console took in more than a page can make up."""
    events = feed.events(0, lambda: True)
    assert await _read(events, 3) == [1, 2, 3]
    monkeypatch.setattr("guard.console.feed.MISSED", 1)
    with feed._index._lock:
        with log.open("a", encoding="utf-8") as file:
            file.write(line(3) + line(4))
        beside = DecisionIndex(log)
        beside.take_in()
        beside.close()
    async with asyncio.timeout(60):
        assert await anext(events) == STALE
    await events.aclose()


def test_what_a_client_chose_cannot_leave_its_place_in_a_row():
    """Ids, names and reasons are escaped or quoted, and no row has a line's end."""
    hostile = '"><script>x</script>\n&'
    row = {
        "id": 1,
        "at": 0.0,
        "milliseconds": 1,
        "decision": hostile,
        "reasons": [{"detail": hostile}],
        **dict.fromkeys(("enforced", "tool", "principal", "session"), hostile),
    }
    text = Templates().row(row)
    assert "<script>" not in text
    assert "\n" not in text
    assert '<a href="/decisions/%22%3E%3Cscript%3Ex%3C%2Fscript%3E%0A%26">1970-01-01' in text


class Fragile:
    """An index of which any part can be made to fail, for a while."""

    def __init__(self, index):
        self._index = index
        self.fails = {}

    def __getattr__(self, name):
        found = getattr(self._index, name)
        if not callable(found):
            return found

        def tried(*args, **options):
            if name in self.fails:
                raise self.fails[name]
            return found(*args, **options)

        return tried


@pytest.fixture
async def fragile(log, monkeypatch):
    """A feed on an index that can fail, and a list that grows with each error."""
    monkeypatch.setattr("guard.console.feed.RETRY_SECONDS", 0.05)
    index, errors = DecisionIndex(log), []
    broken = Fragile(index)
    found = Feed(broken, lambda row: f"<tr>{row['decision']}</tr>", lambda: errors.append(1))
    task = asyncio.get_running_loop().create_task(found.follow())
    yield found, broken, errors
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    index.close()


@pytest.mark.parametrize("part", ["has_news", "take_in", "page"])
@pytest.mark.parametrize("error", [OSError("gone"), KeyError("x"), RuntimeError("thread")])
async def test_an_error_degrades_the_feed_and_does_not_end_it(fragile, log, part, error):
    """It is counted, browsers are told, and what came meanwhile is shown once it is over."""
    feed, broken, errors = fragile
    events = feed.events(0, lambda: True)
    assert await _read(events, 3) == [1, 2, 3]
    broken.fails[part] = error
    if part == "page":
        # It is asked where another console has taken in what is new.
        with feed._index._lock:
            with log.open("a", encoding="utf-8") as file:
                file.write(line(3))
            beside = DecisionIndex(log)
            beside.take_in()
            beside.close()
    with log.open("a", encoding="utf-8") as file:
        file.write(line(4))
    told = []
    async with asyncio.timeout(60):
        while DEGRADED not in told:
            told.append(await anext(events))
        assert errors
        assert type(error).__name__ in feed.error
        broken.fails.clear()
        while RESTORED not in told:
            told.append(await anext(events))
    assert not feed.error
    shown = b"".join(told)
    assert b"id: 4" in shown or STALE in told
    await events.aclose()


async def test_a_browser_that_comes_while_the_feed_is_degraded_is_told_so(fragile):
    """Its page may have been loaded before."""
    feed, broken, errors = fragile
    broken.fails["has_news"] = OSError("gone")
    async with asyncio.timeout(60):
        while not errors:  # noqa: ASYNC110  (the feed tells nobody)
            await asyncio.sleep(0)
        events = feed.events(None, lambda: True)
        assert (await anext(events)).startswith(b"retry")
        assert await anext(events) == DEGRADED
    await events.aclose()
