"""Questions to a memory store itself: an answer that says something, or an error."""

import pytest

from guard.adapters.loopback import free_port
from guard.adapters.memory_stores.fate_probe import StoreProbe
from guard.core.mappings import ReadBack

ECHO = ReadBack("echo", {"text": "$.value"})


@pytest.mark.parametrize("server", ["x:8081", "x", "", "x:80 80"])
async def test_what_is_behind_no_reverse_listener_is_not_asked(server):
    """Nobody says where it is, so the fate of the write stays unknown."""
    with pytest.raises(OSError, match="behind a reverse listener"):
        await StoreProbe({"8080": "http://127.0.0.1:9"}).ask(server, ECHO, {})


async def test_a_store_that_is_gone_says_nothing():
    """Which is no sign that the write did not arrive."""
    questions = StoreProbe({"8080": f"http://127.0.0.1:{free_port()}"})

    with pytest.raises(OSError, match="did not say"):
        await questions.ask("x:8080", ECHO, {})
    await questions.aclose()
