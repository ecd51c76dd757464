"""What is held open is released by a new judgement alone, in bounds, and ends in a refusal else."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from guard.core import metrics
from guard.core.errors import StateError
from guard.core.model import Identity
from guard.core.policy import AskSettings
from guard.pipeline import holding
from guard.pipeline.exchange import AskedRequest, UnparsedExchange
from guard.pipeline.holding import Holding
from guard.policy import load_policies
from guard.protocols.base import discover_protocols
from guard.protocols.http.message import HttpReply, HttpRequest
from guard.protocols.messages import Message
from guard.settings import policies_directory
from guard.telemetry.audit_log import NoAuditLog

MCP = next(one for one in discover_protocols() if one.name == "mcp")
EVENTS = (("accept", "text/event-stream"),)
BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}'


class Feed:
    """Answers as a test gives them; ``fails`` as long as the store is gone."""

    def __init__(self):
        self.open = {"d1", "d2"}
        self.told = []
        self.asked = 0
        self.fails = False

    async def fate(self, tenant, decision):
        """Return what became of it."""
        del tenant
        if self.fails:
            raise StateError("gone")
        if decision in self.open:
            return "open"
        return "denied" if (decision, False) in self.told else "gone"

    async def since(self, tenant, mark):
        """Return what was told since; the mark is a count."""
        del tenant
        self.asked += 1
        if self.fails:
            raise StateError("gone")
        return str(len(self.told)), self.told[int(mark) :] if mark else []

    def answer(self, decision, *, granted):
        """Answer a request, and tell of it."""
        self.open.discard(decision)
        self.told.append((decision, granted))


class Counted(metrics.Metrics):
    """Counts what becomes of what is held."""

    def __init__(self):
        self.held = Counter()
        self.errors = Counter()
        self.now = 0.0

    def count(self, metric, *labels):
        """Count an outcome."""
        if metric is metrics.HELD:
            self.held[labels[0]] += 1
        if metric is metrics.ERRORS:
            self.errors[labels[0]] += 1

    def set(self, metric, value, *labels):
        """Keep the gauge."""
        if metric is metrics.HELD_CALLS:
            self.now = value


class Stage:
    """What holds requests, and a judge that answers as a test says."""

    def __init__(self, ask=AskSettings(hold=300)):  # noqa: B008  (frozen)
        policy = load_policies([policies_directory() / "default.yaml"])
        self.policy = replace(policy, ask=ask)
        self.feed, self.metrics = Feed(), Counted()
        self.lines = []
        audit = NoAuditLog()
        audit.event = lambda _, fields: self.lines.append(fields)
        self.holding = Holding(self.feed, self._policy_for, audit, self.metrics)
        self.judged = 0
        self.looked = 0
        self.verdict = lambda: UnparsedExchange(MCP, None)

    def _policy_for(self, identity):
        del identity
        self.looked += 1
        return self.policy

    def asked(
        self,
        decision="d1",
        *,
        body=BODY,
        headers=EVENTS,
        principal="p",
    ):
        """Return a request that is asked about."""
        request = HttpRequest("POST", "http", "t:80", "/mcp", headers, body, "l", "c")

        def reworded(reason):
            return HttpReply(200, "application/json", reason.code.encode())

        reply = HttpReply(200, "application/json", b"approval_required")
        identity = Identity(principal, "s")
        parsed = Message(parsed=(False, ()))
        digest = self.policy.digest
        return AskedRequest(
            request, reply, MCP, parsed, identity, digest, (decision,), frozenset(), reworded
        )

    def hold(self, asked):
        """Hold it."""

        async def judge(request):
            self.judged += 1
            return self.verdict()

        return self.holding.hold(asked, judge)


@pytest.fixture
async def stage():
    """Return what holds requests, and a judge."""
    return Stage()


@pytest.fixture
async def held(stage):
    """Return the request that is held."""
    return stage.hold(stage.asked())


async def settled(held):
    """Return what became of a request."""
    async with asyncio.timeout(30):
        while await held.waiting() is not None:
            pass
    outcome = held.outcome()
    held.close()
    return outcome


async def test_a_yes_has_the_request_judged_anew(stage, held):
    """The verdict of that judgement is what happens; the answer itself is none."""
    assert await held.waiting() == []
    stage.feed.answer("d1", granted=True)

    assert isinstance(await settled(held), UnparsedExchange)
    assert stage.judged == 1
    assert stage.metrics.now == 0


async def test_who_makes_a_request_is_proved_anew_when_it_is_judged_again(stage):
    """A token that ended while the request waited is no proof any more."""
    asked = stage.asked()
    asked.request.proved("p")
    held = stage.hold(asked)
    await held._again(asked)

    assert stage.judged == 1
    assert asked.request.proved() is None


async def test_an_answer_before_anybody_listened_counts(stage):
    """Between the question and the wait somebody may have been quick."""
    stage.feed.answer("d1", granted=True)

    assert isinstance(await settled(stage.hold(stage.asked())), UnparsedExchange)


@pytest.mark.parametrize("fails", [False, True])
async def test_time_that_is_up_is_the_refusal(fails):
    """Time is the event loop's; nothing is released either while the store is gone."""
    stage = Stage(AskSettings(hold=1))
    stage.feed.fails = fails

    assert (await settled(stage.hold(stage.asked()))).body == b"approval_required"
    assert stage.metrics.held == {"expired": 1}
    assert stage.judged == 0


