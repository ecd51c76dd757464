"""A large message is judged beside the others, not before them."""

import asyncio
import threading

import pytest

from guard.core.model import ToolCall
from guard.pipeline import call_reading
from guard.pipeline.large_work import LARGE
from guard.pipeline.outcome import JudgeRequest
from guard.policy import load_policies
from tests.guards import guard_on
from tests.unit.provenance.agents import POLICY, Agent

WAIT = 20.0


@pytest.fixture
def agent(store, tmp_path):
    """Return an agent behind a guard on a fresh store."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return Agent(guard_on(store, load_policies([path])))


def call_of(agent, text, number):
    """Return a send with some text."""
    arguments = {"to": "team@inside.test", "body": text}
    return ToolCall(f"d-{number}", agent.identity, "send", arguments, "test", agent.at)


async def test_a_large_call_does_not_hold_up_others(agent, monkeypatch):
    """Its classification waits here until a short call has been judged, which would never be."""
    judged, before = threading.Event(), call_reading.classify
    waited = []

    def classify(policy, call, claim):
        if len(call.arguments["body"]) > LARGE:
            waited.append(judged.wait(WAIT))
        return before(policy, call, claim)

    monkeypatch.setattr(call_reading, "classify", classify)
    large = asyncio.ensure_future(
        agent.guard.judge(JudgeRequest([call_of(agent, "word " * 20_000, 1)]))
    )
    await asyncio.sleep(0)
    [(_, verdict)] = await agent.guard.judge(JudgeRequest([call_of(agent, "hello", 2)]))
    judged.set()
    [(_, other)] = await large
    assert waited == [True]
    assert (verdict.action.label, other.action.label) == ("allow", "allow")


async def test_a_thread_that_never_ends_is_noticed(agent, monkeypatch):
    """The worker stops its heartbeat then, and is replaced."""
    ended, begun = threading.Event(), threading.Event()

    def classify(*_, **__):
        begun.set()
        ended.wait(WAIT)
        raise ValueError("too late")

    monkeypatch.setattr(call_reading, "classify", classify)
    large = asyncio.ensure_future(
        agent.guard.judge(JudgeRequest([call_of(agent, "word " * 20_000, 1)]))
    )
    await asyncio.to_thread(begun.wait, WAIT)
    assert agent.guard.threads.is_stuck(0.0)
    assert not agent.guard.threads.is_stuck(WAIT)
    ended.set()
    [(_, verdict)] = await large
    assert verdict.action.label == "block"
    assert not agent.guard.threads.is_stuck(0.0)
