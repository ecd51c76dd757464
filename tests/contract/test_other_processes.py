"""A process that asks the store behind a listener what it holds."""

import asyncio

import pytest

from guard.core.mappings import ReadBack
from guard.processes.loopback import Rig, free_port
from guard.processes.separate_process import SeparateProcess
from guard.store.memory_stores.recovery import StoreProbe

ECHO = ReadBack("echo", {"text": "$.value"})


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
