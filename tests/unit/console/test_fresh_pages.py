"""What every page shows is refreshed whatever fails once, and a page says when it is stale."""

from __future__ import annotations

import asyncio

import pytest


@pytest.mark.parametrize("error", [OSError("gone"), KeyError("x"), ValueError("bad")])
@pytest.mark.parametrize("part", ["waiting", "standing"])
async def test_an_error_of_any_kind_does_not_end_what_refreshes_the_pages(
    console, monkeypatch, part, error
):
    """It is counted and every page says so, until it is over."""
    monkeypatch.setattr("guard.console.app.LOOK_SECONDS", 0)
    actions, found = console.actions, console.console

    async def fails(*_):
        raise error

    def errors():
        return actions.metrics.errors.labels("state")._value.get()

    whole = getattr(actions, part)
    setattr(actions, part, fails)
    task = asyncio.get_running_loop().create_task(found._watch())
    try:
        async with asyncio.timeout(60):
            while errors() < 2:  # noqa: ASYNC110  (it tells nobody)
                await asyncio.sleep(0)
            async with console.as_("viewer") as client:
                page = await client.get("/record")
            assert "may be out of date since" in page.text
            assert type(error).__name__ in page.text
            setattr(actions, part, whole)
            while found.templates.degraded:  # noqa: ASYNC110  (likewise)
                await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with console.as_("viewer") as client:
        page = await client.get("/record")
    assert "may be out of date" not in page.text
