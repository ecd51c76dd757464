"""What a person is asked about goes out by a yes alone, whichever way the call came in.

Each entry of a call (a request that is told that it waits, one that is told nothing, a model's
answer in a stream or whole, a WebSocket) meets each thing that a person, a client or the guard's
own parts may do meanwhile; and each way to ask the person at the client meets each answer.
"""

import asyncio
import json
from dataclasses import replace

import pytest

from guard.core.errors import StateError
from guard.core.metrics import HELD
from guard.core.model import Identity
from guard.pipeline import holding, response
from guard.pipeline.exchange import Exchange
from guard.pipeline.handler_parts import Options
from guard.pipeline.holding import JUDGEMENTS, HeldRequest, in_events
from guard.pipeline.identity import Credentials
from guard.protocols.mcp.elicitation import MARK, OWN
from guard.store.approval_requests import RedisAnswers
from tests.guards import Counts, down
from tests.model_wires import Call, stream, whole
from tests.roads import PAGE, SSE, Road, answer_of, code_of, http_request, rpc, tool_call
from tests.unit.pipeline.test_model_answers import ask as ask_model

POLICY = """
version: 1
name: held
internal_domains: [inside.test]
approvals: {own: allow}
ask:
  hold: 60s
  quiet: 60s
  elicit:
    - {by: form, rules: [unknown], principals: [form]}
    - {by: url, principals: [url]}
tools:
  - {match: [send], role: send, destinations: ["$.to"], body: ["$.body"]}
  - {match: [http.request], role: send, destinations: ["$.url"], ignore: ["$.method", "$.host"]}
  - {match: [websocket.message], role: send, destinations: ["$.body"]}
rules:
  - {id: unknown, type: provenance, roles: [send], rungs: [claimed, unknown], effect: ask}
  - {id: known, type: provenance, roles: [send], rungs: [listed, granted], effect: allow}
"""
PAT = "pat@partner.test"
SEND = tool_call("send", {"to": PAT, "body": "b"}, _meta={"progressToken": "t"})
PROPOSED = Call("call_1", "send", {"to": PAT, "body": "b"})
LISTENERS = Credentials(listeners={"form": "form", "url": "url"})


@pytest.fixture
def road(store, policy_from):
    """Return the handlers of a guard that holds what it asks about."""
    return Road(
        store,
        policy_from(POLICY),
        metrics=Counts(),
        people=True,
        credentials=LISTENERS,
        options=Options(model_apis=("llm",)),
    )


def _outcome(outcome):
    """Return "released", or the code of a refusal; a state of the guard's own goes nowhere."""
    if not isinstance(outcome, Exchange):
        return code_of(outcome)
    assert outcome.rewritten is None or MARK.encode() not in outcome.rewritten.body
    return "released"


async def _ended(held):
    """Return what becomes of a held request in the end."""
    while (messages := await held.waiting()) is not None:
        assert all(json.loads(one)["jsonrpc"] for one in messages)
    outcome = held.outcome()
    held.close()
    return _outcome(outcome)


async def _held(road, request):
    """Send a request; return what its client got in the end."""
    held = await road.requests.on_holdable_request(request)
    return await _ended(held) if isinstance(held, HeldRequest) else _outcome(held)


def _in_answer(out):
    """Return whether an answer of a model has the call, or words in its place."""
    if b'"to"' in out.replace(b'\\"', b'"'):
        return "released"
    assert b"by the egress guard" in out
    return "refused"


async def _in_stream(road):
    return await _held(road, http_request(SEND, SSE))


async def _silent(road):
    return await _held(road, http_request(SEND, ("prefer", "wait=60")))


async def _plain(road):
    url = {"target": "/x", "host": "web.partner.test:80", "method": "GET"}
    return await _held(road, http_request(None, **url))


async def _model_stream(road):
    exchange = await road.requests.on_request(ask_model("openai_chat"))
    reader = road.responses.event_reader(exchange)
    out = await reader.feed(stream("openai_chat", "hi", [PROPOSED]))
    while reader.waits:
        assert reader.held
        out += await reader.go_on()
    out += await reader.end()
    while reader.waits:
        out += await reader.go_on()
    return _in_answer(b"".join(out))


