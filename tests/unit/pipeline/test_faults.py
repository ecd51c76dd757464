"""Every part of the guard that raises: a block, an audit line and a counter, never an exception."""

import pytest

from guard.core.calls import ToolResult
from guard.core.model import Finding, Identity, ToolCall
from guard.operations.labels import LabelOperator
from guard.pipeline.large_work import OtherProcesses
from guard.pipeline.outcome import JudgeRequest
from guard.provenance.seal import Seal
from guard.replay.run import ErrorCounter
from tests.guards import KEY, Audit, guard_on

POLICY = """
version: 1
name: office
internal_domains: [inside.test]
tools:
  - {match: [send], role: send, destinations: ["$.to"], body: ["$.body"]}
  - {match: [read], role: retrieve}
stores:
  - name: facts
    writes:
      - {match: [save], target: L3, fallback: L4, content: ["$.key", "$.value"], key: "$.key"}
    reads:
      - {match: [recall]}
memory:
  sources:
    user_input: {L1: token, L2: commit, L3: commit, L4: commit}
    model_inference: {L1: token, L2: commit, L3: commit, L4: commit}
    tool_result: {L1: refuse, L2: refuse, L3: commit, L4: commit}
    self_edit: {L1: token, L2: token, L3: commit, L4: commit}
propagation: {}
approvals: {pause: {asks: 50, within: 1h, lasts: 1h}}
rules:
  - {id: quiet, type: result, finds: [instruction_patterns], effect: block}
  - {id: unknown, type: provenance, roles: [send], rungs: [claimed, unknown], effect: ask}
  - {id: listed, type: provenance, roles: [send], rungs: [listed], effect: allow}
  - {id: work, type: tool, roles: [save, recall, retrieve], effect: allow}
"""
LONG = "x" * 40_000
"""Text that is read in a thread."""
AT = 1_700_000_000.0


class Broken(Exception):  # noqa: N818  (what nobody has thought of)
    """An error that no part of the guard expects."""


class Recorder:
    """Records prompts."""

    keeps = True

    def __init__(self):
        self.prompts = []

    def prompt(self, identity, text, at):
        """Record a prompt."""
        self.prompts.append(text)

    def call(self, call, verdict, *, required):
        """Record a call."""

    def result(self, result):
        """Record a result."""


class Look:
    """A detector of calls, texts and results, which finds nothing but words in texts."""

    name = "instruction_patterns"

    def prepare(self):
        """Get ready."""

    def inspect(self, call, snapshot):
        """Find nothing in a call."""
        return ()

    def inspect_result(self, content):
        """Find nothing in a result."""

    def inspect_text(self, text, *, deep):
        """Find something in every text."""
        return (Finding(self.name, "injection_text"),)


class Rig:
    """A guard of which every part can be made to fail.

    Args:
        store: of its state.
        policy: in force.
        namespace: of its staged writes.
    """

    def __init__(self, store, policy, namespace):
        self.audit, self.metrics, self.look = Audit(Broken), ErrorCounter(), Look()
        self.store, self.recorder, self.judging = store, Recorder(), []
        self.guard = guard_on(
            store,
            policy,
            metrics=self.metrics,
            gated=namespace,
            audit=self.audit,
            detectors=(self.look,),
            recorders=(self.recorder,),
            processes=OtherProcesses(judging=self.judging.append),
        )
        self.memory = self.guard._memory
        self.staging = self.memory._staging

    def break_(self, place, monkeypatch):
        """Have a part fail: ``owner.method``, or a part of the audit log."""
        owner, _, method = place.rpartition(".")
        if owner == "audit":
            self.audit.fails.add(method)
            return

        def fails(*_, **__):
            raise Broken

        found = self
        for name in owner.split("."):
            found = getattr(found, name)
        is_slotted = not hasattr(found, "__dict__")
        monkeypatch.setattr(type(found) if is_slotted else found, method, fails)

    def calls(self, *wanted):
        """Return the calls of one message."""
        made = {
            "ask": ("send", {"to": "pat@partner.test", "body": "b"}),
            "send": ("send", {"to": "pat@inside.test", "body": "b"}),
            "long": ("send", {"to": "pat@inside.test", "body": LONG}),
            "save": ("save", {"key": "k", "value": "v"}),
            "recall": ("recall", {"key": "k"}),
            "read": ("read", {}),
        }
        who = Identity("alice", "one")
        return [
            ToolCall(f"{name}-{number}", who, made[name][0], made[name][1], "test", AT)
            for number, name in enumerate(wanted)
        ]

    async def released(self, name):
        """Return a call that has been let out."""
        [(traced, verdict)] = await self.guard.judge(JudgeRequest(self.calls(name)))
        assert verdict.enforced.forwards
        return traced


