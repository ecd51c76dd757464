"""Every part of the guard that raises: a block, an audit line and a counter, never an exception."""

import pytest

from guard.core.calls import ToolResult
from guard.core.model import Identity, ToolCall
from guard.memory.write_path import WritePath
from guard.pipeline.decision_log import Records
from guard.pipeline.guard import Guard
from guard.pipeline.outcome import JudgeRequest
from guard.pipeline.stores import Stores
from guard.policy import load_policies
from guard.provenance.seal import Seal
from guard.replay.run import ErrorCounter
from guard.store.ledger import RedisLedger
from guard.store.staging import RedisStaging
from tests.guards import KEY

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
  - {id: unknown, type: provenance, roles: [send], rungs: [claimed, unknown], effect: ask}
  - {id: listed, type: provenance, roles: [send], rungs: [listed], effect: allow}
  - {id: work, type: tool, roles: [save, recall, retrieve], effect: allow}
"""
LONG = "x" * 40_000
"""Text that is read in a thread."""
AT = 1_700_000_000.0


class Broken(Exception):  # noqa: N818  (what nobody has thought of)
    """An error that no part of the guard expects."""


class Audit:
    """Keeps audit lines; fails as long as it is told to."""

    def __init__(self):
        self.verdicts = {}
        self.fails = set()

    def decision(self, record):
        """Keep a decision."""
        if "decision" in self.fails:
            raise Broken
        self.verdicts.setdefault(record.call.call.id, []).append(record.verdict)

    def event(self, name, fields):
        """Keep nothing."""
        del name, fields
        if "event" in self.fails:
            raise Broken


class Recorder:
    """Records nothing."""

    keeps = True

    def call(self, call, verdict, *, required):
        """Record a call."""

    def result(self, result):
        """Record a result."""


class Rig:
    """A guard of which every part can be made to fail.

    Args:
        store: of its state.
        directory: of its policy.
        namespace: of its staged writes.
    """

    def __init__(self, store, directory, namespace):
        path = directory / "policy.yaml"
        path.write_text(POLICY, "utf-8")
        policy = load_policies([path])
        self.audit, self.metrics = Audit(), ErrorCounter()
        self.store, self.recorder = store, Recorder()
        self.staging = RedisStaging(store.client, namespace=namespace)
        self.memory = WritePath(
            policy=policy,
            staging=self.staging,
            audit=self.audit,
            metrics=self.metrics,
        )
        self.guard = Guard(
            policy,
            Stores(store, ledger=RedisLedger(store)),
            Records(self.audit, self.metrics, recorders=(self.recorder,)),
            memory=self.memory,
            seal=Seal(KEY),
        )

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
def _rig(store, tmp_path, redis_namespace):
    return Rig(store, tmp_path, redis_namespace)


AUTHORIZE = [
    (("send",), "store.attempt"),
    (("send",), "audit.decision"),
    (("send",), "recorder.call"),
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
    large = place in {"guard.results._findings", "guard.results._large_labels"}
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