async def _model_whole(road):
    asked = ask_model("openai_chat")
    asked = replace(asked, headers=(*asked.headers, ("prefer", "wait=60")), _memo={})
    exchange = await road.requests.on_request(asked)
    body = json.dumps(whole("openai_chat", "hi", [PROPOSED])).encode()
    out = await road.responses.on_answer(exchange, body) or body
    return _in_answer(out)


async def _socket(road):
    sockets = road.enforcement.sockets
    opened = sockets.opened(await road.forwarded(rpc("ping")), "ws://tools/x", "tools")
    return "released" if await sockets.from_client(opened, PAT.encode()) else "refused"


ENTRIES = {
    "in events": _in_stream,
    "silent": _silent,
    "plain": _plain,
    "model stream": _model_stream,
    "model body": _model_whole,
    "socket": _socket,
}
WORDED = {_in_stream, _silent, _plain}
"""Entries whose client gets a code."""


async def _yes(road, decision):
    await road.operator.approve(decision, 1000.0)


async def _no(road, decision):
    await road.operator.deny(decision)


async def _nobody(road, decision):
    """Let the time of the policy pass, as its clock would; the policy is the same."""
    road.enforcement.holding.look_at_policy()
    road.enforcement.holding.wake("another", "expired")
    road.enforcement.holding.wake(decision, "expired")


async def _stopped(road, decision):
    del decision
    for _ in range(2):
        road.enforcement.holding.stop()


async def _denied_by_policy(road, decision):
    """Put a policy in force that blocks what was asked about."""
    del decision
    rules = tuple(r.model_copy(update={"effect": r.effect.BLOCK}) for r in road.policy.rules)
    road.guard.swap_policy(replace(road.policy, rules=rules, digest="1" * 64))


async def _broken(road, decision):
    """Have the new judgement fail."""
    road.guard.calls._judge = None
    await road.operator.approve(decision, 1000.0)


MEANWHILE = {
    _yes: "released",
    _no: "approval_denied",
    _nobody: "approval_required",
    _stopped: "approval_required",
    _denied_by_policy: "provenance_unknown",
    _broken: "guard_error",
}


async def waiting(road):
    """Return the decision that people are asked about."""
    found = []
    async with asyncio.timeout(30):
        while not found or not road.enforcement.holding._waiting:
            await asyncio.sleep(0)
            found = await road.operator.waiting()
    return found[-1].decision


@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda one: one.__name__.strip("_"))
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
async def test_only_a_yes_releases_what_is_held(road, entry, meanwhile):
    """Whatever the entry; each ends with a line, a count, and nothing that is held."""
    work = asyncio.ensure_future(entry(road))
    await meanwhile(road, await waiting(road))
    found = await work

    assert (found == "released") is (meanwhile is _yes)
    if entry in WORDED:
        assert found == MEANWHILE[meanwhile]
    [line] = road.audit.named("guard.held")
    assert (HELD, line["outcome"]) in road.metrics.counted
    assert (line["outcome"] == "released") is (meanwhile is _yes)
    assert road.enforcement.holding.held == 0


