"""A large message has one budget, is read elsewhere as it would be read here, and fails closed."""

import asyncio
import pickle
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from guard.core.errors import MessageError
from guard.core.model import Identity, ToolCall
from guard.core.work import WorkExceededError
from guard.detectors.secrets import Secrets
from guard.pipeline import call_reading
from guard.pipeline.large_work import LARGE
from guard.pipeline.outcome import JudgeRequest
from guard.policy import load_policies
from lab.pages import page
from tests.guards import down, guard_on
from tests.unit.provenance.agents import POLICY, Agent

SHIPPED = (
    "default.yaml",
    "examples/coding_agent.yaml",
    "profiles/graphiti.yaml",
    "examples/strict.yaml",
)
TOOLS = ("email_send_email", "add_memory", "write_file", "unknown")


@pytest.fixture
def agent(store, policy_from):
    """Return an agent behind a guard on a fresh store."""
    return Agent(guard_on(store, policy_from(POLICY)))


def addresses(count):
    """Return as many mailboxes."""
    return [f"user{n}@host{n}.test" for n in range(count)]


def drawn(draw, depth=0):
    """Return a JSON value with addresses, codings and prose in it."""
    leaves = (
        page(draw.randrange(200, 3000), draw.randrange(40)),
        f"bob{draw.randrange(9)}@partner.test",
        "".join(f"%{ord(c):02x}" for c in page(300, draw.randrange(9))),
        draw.randrange(10**12),
        draw.choice([None, True, 1.5, "", "AKIAIOSFODNN7EXAMPLE", "NO1234567890123"]),
    )
    if depth == 3 or draw.random() < 0.6:
        return draw.choice(leaves)
    names = ("to", "body", "subject", "bcc", "extra", "my key.x", "url", "content", "attendees")
    inner = [drawn(draw, depth + 1) for _ in range(draw.randrange(6))]
    return inner if draw.random() < 0.5 else {draw.choice(names): one for one in inner}


def through_a_pickle(seal, questions):
    """Read some calls as another process does."""
    asked = pickle.loads(pickle.dumps((seal, questions)))
    return pickle.loads(pickle.dumps(call_reading.read_calls(*asked)))


@pytest.mark.parametrize("seed", range(4))
async def test_calls_that_are_read_elsewhere_are_decided_as_if_read_here(store, seed):
    """Verdicts, reasons and targets are those of a guard that reads everything itself."""
    draw, read = random.Random(seed), []
    policy = load_policies([Path("policies") / SHIPPED[seed]])

    async def elsewhere(seal, questions):
        read.append(len(questions))
        return through_a_pickle(seal, questions)

    here, there = (guard_on(store, policy, detectors=(Secrets(),)) for _ in range(2))
    there.calls.large._reads = elsewhere
    protocol = draw.choice(["test", "http"])
    for number, tool in enumerate(TOOLS):
        more = {"to": "team@inside.test", "method": "POST", "url": "https://x.test/v1/add"}
        drawn_ones = {f"a{n}": drawn(draw) for n in range(3)}
        arguments, found = {**more, **drawn_ones, "note": page(LARGE, number) + "."}, []
        for who, guard in (("alice", here), ("bob", there)):
            identity, upstream = Identity(who, "one"), ("box", "box/mcp")
            call = ToolCall(f"{who}-{number}", identity, tool, arguments, protocol, 1e9, *upstream)
            found += await guard.judge(JudgeRequest([call]))
        (own, verdict), (other, decided) = found
        assert replace(own.classified, call=other.call) == other.classified
        assert [r.code for r in decided.reasons] == [r.code for r in verdict.reasons]
        assert (decided.action, other.targets) == (verdict.action, own.targets)
    assert read == [1] * len(TOOLS)


@pytest.mark.parametrize(
    "arguments",
    [
        {"extra": addresses(40_000)},
        {"extra": {f"k{n}.x": "v" for n in range(150_000)}},
        {"extra": [[] for _ in range(200_000)]},
        {"extra": [{"a": 1} for _ in range(70_000)]},
        {"extra": ["x y"] * 50_000},
    ],
    ids=["mailboxes", "members", "lists", "objects", "words"],
)
async def test_a_call_that_takes_too_much_work_is_blocked(agent, arguments):
    """It is refused with a reason of its own; no more of it is read."""
    traced, verdict = await agent.ask("send", arguments)
    assert [reason.code for reason in verdict.reasons] == ["work_exceeded"]
    assert not verdict.enforced.forwards
    assert traced.targets == ()


async def test_the_calls_of_one_message_share_one_budget(agent):
    """Each alone is within it; all together are not, and none goes out."""
    one = {"extra": [[] for _ in range(30_000)]}
    first, alone = await agent.ask("send", one)
    more = [replace(first.call, id=f"d-{n}") for n in range(10)]
    together = await agent.guard.judge(JudgeRequest(more))
    assert "work_exceeded" not in {reason.code for reason in alone.reasons}
    assert all(verdict.reasons[0].code == "work_exceeded" for _, verdict in together)


async def test_a_text_that_cannot_be_read_is_refused(agent):
    """The process that reads it died; a short one is read here."""
    large = agent.guard.calls.large
    assert len(await large.json("p", b'"' + b"x" * 1_000_000 + b'"')) == 1_000_000
    with pytest.raises(WorkExceededError):
        await large.json("p", b"[" + b"[]," * 200_000 + b"1]")
    large._parses = down
    assert await large.json("p", b'{"a": 1}') == {"a": 1}
    with pytest.raises(MessageError) as caught:
        await large.json("p", b"[" + b"1," * 200_000 + b"1]")
    assert (caught.value.code, caught.value.status) == ("guard_error", 503)
    assert agent.guard.results._metrics.errors["parse"] == 1


WAIT = 20.0
LONG = {"to": "team@inside.test", "body": "word " * 20_000}


async def test_a_large_call_does_not_hold_up_others(agent, monkeypatch):
    """Its classification waits here until a short call has been judged, which would never be."""
    judged, before = threading.Event(), call_reading.classify
    waited = []

    def classify(policy, call, *rest):
        if len(call.arguments["body"]) > LARGE:
            waited.append(judged.wait(WAIT))
        return before(policy, call, *rest)

    monkeypatch.setattr(call_reading, "classify", classify)
    large = asyncio.ensure_future(agent.ask("send", LONG))
    await asyncio.sleep(0)
    verdict = await agent.send("team@inside.test", body="hello")
    judged.set()
    _, other = await large
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
    large = asyncio.ensure_future(agent.ask("send", LONG))
    await asyncio.to_thread(begun.wait, WAIT)
    assert agent.guard.threads.is_stuck(0.0)
    assert not agent.guard.threads.is_stuck(WAIT)
    ended.set()
    _, verdict = await large
    assert verdict.action.label == "block"
    assert not agent.guard.threads.is_stuck(0.0)
