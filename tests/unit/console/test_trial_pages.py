"""A draft on trial, from the page to the guard: begun, widened, stopped, stepped back."""

from types import SimpleNamespace

import pytest

from guard.core import metrics
from guard.core.model import Identity, ToolCall
from guard.pipeline.outcome import JudgeRequest
from guard.policy import load_policies
from guard.provenance.seal import Seal
from guard.runtime.policy_trial import TrialWatch
from guard.store.trials import TrialStore
from guard.telemetry.audit_log import NoAuditLog
from tests.guards import KEY, guard_on
from tests.unit.console.conftest import NOW, POLICY

LOOSER = POLICY.replace("effect: block", "effect: ask").replace("name: mail", "name: looser")


@pytest.fixture
def rig(console, store, policy_file):
    """A guard that follows the console's trial."""
    guard = guard_on(store, load_policies([policy_file]))
    watch = TrialWatch(
        guard=guard,
        store=TrialStore(store, Seal(KEY)),
        seal=Seal(KEY),
        audit=NoAuditLog(),
        metrics=metrics.Metrics(),
        now=lambda: NOW + 1,
    )

    async def send(number, to, principal="alice"):
        who = Identity(principal, "s")
        call = ToolCall(f"d{number}", who, "send", {"to": to, "body": "hi"}, "test", NOW)
        [(_, verdict)] = await guard.judge(JudgeRequest([call]))
        return verdict.action.label

    async def begin(client, text, **form):
        saved = {"file": str(policy_file), "text": text, "draft": ""}
        path = (await client.post("/policies/drafts", data=saved)).headers["location"]
        return await client.post(f"{path}/trial", data={"share": "0", **form})

    return SimpleNamespace(console=console, guard=guard, watch=watch, send=send, begin=begin)


async def _trial(client):
    page = (await client.get("/policies/trial")).text
    return page, page.partition('name="trial" value="')[2].partition('"')[0]


async def test_a_candidate_decides_for_nobody_before_a_second_person(rig, policy_file):
    """A shadow trial needs one; to let it decide takes somebody who did not write it."""
    two = "approvals: {changes: two_people}\ntools:\n"
    policy_file.write_text(POLICY.replace("tools:\n", two), "utf-8")
    looser = LOOSER.replace("tools:\n", two)
    console = rig.console
    async with console.as_("author") as pat, console.as_("author", name="kim") as kim:
        named = await rig.begin(pat, looser, principals="alice")
        shared = await rig.begin(pat, looser, share="0.1")
        shadow = await rig.begin(pat, looser)
        _, trial = await _trial(pat)
        alone = await pat.post("/policies/trial", data={"trial": trial, "share": "1.0"})
        second = await kim.post("/policies/trial", data={"trial": trial, "share": "0.1"})
        again = await pat.post("/policies/trial", data={"trial": trial, "share": "1.0"})
        back = await pat.post("/policies/trial", data={"trial": trial, "share": "0.0"})

    assert (named.status_code, shared.status_code, shadow.status_code) == (400, 400, 303)
    assert (alone.status_code, second.status_code) == (400, 303)
    assert (again.status_code, back.status_code) == (303, 303)