LIMITS = {
    "its client waits no longer": (0.05, 3600, "approval_required", "expired"),
    "nobody is asked any more": (60, 0.05, "approval_expired", "unanswered"),
    "nothing is held": (0, 3600, "approval_required", None),
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
@pytest.mark.parametrize(("hold", "lasts", "code", "fate"), LIMITS.values(), ids=LIMITS)
async def test_what_nobody_answers_in_time_is_refused(road, entry, hold, lasts, code, fate):
    """Whose time is up decides whether the agent may come again."""
    ask = replace(road.policy.ask, hold=hold, quiet=hold, elicit=())
    limits = replace(road.policy.limits, approval=lasts)
    road.guard.swap_policy(replace(road.policy, ask=ask, limits=limits))

    assert await entry(road) == (code if entry in WORDED else "refused")
    assert [line["outcome"] for line in road.audit.named("guard.held")] == [fate] * bool(fate)


@pytest.mark.parametrize("fails", ["since", "fate"])
@pytest.mark.parametrize("error", [StateError("gone"), KeyError()])
async def test_a_store_that_does_not_tell_releases_nothing(road, monkeypatch, fails, error):
    """An error that nobody thought of ends the wait; else the store is asked until it answers."""
    down, method = [True], getattr(RedisAnswers, fails)

    async def gone(*arguments):
        if down[0]:
            raise error
        return await method(*arguments)

    monkeypatch.setattr(RedisAnswers, fails, gone)
    work = asyncio.ensure_future(_in_stream(road))
    if isinstance(error, KeyError):
        assert await work == "guard_error"
        return
    await _yes(road, await waiting(road))
    down[0] = False
    assert await work == "released"


@pytest.mark.parametrize(
    ("method", "answers", "found"),
    [("since", ("mark", []), "released"), ("fate", "gone", "approval_required")],
    ids=["never", "always"],
)
async def test_an_answer_that_nobody_told_of_is_found_at_the_end(
    road, monkeypatch, method, answers, found
):
    """A grant that others use up each time leaves the question open, a bounded number of times."""

    async def told(*_):
        return answers

    monkeypatch.setattr(RedisAnswers, method, told)
    if found == "released":
        ask = replace(road.policy.ask, hold=0.5)
        road.guard.swap_policy(replace(road.policy, ask=ask))
    work = asyncio.ensure_future(_in_stream(road))
    if found == "released":
        await _yes(road, await waiting(road))
    assert await work == found
    assert found == "released" or len(road.audit.verdicts) == JUDGEMENTS + 1


async def test_who_makes_a_held_request_is_proved_anew(road):
    """A token that ended while the request waited is no proof any more."""
    request = http_request(SEND, SSE)
    held = await road.requests.on_holdable_request(request)
    request.proved("p")
    await _yes(road, held.asked.decisions[0])
    while await held.waiting() is not None:
        assert held.asked.request is request
    held.close()
    assert request.proved() is None


def cancelled(ident):
    """Return the notification that a client waits for a request no longer."""
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ident}}


@pytest.mark.parametrize("leaves", ["hangs up", "cancels"])
async def test_who_leaves_gives_its_place_back(road, leaves):
    """And what is answered then is judged no more."""
    held = await road.requests.on_holdable_request(http_request(SEND, SSE))
    if leaves == "cancels":
        await waiting(road)
        for ident in (7, 1):
            await road.forwarded(cancelled(ident))
        assert await held.waiting(30) is not None or await held.waiting() is None
    held.close()
    held.close()
    await _yes(road, held.asked.decisions[0])

    assert held.outcome() is held.asked.reply
    assert road.enforcement.holding.held == 0
    assert [line["outcome"] for line in road.audit.named("guard.held")] == ["left"]
    assert in_events([]).startswith(b":")


async def test_who_reads_a_held_answer_of_a_model_is_told_that_it_waits(road, monkeypatch):
    """A sign after a while; of a stream that was given up nothing more is released."""
    monkeypatch.setattr(response, "FIRST_SIGN_SECONDS", 0.01)
    exchange = await road.requests.on_request(ask_model("openai_chat"))
    reader = road.responses.event_reader(exchange)
    assert await reader.go_on() == []
    await reader.feed(stream("openai_chat", "hi", [PROPOSED]))
    assert await reader.go_on() == [exchange.reader.sign]
    await road.forwarded(cancelled(1))
    for _ in range(2):
        reader.close()
        assert await reader.go_on() == []
    assert not reader.waits
    assert road.enforcement.holding.held == 0


@pytest.mark.parametrize("bound", ["HELD_LIMIT", "HELD_EACH", "HELD_BYTES"])
async def test_what_exceeds_a_bound_is_refused_at_once(road, monkeypatch, bound):
    """As it would be without `hold`; a place that was given back is free again."""
    request = http_request(SEND, SSE)
    monkeypatch.setattr(holding, bound, len(request.body) if bound == "HELD_BYTES" else 1)
    held = [await road.requests.on_holdable_request(request) for _ in range(2)]
    other = await road.requests.on_holdable_request(http_request(SEND, SSE, server="l:url"))
    held[0].close()
    held.append(await road.requests.on_holdable_request(request))

    assert [isinstance(one, HeldRequest) for one in held] == [True, False, True]
    assert isinstance(other, HeldRequest) is (bound == "HELD_EACH")
    assert (HELD, "no_room") in road.metrics.counted
    for one in (held[2], other):
        if isinstance(one, HeldRequest):
            one.close()


