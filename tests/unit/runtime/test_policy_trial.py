"""A worker follows the trial of a policy, and steps back by itself."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from guard.core import metrics
from guard.core.errors import GuardError
from guard.provenance.seal import Seal
from guard.runtime.policy_trial import LOST_SECONDS, TrialWatch
from guard.store.trials import RUNNING, TrialRecord, TrialStore
from tests.guards import KEY, Lines, guard_on
from tests.unit.pipeline.test_trial import BASE, NOW, STRICT, call


@pytest.fixture
def rig(store, policy_from):
    """A guard that follows the trial, and what an operator writes."""
    base, strict = policy_from(BASE), policy_from(STRICT)
    found = SimpleNamespace(base=base, strict=strict, audit=Lines(), at=NOW)
    found.guard = guard_on(store, base)
    found.trials = TrialStore(store, Seal(KEY))
    found.watch = TrialWatch(
        guard=found.guard,
        store=found.trials,
        seal=Seal(KEY),
        audit=found.audit,
        metrics=metrics.Metrics(),
        now=lambda: found.at,
    )
    found.record = TrialRecord(
        id="t1",
        files=(("mail.yaml", STRICT),),
        candidate=strict.digest,
        base=base.digest,
        by="pat",
        at=NOW,
        until=NOW + 3600,
    )

    async def put(**changes):
        _, raw = await found.trials.read()
        found.record = replace(found.record, **changes)
        await found.trials.write(found.record, raw)
        await found.watch.look()

    found.put = put
    return found


def acts(rig):
    """Return what is on record of the trial."""
    return [fields["act"] for name, fields in rig.audit.events if name == "guard.policy_trial"]


async def _state(rig):
    record, _ = await rig.trials.read()
    return record.state


async def test_a_trial_goes_from_shadow_to_all_and_is_stopped(rig):
    """Each step is taken by the worker within a look, on record before it counts."""
    await rig.put()
    assert (await call(rig.guard, 1)).action.label == "ask"
    await rig.put(share=1.0, jump=1.0)
    assert (await call(rig.guard, 2)).action.label == "block"
    await rig.put(state="stopped")
    assert (await call(rig.guard, 3)).action.label == "ask"
    assert acts(rig) == ["begun", "begun", "stopped"]


@pytest.mark.parametrize(("share", "state"), [(1.0, "stepped_back"), (0.0, RUNNING)])
async def test_counts_of_all_workers_step_back_together(rig, share, state):
    """What another worker has counted ends the trial here; what is only looked at harms nobody."""
    await rig.put(share=share)
    side = "candidate" if share else "base"
    other = {(side, "allow", "block"): 5, (side, "allow", "allow"): 5}
    await rig.trials.add("t1", other)
    await rig.watch.look()
    record, _ = await rig.trials.read()
    why = "asks or blocks jumped: 5 of 10 calls" if share else ""
    assert (record.state, record.why) == (state, why)
    assert (rig.guard.trial is None) is (state != RUNNING)


@pytest.mark.parametrize(
    ("then", "state"), [("candidate", "done"), ("another", "stopped"), ("time", "stopped")]
)
async def test_it_ends_where_there_is_nothing_to_try_any_more(rig, policy_from, then, state):
    """The candidate is in force, what it was compared with is gone, or everybody forgot it."""
    await rig.put(share=1.0)
    if then == "time":
        rig.at = rig.record.until
    else:
        another = policy_from(BASE.replace("name: mail", "name: next"))
        rig.guard.swap_policy(rig.strict if then == "candidate" else another)
    await rig.watch.look()
    assert (await _state(rig), rig.guard.trial) == (state, None)


FRAME = STRICT + "state: {approval: 60s}\n"


@pytest.mark.parametrize(
    "text",
    [STRICT.replace("name: strict", "name: other"), "rules: [", FRAME],
    ids=["another policy than its digest", "no policy", "what holds for everybody"],
)
async def test_a_candidate_that_cannot_be_tried_here_is_refused(rig, policy_from, text):
    """The policy in force stays, and the refusal is on record once."""
    changes = {"candidate": policy_from(FRAME).digest} if text == FRAME else {}
    await rig.put(files=(("mail.yaml", text),), share=1.0, **changes)
    await rig.watch.look()
    assert rig.guard.trial is None
    assert acts(rig) == ["refused"]


@pytest.mark.parametrize("why", ["altered", "full"])
async def test_a_record_that_is_forged_or_cannot_be_recorded_begins_nothing(rig, store, why):
    """Who can write to Redis and has no key cannot put a policy in force; audit first."""
    key = bytes(32) if why == "altered" else KEY
    rig.audit.error = GuardError("the disk is full") if why == "full" else None
    await TrialStore(store, Seal(key)).write(replace(rig.record, share=1.0), b"")
    with pytest.raises(GuardError, match=why):
        await rig.watch.look()
    assert rig.guard.trial is None


async def test_without_its_record_a_candidate_decides_for_seconds_only(rig, store):
    """Redis gone or the record spoilt: the policy in force comes back by itself."""
    await rig.put(share=1.0, jump=1.0)
    await store.client.execute("HSET", rig.trials._key, b"trial", b"spoilt")
    rig.at += 1
    with pytest.raises(GuardError):
        await rig.watch.look()
    assert rig.guard.trial is not None
    rig.at += LOST_SECONDS + 1
    with pytest.raises(GuardError):
        await rig.watch.look()
    assert rig.guard.trial is None