@pytest.fixture(name="rig")
def _rig(store, policy_from, redis_namespace):
    return Rig(store, policy_from(POLICY), redis_namespace)


AUTHORIZE = [
    (("send",), "store.attempt"),
    (("send",), "audit.decision"),
    (("send",), "recorder.call"),
    (("send",), "look.inspect"),
    (("long",), "look.inspect"),
    (("long",), "guard.calls.large.answered"),
    (("long",), "guard.calls.large._reads"),
    (("send",), "guard.calls._judge"),
    (("send",), "guard.calls._question"),
    (("send",), "guard.calls._decided"),
    (("send",), "guard.calls._parts.containment.judge"),
    (("long",), "guard.threads.run"),
    (("ask",), "guard._refused._approvals.requests"),
    (("ask",), "guard._refused._asks.noted"),
    (("ask",), "store.complete"),
    (("ask", "send"), "guard._refused._approvals.requests"),
    (("send", "send"), "guard.calls._judge"),
    (("save",), "memory.judge"),
    (("save",), "memory.commit"),
    (("save",), "staging.stage"),
    (("save",), "staging.commit"),
    (("save",), "audit.event"),
    (("save", "ask"), "memory.discard"),
    (("save", "ask"), "staging.settle"),
    (("recall",), "staging.is_closed"),
]


@pytest.mark.parametrize(("wanted", "place"), AUTHORIZE)
async def test_a_part_that_raises_while_a_call_is_judged_blocks_the_call(
    rig, monkeypatch, wanted, place
):
    """Each call of the message is refused, on record, and an error is counted."""
    calls = rig.calls(*wanted)
    rig.break_(place, monkeypatch)

    answers = await rig.guard.judge(JudgeRequest(calls))

    assert [traced.call.id for traced, _ in answers] == [call.id for call in calls]
    assert not any(verdict.enforced.forwards for _, verdict in answers)
    if place != "audit.decision":
        assert sorted(rig.audit.verdicts) == sorted(call.id for call in calls)
        assert not any(lines[-1].enforced.forwards for lines in rig.audit.verdicts.values())
    if place != "staging.settle":  # Nothing was committed, so nothing is abandoned.
        assert rig.metrics.errors


OBSERVE = [
    ("read", "recorder.result", True),
    ("read", "guard.texts.of_result", True),
    ("read", "guard.calls._parts.containment.taken_apart", True),
    ("read", "guard.results.by_rules", True),
    ("read", "memory.sourced", True),
    ("read", "memory.judge_result", True),
    ("read", "guard.results._findings", True),
    ("read", "look.inspect_result", True),
    ("read", "look.inspect_text", False),
    ("read", "guard.texts.find_apart", True),
    ("read", "audit.event", False),
    ("read", "guard.results._labels", False),
    ("read", "guard.results._large_labels", False),
    ("read", "store.complete", False),
    ("save", "staging.settle", False),
    ("save", "staging.read", False),
]