@pytest.mark.parametrize(
    ("prefers", "hold", "quiet", "held"),
    [
        ("wait=3", 300, 0, 3),
        ("respond-async, wait=900", 300, 0, 300),
        ("wait=0", 300, 9, 0),
        ("", 300, 7, 7),
        ("awaits=9", 300, 7, 7),
        ("", 5, 20, 5),
        ("wait=3", 0, 0, 0),
    ],
)
async def test_a_client_that_hears_nothing_waits_as_long_as_it_says(
    road, prefers, hold, quiet, held
):
    """RFC 7240's `wait`, within what the policy allows; else the policy's `quiet`."""
    ask = replace(road.policy.ask, hold=hold, quiet=quiet)
    road.guard.swap_policy(replace(road.policy, ask=ask))
    request = http_request(SEND, ("prefer", prefers))
    assert road.enforcement.holding.silent(Identity("p", "s"), request) == held


# --- the person at the client --------------------------------------------------------------------

REVISION = "2026-07-28"
CAPABLE = "io.modelcontextprotocol/clientCapabilities"
VERSION = "io.modelcontextprotocol/protocolVersion"


def modern(able, ident=1, **more):
    """Return a call of a client that comes again with an answer."""
    meta = {VERSION: REVISION, CAPABLE: {"elicitation": able}}
    return tool_call("send", {"to": PAT, "body": "b"}, ident, _meta=meta, **more)


def answered(action, approve=None):
    """Return what a client says that its person answered."""
    return {"action": action, **({} if approve is None else {"content": {"approve": approve}})}


async def initialize(road, principal, able):
    """Have a client say how its person can be asked."""
    params = {"protocolVersion": "2025-11-25", "capabilities": able}
    await road.requests.on_request(http_request(rpc("initialize", params), server=f"l:{principal}"))


ANSWERS = [
    (answered("accept", approve=True), "released", "opened"),
    (answered("accept", approve=False), "approval_denied", "opened"),
    (answered("decline"), "approval_denied", "approval_required"),
    (answered("cancel"), "approval_required", "approval_required"),
    (answered("accept", approve="true"), "approval_required", "opened"),
    (answered("accept"), "approval_required", "opened"),
    ("yes", "approval_required", "approval_required"),
]
"""An answer, what becomes of the call by a form, and by a page (``opened``: it waits still)."""


async def _asked_in_stream(road, principal, answer):
    """Hold a call open, answer the question in its stream; return its outcome."""
    await initialize(road, principal, {"elicitation": {"form": {}, "url": {}}})
    asked = http_request(SEND, SSE, server=f"l:{principal}")
    held = await road.requests.on_holdable_request(asked)
    progress, question = map(json.loads, await held.waiting())
    assert progress["method"] == "notifications/progress"
    said = answer_of(answer, question["id"])
    for server in ("l:other", f"l:{principal}"):
        reply = await road.requests.on_holdable_request(http_request(said, server=server))
        assert reply.status == 202
    if principal == "url" and isinstance(answer, dict) and answer["action"] == "accept":
        assert question["params"]["url"].startswith(f"{PAGE}/approvals/default/")
        assert await held.waiting(0.0) == []
        await _yes(road, held.asked.decisions[0])
    return await _ended(held)


async def _comes_again(road, principal, answer):
    """Have a call answered `input_required`, and come again with the answer."""
    server = {"server": f"l:{principal}"}
    asked = http_request(modern({"form": {}, "url": {}}), **server)
    result = json.loads((await road.requests.on_holdable_request(asked)).body)["result"]
    assert result["inputRequests"][OWN]["method"] == "elicitation/create"
    again = {"requestState": result["requestState"], "inputResponses": {OWN: answer}}
    again = http_request(modern({"form": {}, "url": {}}, 2, **again), SSE, **server)
    outcome = await road.requests.on_holdable_request(again)
    if not isinstance(outcome, HeldRequest):
        return _outcome(outcome)
    [waits] = await road.operator.waiting()
    await _yes(road, waits.decision)
    return await _ended(outcome)


