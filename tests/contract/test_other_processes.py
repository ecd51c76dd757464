"""What several processes do together."""

import asyncio
import os

import pytest

from guard.core.mappings import ReadBack
from guard.processes.loopback import Rig, free_port
from guard.processes.separate_process import SeparateProcess
from guard.store.memory_stores.recovery import StoreProbe
from tests.unit.pipeline.test_selection import communal, drawn_in, made, store

__all__ = ["communal", "made", "store"]
"""Fixtures."""

ECHO = ReadBack("echo", {"text": "$.value"})


async def test_a_community_is_found_in_another_process(communal):
    """The real one: its answer is ours, and it is not this process that found it."""
    seen = []
    process = SeparateProcess()

    async def apart(function, *arguments):
        seen.append(await process.run(os.getpid))
        return await process.run(function, *arguments)

    communal.guard.calls._parts.selections._apart = apart
    verdict = await drawn_in(communal)
    assert verdict.reasons[0].code == "selection_diverged"
    assert seen
    assert os.getpid() not in seen


async def test_the_store_behind_a_listener_is_asked_with_the_arguments():
    """Over MCP, by the recall that the policy names; an error or a gone store says nothing."""
    with Rig() as rig:
        stores = {"8080": rig.server("lab.fixture_server"), "8081": free_port()}
        urls = {port: f"http://127.0.0.1:{at}" for port, at in stores.items()}
        questions = StoreProbe(urls, SeparateProcess)
        said = [questions.ask("x:8080", ECHO, {"text": text}) for text in ("red door", "blue door")]
        assert ["door" in one for one in await asyncio.gather(*said)] == [True, True]
        for at, question in (("x:8080", ReadBack("fail", {})), ("x:8081", ECHO)):
            with pytest.raises(OSError, match="did not say"):
                await questions.ask(at, question, {"text": "the red door"})
        assert "green door" in await questions.ask("x:8080", ECHO, {"text": "green door"})
