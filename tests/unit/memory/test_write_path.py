"""Every part of the gate that fails, is slow or answers garbage: the write is refused, and told."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import AuditError, StateError
from guard.core.labels import SavedText
from guard.core.memory import Fate, MemoryClass, SecondLook, StagedFacts, Trust
from guard.core.metrics import ERRORS
from guard.core.model import Identity, Integrity, Role, ToolCall
from guard.core.policy import Action, Mode, Verdict
from guard.core.trajectory import Snapshot
from guard.memory.write_path import WritePath
from guard.pipeline.classification import classify
from guard.policy import load_policies
from lab.write_path.rig import POLICY

SERIAL = itertools.count()
ALLOW = Verdict(Action.ALLOW, Mode.ENFORCE, (), "d")


class Store:
    """A staging store, each of whose steps can be given another answer."""

    def __init__(self):
        self.limits = None
        self.steps, self.answers = [], {}

    async def _step(self, name, usual):
        self.steps.append(name)
        answer = self.answers.get(name, usual)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def stage(self, candidate, receipt):
        """Stage."""
        return await self._step("stage", StagedFacts())

    async def commit(self, candidate, decision, facts, receipt):
        """Commit."""
        return await self._step("commit", "")

    async def refuse(self, candidate, reasons):
        """Refuse."""
        return await self._step("refuse", Trust.TRUSTED)

    async def settle(self, candidate, fate, subjects=frozenset(), drift=None):
        """Settle."""
        return await self._step(f"settle {fate.value}", ())

    async def is_closed(self, identity, store, partitions):
        """Nothing is closed."""
        return await self._step("is_closed", usual=False)

    async def reserve(self, candidate):
        """Bind a nonce."""
        return await self._step("reserve", usual=True)

    async def read(self, identity, sources):
        """Note sources."""
        await self._step("read", None)


class Seen:
    """An audit log and metrics in one; the log can fail."""

    def __init__(self):
        self.lines, self.outcomes, self.errors, self.broken = [], [], 0, False

    def event(self, name, fields):
        """Keep a line."""
        if self.broken:
            raise AuditError
        self.lines.append((name, fields["outcome"]))

    def count(self, metric, *labels):
        """Count a write or an error."""
        if metric is ERRORS:
            self.errors += 1
        else:
            self.outcomes.append(labels[:2])


@pytest.fixture
def store():
    """A staging store that works."""
    return Store()


@pytest.fixture
def seen():
    """What was put on record."""
    return Seen()


@pytest.fixture
def path(store, seen):
    """A write path on them."""
    policy = load_policies([POLICY])
    return WritePath(policy=policy, staging=store, audit=seen, metrics=seen)


def _write(target="L4"):
    arguments = {"key": "k", "content": "a fact", "memory_class": target}
    call = ToolCall(f"c{next(SERIAL)}", Identity("p", "s"), "memory_write", arguments, "mcp", 0.0)
    traced = untraced(classify(load_policies([POLICY]), call))
    return replace(traced, saved=SavedText(Integrity.ADVISORY))


async def _through(path, classified):
    """Take a write up to its forwarding; return the verdict."""
    verdict = await path.judge(classified, Snapshot(), ALLOW)
    if verdict.action.forwards:
        verdict = await path.commit(classified.call.id, verdict)
    return verdict


DOWN = StateError("down")


@pytest.mark.parametrize(
    ("answers", "reason", "steps"),
    [
        ({"stage": DOWN}, "gate_error", ["stage"]),
        ({"stage": TimeoutError()}, "gate_error", ["stage"]),
        ({"stage": "garbage"}, "gate_error", ["stage"]),
        ({"commit": DOWN}, "gate_error", ["stage", "commit"]),
        ({"commit": "write_conflict"}, "write_conflict", ["stage", "commit", "refuse"]),
        ({"commit": "stage_lost"}, "stage_lost", ["stage", "commit", "refuse"]),
        ({"stage": StagedFacts(nonce_used=True)}, "nonce_replayed", ["stage", "refuse"]),
        (
            {"stage": StagedFacts(nonce_used=True), "refuse": DOWN},
            "gate_error",
            ["stage", "refuse"],
        ),
    ],
    ids=str,
)
async def test_a_write_is_refused_by_name_when_a_step_fails(
    path, store, seen, answers, reason, steps
):
    """The agent is told, it is counted, and nothing is left that could be forwarded."""
    store.answers = answers
    classified = _write()

    verdict = await _through(path, classified)

    assert verdict.action is Action.BLOCK
    assert verdict.reasons[0].code == reason
    assert store.steps == steps
    assert seen.outcomes[-1] == ("refused", reason)
    assert not path.is_committed(classified.call.id)


async def test_without_an_audit_line_nothing_is_committed(path, store, seen):
    """The line comes first."""
    seen.broken = True

    assert (await _through(path, _write())).reasons[0].code == "gate_error"
    assert store.steps == ["stage"]


async def test_a_store_that_is_gone_when_the_answer_comes_leaves_the_write_in_flight(
    path, store, seen
):
    """The answer goes on; reading back finds out."""
    classified = _write()
    assert (await _through(path, classified)).action is Action.ALLOW
    store.answers = {"settle acknowledged": DOWN}

    await path.settle(classified.call.id, Fate.ACKNOWLEDGED)

    assert seen.errors == 1
    assert ("acknowledged", "none") not in seen.outcomes
    assert not path.is_committed(classified.call.id)


@pytest.mark.parametrize("fate", [Fate.ACKNOWLEDGED, Fate.FAILED, Fate.UNKNOWN, Fate.ABANDONED])
async def test_every_fate_is_settled_once_and_counted(path, store, seen, fate):
    """Whatever the store did with it."""
    classified = _write()
    await _through(path, classified)

    await path.settle(classified.call.id, fate)
    await path.settle(classified.call.id, Fate.ACKNOWLEDGED)

    assert store.steps[2:] == [f"settle {fate.value}"]
    assert seen.outcomes[-1] == (fate.value, "none")


@pytest.mark.parametrize("agrees", [True, False])
async def test_a_checker_has_the_last_word_on_its_classes(store, seen, agrees):
    """And is not asked about others."""
    policy = load_policies([POLICY])
    asked = []

    async def checker(candidate, target):
        asked.append((candidate.texts, target))
        return agrees

    looks = {**policy.memory.second_look, MemoryClass.L3: SecondLook.CHECKER}
    memory = replace(policy.memory, second_look=looks)
    path = WritePath(
        policy=replace(policy, memory=memory),
        staging=store,
        audit=seen,
        metrics=seen,
        checker=checker,
    )

    assert (await _through(path, _write("L4"))).action is Action.ALLOW
    verdict = await _through(path, _write("L3"))

    assert asked == [(("a fact",), MemoryClass.L3)]
    assert (verdict.action is Action.ALLOW) is agrees
    assert agrees or verdict.reasons[0].code == "second_look_failed"


@pytest.mark.parametrize("answers", [{"stage": DOWN}, {"reserve": DOWN}, {"stage": "garbage"}])
async def test_a_result_whose_proposal_was_not_judged_is_withheld(path, store, seen, answers):
    """With the reason, and no word of it."""
    store.answers = answers
    call = ToolCall("f", Identity("p", "s"), "fetch_document", {}, "mcp", 0.0)
    update = {"memory_update": {"content": "secret text", "memory_class": "L4", "nonce": "n"}}

    verdict = await path.judge_result(
        ToolResult(untraced(ClassifiedCall(call, Role.RETRIEVE)), update, 0.0)
    )

    assert verdict.reasons[0].code == "gate_error"
    assert "secret text" not in str(verdict)
    assert seen.errors == 1


async def test_a_cancelled_judgement_commits_nothing(path, store):
    """The agent hung up while Redis was slow."""
    store.answers = {"stage": asyncio.CancelledError()}

    with pytest.raises(asyncio.CancelledError):
        await path.judge(_write(), Snapshot(), ALLOW)

    assert store.steps == ["stage"]