@pytest.mark.parametrize("road_of", [_asked_in_stream, _comes_again])
@pytest.mark.parametrize(("answer", "by_form", "by_url"), ANSWERS)
async def test_an_answer_of_the_person_at_the_client_counts_as_the_policy_says(
    road, road_of, answer, by_form, by_url
):
    """A form's yes and no count; a page that was opened waits for the answer on it."""
    assert await road_of(road, "form", answer) == by_form
    for one in await road.operator.waiting():
        await road.operator.deny(one.decision)
    assert await road_of(road, "url", answer) == by_url.replace("opened", "released")
    answers = [line["answer"] for line in road.audit.named("guard.approval")]
    given = {"released": ["granted"], "approval_denied": ["denied"]}.get(by_form, [])
    assert answers == given


@pytest.mark.parametrize("road_of", [_asked_in_stream, _comes_again])
@pytest.mark.parametrize("broken", ["audit", "approvals"])
async def test_an_answer_that_cannot_be_recorded_or_taken_is_none(
    road, monkeypatch, road_of, broken
):
    """The line comes first; what the store refuses is on record as failed."""
    if broken == "audit":
        road.audit.fails.add("event")
    else:
        monkeypatch.setattr("guard.operations.labels.LabelOperator.approve", down)
    assert await road_of(road, "form", ANSWERS[0][0]) == "approval_required"
    lines = [line["answer"] for line in road.audit.named("guard.approval")]
    assert lines == ([] if broken == "audit" else ["granted", "failed"])


@pytest.mark.parametrize(
    ("able", "principal", "code"),
    [({"url": {}}, "url", "url"), ({"form": {}}, "url", None), ({}, "form", None),
     (None, "form", None), ({"url": {}}, "other", None)],
)  # fmt: skip
async def test_where_nothing_is_held_a_page_is_named_by_an_error(road, able, principal, code):
    """Only to who is asked by it and can open one; anybody else is refused as ever."""
    road.guard.swap_policy(replace(road.policy, ask=replace(road.policy.ask, hold=0, quiet=0)))
    await initialize(road, principal, {} if able is None else {"elicitation": able})
    asked = http_request(SEND, server=f"l:{principal}")
    document = json.loads((await road.requests.on_holdable_request(asked)).body)

    assert (document.get("error", {}).get("code") == -32042) is (code is not None)
    batch = await road.requests.on_holdable_request(http_request([SEND], server="l:url"))
    assert b"32042" not in batch.body


async def _again(road, change, answer=ANSWERS[0][0], server="l:form"):
    """Send a call again whose state or message was changed; return the code of its refusal."""
    first = await road.requests.on_holdable_request(
        http_request(modern({"form": {}}), server="l:form")
    )
    state = json.loads(first.body)["result"]["requestState"]
    document = modern({"form": {}}, 2, requestState=state, inputResponses={OWN: answer})
    reply = await road.requests.on_holdable_request(http_request(change(document), server=server))
    return code_of(reply) if isinstance(reply.body, bytes) and b"guard" in reply.body else "asked"


def _with(**params):
    return lambda document: {**document, "params": {**document["params"], **params}}


@pytest.mark.parametrize(
    ("change", "server", "code"),
    [
        (_with(requestState=f"{MARK}AAAA"), "l:form", "bad_request_state"),
        (_with(requestState=f"{MARK}{'A' * 80}"), "l:form", "bad_request_state"),
        (_with(requestState=f"{MARK}\xff"), "l:form", "bad_request_state"),
        (_with(), "l:url", "bad_request_state"),
        (_with(inputResponses={OWN: {}, "more": {}}), "l:form", "bad_request_state"),
        (_with(inputResponses=None), "l:form", "approval_required"),
    ],
)
async def test_a_state_that_is_not_this_clients_opens_nothing(road, change, server, code):
    """Altered, of somebody else, with further answers, or without any."""
    assert await _again(road, change, server=server) == code


async def test_a_store_that_is_gone_when_a_call_comes_again_refuses_it(road, monkeypatch):
    """What became of the question cannot be known."""
    monkeypatch.setattr(RedisAnswers, "fate", down)
    assert await _again(road, _with()) == "guard_error"


async def test_a_state_with_more_than_fits_is_not_asked_about(road):
    """What a server gave is kept in the state; where it does not fit, the call is held."""
    given = "x" * 20_000
    road.requests._parts.issued.add("tools:80/mcp", given)
    large = modern({"form": {}}, requestState=given)
    held = await road.requests.on_holdable_request(http_request(large, SSE, server="l:form"))
    assert isinstance(held, HeldRequest)
    held.close()
