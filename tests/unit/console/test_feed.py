"""The feed: every decision once and in order; errors degrade it and do not end it."""

import asyncio
from unittest.mock import Mock

import pytest

from guard.console.decisions import DEGRADED, RESTORED, DecisionIndex, Feed
from guard.console.templating import Templates
from tests.unit.console.conftest import line


@pytest.fixture
async def feed(log, monkeypatch):
    """A feed that follows the log, on an index of its own."""
    monkeypatch.setattr("guard.console.decisions.RETRY_SECONDS", 0.05)
    index = DecisionIndex(log)
    found = Feed(index, lambda row: f"<tr>{row['decision']}</tr>")
    task = asyncio.get_running_loop().create_task(found.follow())
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    index.close()


def _add(log, *numbers):
    with log.open("a", encoding="utf-8") as file:
        file.writelines(map(line, numbers))


async def _read(events, count):
    """Return the ids of the next decisions."""
    async with asyncio.timeout(60):
        return [int((await anext(events)).id) for _ in range(count)]


async def test_the_feed_ends_with_the_session(feed):
    """A person who signed out sees no further decision."""
    assert [one async for one in feed.events(0, lambda: False)] == []


@pytest.mark.parametrize("part", ["has_news", "take_in"])
@pytest.mark.parametrize("error", [OSError("gone"), KeyError("x")])
async def test_an_error_degrades_the_feed_and_does_not_end_it(feed, log, monkeypatch, part, error):
    """Browsers are notified, and see later decisions once it is over."""
    events = feed.events(0, lambda: True)
    assert await _read(events, 3) == [1, 2, 3]
    async with asyncio.timeout(60):
        with monkeypatch.context() as patch:
            patch.setattr(feed._index, part, Mock(side_effect=error))
            _add(log, 3)
            assert await anext(events) is DEGRADED
            late = feed.events(3, lambda: True)
            assert await anext(late) is DEGRADED
            assert type(error).__name__ in feed.error
        found = [await anext(events) for _ in range(2)]
    assert (RESTORED in found, [one.id for one in found if one.id]) == (True, ["4"])
    await events.aclose()
    await late.aclose()


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
