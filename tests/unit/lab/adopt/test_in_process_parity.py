"""In process and behind the proxy the verdicts are the same, refused calls included."""

from itertools import islice
from pathlib import Path

import pytest

from guard import Guard
from guard.replay.traces import read_traces
from guard.wiring import assemble
from lab.adopt.in_process_parity import compare

TRACES = Path(__file__).resolve().parents[4].parent / "shared" / "data" / "traces"


@pytest.mark.parametrize("name", ["leong_dev.jsonl.gz", "agentdojo_dev.jsonl.gz"])
async def test_recorded_runs_get_the_same_verdicts(own_server, name):
    """Live traffic and the in-process API call one pipeline."""
    if not TRACES.is_dir():
        pytest.skip("the recorded runs are not here (../shared/data/traces)")
    runs = islice(read_traces([TRACES / name]), 6)

    found = await compare(assemble, Guard.open, own_server.url, "default.yaml", runs)

    assert found.runs == 6
    assert found.calls > 6
    assert found.differences == []
    assert next(check.value for check in found.checks()) == 1