@pytest.mark.parametrize(("wanted", "place", "withheld"), OBSERVE)
async def test_a_part_that_raises_while_a_result_is_taken_in_withholds_or_marks_it(
    rig,
    monkeypatch,
    *,
    wanted,
    place,
    withheld,
):
    """What was not judged is withheld and on record; what was not labelled leaves a mark."""
    traced = await rig.released(wanted)
    large = place.startswith(("guard.results._findings", "guard.results._large", "guard.texts.fi"))
    rig.break_(place, monkeypatch)

    verdict = await rig.guard.observe(ToolResult(traced, LONG if large else "text", AT))

    assert (verdict is not None and not verdict.enforced.forwards) is withheld
    lines = rig.audit.verdicts[traced.call.id]
    assert lines[-1].enforced.forwards is not withheld
    if place != "staging.read":  # Nothing in the result has a source.
        assert rig.metrics.errors
    session, _ = await rig.store.windows(traced.call.identity)
    if place != "store.complete":
        assert sum(session.trajectory.executed) == 1, "the store is told of its end once"


@pytest.mark.parametrize(
    ("required", "keeps", "passes"),
    [(False, False, True), (True, True, True), (True, False, False)],
)
async def test_a_required_recording_that_nobody_writes_blocks(
    store, policy_from, redis_namespace, required, keeps, passes
):
    """No exchange goes out without one that the policy requires."""
    rig = Rig(store, policy_from(POLICY + "recording: required\n" * required), redis_namespace)
    rig.recorder.keeps = keeps
    [(_, verdict)] = await rig.guard.judge(JudgeRequest(rig.calls("send")))
    assert verdict.enforced.forwards is passes
    assert passes or verdict.reasons[0].code == "recording_error"


@pytest.mark.parametrize("large", [False, True])
async def test_an_unmarked_result_is_withheld(rig, monkeypatch, large):
    """Neither the labels nor a mark for missing ones could be stored."""
    traced = await rig.released("read")
    rig.break_("store.complete", monkeypatch)

    def full(*_):
        raise OSError

    monkeypatch.setattr(rig.guard.results._marks, "add", full)
    verdict = await rig.guard.observe(ToolResult(traced, LONG if large else "text", AT))
    assert [reason.code for reason in verdict.reasons] == ["result_unlabelled"]


async def test_claims_that_cannot_be_kept_attest_nothing(rig, monkeypatch):
    """A claim raises nothing; a prompt is recorded, or says that it was not taken."""
    who = Identity("alice", "one")
    await rig.guard.notes.prompt(who, "Mail pat@partner.test.", AT)
    assert rig.recorder.prompts == ["Mail pat@partner.test."]
    rig.break_("store.note", monkeypatch)
    await rig.guard.notes.claims(who, ["mail:pat@partner.test"], AT)
    assert rig.metrics.errors["provenance"] == 1
    with pytest.raises(Broken):
        await rig.guard.notes.prompt(who, "Mail pat@partner.test. " * 400, AT)


async def test_a_result_whose_detector_is_missing_is_withheld(rig):
    """The rule that needs its evidence raises, which is counted."""
    traced = await rig.released("read")
    rig.guard.evidence._detectors = {}
    verdict = await rig.guard.observe(ToolResult(traced, "text", AT))
    assert [reason.code for reason in verdict.reasons] == ["rule_error"]
    assert rig.metrics.errors["rule"] == 1


@pytest.mark.parametrize("without", ["propagation: {}", "approvals: {pause", "rules: []"])
async def test_what_is_asked_about_is_on_record_under_every_policy(
    store, policy_from, redis_namespace, without
):
    """With and without a pause of many questions, and records of what spreads."""
    text = "".join(line for line in POLICY.splitlines(keepends=True) if without not in line)
    rig = Rig(store, policy_from(text), redis_namespace)
    rig.guard.swap_policy(rig.guard.policy)
    [call] = rig.calls("ask")
    [(_, verdict)] = await rig.guard.judge(JudgeRequest([call]))
    assert (verdict.action.label, rig.judging) == ("ask", [call, None])
    assert len(await LabelOperator(store, Seal(KEY), rig.guard.policy.limits).waiting()) == 1