@pytest.mark.parametrize("gone", [False, True])
async def test_a_request_that_nobody_answers_ends_as_a_block(gone):
    """The agent gets a final result, and nobody is asked again."""
    stage = Stage(AskSettings(hold=30))
    stage.policy = replace(stage.policy, limits=replace(stage.policy.limits, approval=1))
    stage.verdict = lambda: stage.asked("d2")
    held = stage.hold(stage.asked())
    await held.waiting()
    if gone:
        stage.feed.open.discard("d1")

    assert (await settled(held)).body == b"approval_expired"
    assert stage.metrics.held == {"unanswered": 1}
    assert stage.judged == gone


async def test_a_yes_that_nobody_told_of_is_found_at_the_end():
    """What wakes a request may be lost; the store is looked at before it is refused."""
    stage = Stage(AskSettings(hold=1))
    held = stage.hold(stage.asked())
    await held.waiting()
    stage.feed.open.clear()

    assert isinstance(await settled(held), UnparsedExchange)


@pytest.mark.parametrize("waits", [True, False])
async def test_a_change_of_policy_has_it_judged_anew(stage, held, waits):
    """No answer to the old question is waited for, from the wait on or from before it."""
    if waits:
        await held.waiting()
    stage.policy = replace(stage.policy, digest="0" * 64)
    stage.holding.look_at_policy()
    stage.verdict = lambda: HttpReply(200, "application/json", b"blocked")

    assert (await settled(held)).body == b"blocked"
    assert stage.metrics.held == {"refused": 1}


async def test_a_request_that_is_asked_about_again_waits_again(stage):
    """Somebody else has used the grant up: it waits for its own, a bounded number of times."""
    stage.feed.open = set()
    stage.verdict = lambda: stage.asked("d1")

    assert (await settled(stage.hold(stage.asked()))).body == b"approval_required"
    assert stage.judged == holding.JUDGEMENTS


async def test_a_judge_that_fails_is_a_refusal_that_is_worded_recorded_and_counted(stage):
    """An error on the way to a release is none, and an operator sees it."""
    stage.feed.answer("d1", granted=True)
    stage.verdict = lambda: 1 / 0
    held = stage.hold(stage.asked())

    assert (await settled(held)).body == b"guard_error"
    held.close()
    assert stage.metrics.errors == {"hook": 1}
    assert stage.metrics.held == {"failed": 1}
    assert [fields["outcome"] for fields in stage.lines] == ["failed"]


@pytest.mark.parametrize("method", ["fate", "since"])
async def test_a_feed_that_fails_in_an_unknown_way_releases_nothing(stage, method):
    """The request is refused and counted; what waits for answers goes on."""

    async def fails(*_):
        raise KeyError

    setattr(stage.feed, method, fails)
    held = stage.hold(stage.asked())

    assert (await settled(held)).body == b"guard_error"
    assert stage.judged == 0
    assert stage.metrics.errors["hook"] == 1


async def test_who_leaves_gives_its_place_back(stage, held):
    """And what is answered then is judged no more."""
    await held.waiting()
    held.close()
    held.close()
    stage.feed.answer("d1", granted=True)

    assert (await settled(held)).body == b"approval_required"
    assert stage.judged == 0
    assert stage.metrics.held == {"left": 1}


@pytest.mark.parametrize(
    ("bound", "value"), [("HELD_LIMIT", 1), ("HELD_EACH", 1), ("HELD_BYTES", len(BODY))]
)
async def test_what_exceeds_a_bound_is_refused_at_once(monkeypatch, bound, value):
    """As it would be without `hold`; a place that was given back is free again."""
    monkeypatch.setattr(holding, bound, value)
    stage = Stage()
    first = stage.hold(stage.asked())
    second = stage.hold(stage.asked("d2"))
    other = stage.hold(stage.asked("d2", principal="q")) if bound == "HELD_EACH" else None
    first.close()
    third = stage.hold(stage.asked("d2"))

    assert second is None
    assert stage.metrics.held["no_room"] == 1
    assert third is not None
    for one in (third, other):
        if one is not None:
            one.close()


@pytest.mark.parametrize(
    ("headers", "ask", "held"),
    [
        ((("prefer", "wait=3"),), AskSettings(hold=300), 3),
        ((("prefer", "respond-async, wait=900"),), AskSettings(hold=300), 300),
        ((("prefer", "wait=0"),), AskSettings(hold=300), 0),
        ((), AskSettings(hold=300, quiet=7), 7),
        ((("prefer", "awaits=9"),), AskSettings(hold=300, quiet=7), 7),
        ((), AskSettings(hold=5, quiet=20), 5),
    ],
)
def test_a_client_that_hears_nothing_waits_as_long_as_it_says(headers, ask, held):
    """RFC 7240's `wait`, within what the policy allows; else the policy's `quiet`."""
    request = HttpRequest("POST", "http", "t:80", "/", headers, b"", "l", "c")

    assert holding._silent_hold_seconds(request, ask) == held
