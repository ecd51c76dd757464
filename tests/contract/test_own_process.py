"""What only a process of its own can show: what it loads, writes, answers and accepts."""

import asyncio
import subprocess
import sys

import pytest

from guard.core.mappings import ReadBack
from guard.processes.loopback import Rig
from guard.processes.separate_process import SeparateProcess
from guard.store.memory_stores.recovery import StoreProbe

ECHO = ReadBack("echo", {"text": "$.value"})


def test_a_wrapper_loads_no_model_and_no_store():
    """Ten wrapped servers cost ten small processes."""
    heavy = ("onnxruntime", "numpy", "redis", "hiredis", "mitmproxy", "mcp")
    code = f"import sys, guard.cli.agents; print([m for m in {heavy!r} if m in sys.modules])"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=280
    )

    assert loaded.stdout.strip() == "[]"


def test_a_worker_loads_nothing_that_only_some_settings_need():
    """Each costs megabytes in every worker; the embedded Redis is reached without redis-py."""
    heavy = ("redis", "fakeredis", "jwt", "sqlite3", "anyio", "mitmproxy", "opentelemetry")
    script = (
        "import sys, guard.runtime.worker, guard.runtime.serving, guard.pep.lean.pep\n"
        "from guard.store.topology import open_client\n"
        "open_client('unix:///run/x/redis.sock')\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=280
    )

    assert loaded.stdout.strip() == "[]"


async def test_the_store_behind_a_listener_is_asked_with_the_arguments():
    """Over MCP, by the recall that the policy names; an error says nothing."""
    with Rig() as rig:
        port = rig.server("lab.fixture_server")
        questions = StoreProbe({"8080": f"http://127.0.0.1:{port}"}, SeparateProcess)
        said = [questions.ask("x:8080", ECHO, {"text": text}) for text in ("red door", "blue door")]
        assert ["door" in one for one in await asyncio.gather(*said)] == [True, True]
        with pytest.raises(OSError, match="did not say"):
            await questions.ask("x:8080", ReadBack("fail", {}), {"text": "the red door"})
        assert "green door" in await questions.ask("x:8080", ECHO, {"text": "green door"})
