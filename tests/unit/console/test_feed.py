"""Following the log: errors show and do not end it; rows escape what clients chose."""

import asyncio

import pytest

from guard.console.decisions import DecisionIndex, follow
from guard.console.templating import Templates
from tests.unit.console.conftest import line


class Fragile:
    """An index of which any part can be made to fail, for a while."""

    def __init__(self, index):
        self._index = index
        self.fails = {}
        self.error = ""

    def __getattr__(self, name):
        found = getattr(self._index, name)
        if not callable(found):
            return found

        def tried(*args, **options):
            if name in self.fails:
                raise self.fails[name]
            return found(*args, **options)

        return tried


async def _until(condition):
    while not condition():  # noqa: ASYNC110  (a log has no event)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("part", ["has_news", "take_in"])
@pytest.mark.parametrize("error", [OSError("gone"), KeyError("x")])
async def test_an_error_shows_and_does_not_end_the_following(log, monkeypatch, part, error):
    """Later decisions are taken in once it is over."""
    monkeypatch.setattr("guard.console.decisions.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("guard.console.decisions.POLL_SECONDS", 0.01)
    index, failures = Fragile(DecisionIndex(log)), []
    index.fails[part] = error
    task = asyncio.get_running_loop().create_task(follow(index, lambda: failures.append(1)))
    async with asyncio.timeout(60):
        await _until(lambda: len(failures) > 1)
        assert type(error).__name__ in index.error
        with log.open("a", encoding="utf-8") as file:
            file.write(line(3))
        index.fails.clear()
        await _until(lambda: not index.error and len(index.page({})) == 4)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    index.close()


def test_what_a_client_chose_cannot_leave_its_place_in_a_row():
    """Ids, names and reasons are escaped or quoted."""
    hostile = '"><script>x</script>\n&'
    row = {
        "id": 1,
        "at": 0.0,
        "milliseconds": 1,
        "decision": hostile,
        "reasons": [{"detail": hostile}],
        **dict.fromkeys(("enforced", "tool", "principal", "session"), hostile),
    }
    text = Templates().environment.get_template("live.html.jinja").render(decisions=[row])
    assert "<script>" not in text
    assert 'href="/decisions/%22%3E%3Cscript%3Ex%3C%2Fscript%3E%0A%26">1970-01-01' in text
