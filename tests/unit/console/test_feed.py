"""Following the log: errors show and do not end it; rows escape what clients chose."""

import asyncio
from unittest.mock import Mock

import pytest

from guard.console.decisions import DecisionIndex, follow
from guard.console.templating import Templates
from tests.guards import until
from tests.unit.console.conftest import line


@pytest.mark.parametrize("part", ["has_news", "take_in"])
@pytest.mark.parametrize("error", [OSError("gone"), KeyError("x")])
async def test_an_error_shows_and_does_not_end_the_following(log, monkeypatch, part, error):
    """Later decisions are taken in once it is over."""
    monkeypatch.setattr("guard.console.decisions.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("guard.console.decisions.POLL_SECONDS", 0.01)
    index, failures = DecisionIndex(log), []
    with monkeypatch.context() as patch:
        patch.setattr(index, part, Mock(side_effect=error))
        task = asyncio.get_running_loop().create_task(follow(index, lambda: failures.append(1)))
        await until(lambda: len(failures) > 1)
        assert type(error).__name__ in index.error
        with log.open("a", encoding="utf-8") as file:
            file.write(line(3))
    await until(lambda: not index.error and len(index.page({})) == 4)
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


async def test_the_first_page_has_one_chart_of_the_decisions_on_record(console, clock):
    """A bar for each verdict of an hour; rates and history are those of Grafana."""
    clock.at = console.index.page({}, limit=1)[0]["at"]
    async with console.as_("viewer") as client:
        page = (await client.get("/")).text

    assert page.count('class="chart"') == 1
    assert '<rect class="' in page
