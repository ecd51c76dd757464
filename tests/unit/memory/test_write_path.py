"""Every part of the gate that fails, is slow or answers garbage: the write is refused, and told."""

import asyncio
import itertools
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import StateError
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
from tests.guards import Audit, Counts

SERIAL = itertools.count()
ALLOW = Verdict(Action.ALLOW, Mode.ENFORCE, (), "d")
RIG = load_policies([POLICY])
USUAL = {
    "stage": StagedFacts(),
    "commit": "",
    "refuse": Trust.TRUSTED,
    "settle": (),
    "reserve": True,
    "read": None,
}
"""Answers of a staging store that works."""


class Store:
    """A staging store, each of whose steps can be given another answer."""

    limits = None

    def __init__(self):
        self.steps, self.answers = [], {}

    def __getattr__(self, name):
        async def step(*given):
            said = " ".join([name, *(one.value for one in given if isinstance(one, Fate))])
            self.steps.append(said)
            answer = self.answers.get(said, USUAL[name])
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return step


@pytest.fixture
def store():
    """A staging store that works."""
    return Store()


@pytest.fixture
def audit():
    """An audit log that works."""
    return Audit()


@pytest.fixture
def metrics():
    """Metrics that keep what is counted."""
    return Counts()


@pytest.fixture
def path(store, audit, metrics):
    """A write path on them."""
    return WritePath(policy=RIG, staging=store, audit=audit, metrics=metrics)


def outcomes(metrics):
    """Return the outcomes that were counted, with the reason of each."""
    return [tuple(labels[:2]) for metric, *labels in metrics.counted if metric is not ERRORS]


def errors(metrics):
    """Return the number of errors that were counted."""
    return sum(metric is ERRORS for metric, *_ in metrics.counted)


def _write(target="L4"):
    arguments = {"key": "k", "content": "a fact", "memory_class": target}
    call = ToolCall(f"c{next(SERIAL)}", Identity("p", "s"), "memory_write", arguments, "mcp", 0.0)
    return replace(untraced(classify(RIG, call)), saved=SavedText(Integrity.ADVISORY))


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
    path, store, metrics, answers, reason, steps
):
    """The agent is told, it is counted, and nothing is left that could be forwarded."""
    store.answers = answers
    classified = _write()

    verdict = await _through(path, classified)

    assert verdict.action is Action.BLOCK
    assert verdict.reasons[0].code == reason
    assert store.steps == steps
    assert outcomes(metrics)[-1] == ("refused", reason)
    assert not path.is_committed(classified.call.id)


async def test_without_an_audit_line_nothing_is_committed(path, store, audit):
    """The line comes first."""
    audit.fails.add("event")

    assert (await _through(path, _write())).reasons[0].code == "gate_error"
    assert store.steps == ["stage"]


async def test_a_store_that_is_gone_when_the_answer_comes_leaves_the_write_in_flight(
    path, store, metrics
):
    """The answer goes on; reading back finds out."""
    classified = _write()
    assert (await _through(path, classified)).action is Action.ALLOW
    store.answers = {"settle acknowledged": DOWN}

    await path.settle(classified.call.id, Fate.ACKNOWLEDGED)

    assert errors(metrics) == 1
    assert ("acknowledged", "none") not in outcomes(metrics)
    assert not path.is_committed(classified.call.id)


@pytest.mark.parametrize("fate", [Fate.ACKNOWLEDGED, Fate.FAILED, Fate.UNKNOWN, Fate.ABANDONED])
async def test_every_fate_is_settled_once_and_counted(path, store, metrics, fate):
    """Whatever the store did with it."""
    classified = _write()
    await _through(path, classified)

    await path.settle(classified.call.id, fate)
    await path.settle(classified.call.id, Fate.ACKNOWLEDGED)

    assert store.steps[2:] == [f"settle {fate.value}"]
    assert outcomes(metrics)[-1] == (fate.value, "none")


@pytest.mark.parametrize("agrees", [True, False])
async def test_a_checker_has_the_last_word_on_its_classes(store, audit, metrics, agrees):
    """And is not asked about others."""
    checker = AsyncMock(return_value=agrees)
    looks = {**RIG.memory.second_look, MemoryClass.L3: SecondLook.CHECKER}
    policy = replace(RIG, memory=replace(RIG.memory, second_look=looks))
    path = WritePath(policy=policy, staging=store, audit=audit, metrics=metrics, checker=checker)

    assert (await _through(path, _write("L4"))).action is Action.ALLOW
    verdict = await _through(path, _write("L3"))

    [asked] = checker.await_args_list
    assert (asked.args[0].texts, asked.args[1]) == (("a fact",), MemoryClass.L3)
    assert (verdict.action is Action.ALLOW) is agrees
    assert agrees or verdict.reasons[0].code == "second_look_failed"


@pytest.mark.parametrize("answers", [{"stage": DOWN}, {"reserve": DOWN}, {"stage": "garbage"}])
async def test_a_result_whose_proposal_was_not_judged_is_withheld(path, store, metrics, answers):
    """With the reason, and no word of it."""
    store.answers = answers
    call = ToolCall("f", Identity("p", "s"), "fetch_document", {}, "mcp", 0.0)
    update = {"memory_update": {"content": "secret text", "memory_class": "L4", "nonce": "n"}}

    verdict = await path.judge_result(
        ToolResult(untraced(ClassifiedCall(call, Role.RETRIEVE)), update, 0.0)
    )

    assert verdict.reasons[0].code == "gate_error"
    assert "secret text" not in str(verdict)
    assert errors(metrics) == 1


async def test_a_cancelled_judgement_commits_nothing(path, store):
    """The agent hung up while Redis was slow."""
    store.answers = {"stage": asyncio.CancelledError()}

    with pytest.raises(asyncio.CancelledError):
        await path.judge(_write(), Snapshot(), ALLOW)

    assert store.steps == ["stage"]
