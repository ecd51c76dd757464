"""The path of a value through recorded sessions, where the recordings are there."""

from itertools import islice
from pathlib import Path

import pytest

from guard.operations.labels import LabelOperator
from guard.policy import load_policies
from guard.replay.run import Replay, fresh_store
from guard.replay.traces import read_traces

ROOT = Path(__file__).resolve().parents[3]
TRACES = ROOT.parent / "shared/data/traces/leong_dev.jsonl.gz"
RUNS = 30


def saves_in(steps):
    """Return how many saves a tree has."""
    return sum((step.kind == "saved") + saves_in(step.then) for step in steps)


@pytest.mark.skipif(not TRACES.is_file(), reason="the recorded sessions are absent")
async def test_every_saved_attacker_address_has_its_saves_and_the_reading_they_began_with(
    redis_server,
):
    """One save per item and session, and each path begins with an earlier call of the run."""
    policy = load_policies([ROOT / "policies/examples/mail_assistant.yaml"])
    runs = list(islice(read_traces([TRACES]), RUNS))
    checked = 0
    async with fresh_store(redis_server.url, policy.limits) as store:
        replay = Replay(policy, store, ())
        await replay.run(runs, lambda _: None)
        for run in runs:
            operator = LabelOperator(store, replay.seal, policy.limits, tenant=run.owner)
            for address in run.labels.get("attacker_recipients", ()):
                kept = [
                    call
                    for call in run.calls
                    if call.tool == "memory_save_fact" and address in str(call.args)
                ]
                if not kept:
                    continue
                steps = (await operator.trace(address, 0.0))[f"mail:{address}"].steps
                checked += 1
                assert saves_in(steps) == len({(call.session, call.args["key"]) for call in kept})
                assert {step.kind for step in steps} == {"read"}
                assert min(step.record.call for step in steps) < kept[0].i
                assert all(run.calls[step.record.call].tool == step.record.source for step in steps)
    assert checked
