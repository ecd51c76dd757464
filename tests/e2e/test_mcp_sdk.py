"""The official MCP client and server see no difference with the guard between them."""

import pytest

from guard.processes.loopback import Rig, free_port
from lab.bench_transparency import SCENARIOS
from lab.mcp_scenarios import MODERN, run, run_modern
from tests.e2e.running_guard import ROOT, Elsewhere, serving


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return the URLs of the fixture servers, directly and through one watching guard."""
    with Rig() as rig:
        port = rig.server("lab.fixture_server")
        modern = rig.server("lab.modern_server")
        second = free_port()
        with serving(
            tmp_path_factory.mktemp("guard"),
            Elsewhere(port),
            policy=ROOT / "policies" / "examples" / "observe.yaml",
            options=("--reverse", f"127.0.0.1:{second}=http://127.0.0.1:{modern}"),
        ) as guard:
            yield {
                "direct": f"http://127.0.0.1:{port}/mcp",
                "guarded": f"http://127.0.0.1:{guard.port}/mcp",
                "direct, modern": f"http://127.0.0.1:{modern}/mcp",
                "guarded, modern": f"http://127.0.0.1:{second}/mcp",
            }


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_client_sees_the_same_directly_and_through_the_guard(places, name):
    """Calls, progress, logs, questions of the server, resources, prompts, and the raw bytes."""
    direct = await run(places["direct"], name)

    assert await run(places["guarded"], name) == direct
    assert direct


@pytest.mark.parametrize("name", MODERN)
async def test_the_newest_revision_is_the_same_directly_and_through_the_guard(places, name):
    """Byte for byte: answers, streams, what needs input, and what the server refuses."""
    direct = await run_modern(places["direct, modern"], name)

    assert await run_modern(places["guarded, modern"], name) == direct
    assert [seen for seen in direct if seen[0] == "failed"] == []
