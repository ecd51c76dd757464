"""The road of a message without a proxy: one claimant, results matched wherever they come back."""

import json

import pytest

from guard.core.model import Role
from guard.pipeline.exchange import Exchange
from guard.pipeline.handler_parts import Options
from guard.protocols.http.message import HttpReply
from guard.store.store import RedisSessionStore
from tests.guards import shipped
from tests.roads import SSE, Road, answer_of, http_request, in_session, text_result, tool_call


class RecordingStore(RedisSessionStore):
    """The real store, remembering what was completed."""

    completed: list[tuple[str, Role, bool]]
    failing = False

    async def attempt(self, attempt):
        """Append to the real store; remember the marks, or fail."""
        if self.failing:
            raise ConnectionError
        self.marks = attempt.unlabelled
        return await super().attempt(attempt)

    async def complete(self, completion):
        """Complete in the real store, or fail as if it were gone."""
        if self.failing:
            raise ConnectionError
        self.completed.append((completion.identity.session, completion.role, completion.executed))
        await super().complete(completion)


@pytest.fixture(name="store")
async def _store(redis_server, redis_namespace):
    store = RecordingStore.at(redis_server.url, namespace=redis_namespace, timeout=60.0)
    store.completed = []
    yield store
    await store.aclose()


@pytest.fixture(name="enforcement")
def _enforcement(store):
    return Road(store, shipped("default.yaml"), options=Options(model_apis=("llm",))).enforcement


def recall(ident=1, session="s1"):
    """Return a recall with a JSON-RPC id, in a session."""
    return http_request(RECALL | {"id": ident}, in_session(session))


def listen(session="s1"):
    """Return the GET that opens the server's stream."""
    version = "mcp-protocol-version", "2025-11-25"
    return http_request(None, SSE, version, in_session(session), method="GET", connection="c2")


RECALL = tool_call("memory_recall_fact", {"key": "k"})
ANSWER = json.dumps(answer_of(text_result("a fact"))).encode()


async def forwarded(enforcement, request):
    """Send a request that must be forwarded."""
    outcome = await enforcement.requests.on_request(request)
    assert isinstance(outcome, Exchange), outcome
    return outcome


@pytest.mark.parametrize("answer", [ANSWER, b"<html>gateway error</html>"])
async def test_a_result_in_the_body_completes_its_call_once(enforcement, store, answer):
    """A call that was forwarded is executed, whatever the upstream answered, and once."""
    exchange = await forwarded(enforcement, recall())

    for _ in range(2):
        await enforcement.responses.on_answer(exchange, answer)

    assert store.completed == [("s1", Role.RECALL, True)]


async def test_the_same_id_in_another_session_is_another_call(enforcement, store):
    """Two clients both count from 1; neither may end the other's call."""
    await forwarded(enforcement, recall(session="s1"))
    other = enforcement.responses.event_reader(await forwarded(enforcement, listen(session="s2")))

    await other.feed(b"data: " + ANSWER + b"\n\n")

    assert store.completed == []


async def test_a_result_the_store_could_not_take_is_carried_by_the_next_attempt(enforcement, store):
    """What was released unlabelled is written before anything else is judged."""
    exchange = await forwarded(enforcement, recall())
    store.failing = True
    await enforcement.responses.on_answer(exchange, ANSWER)
    assert isinstance(await enforcement.requests.on_request(recall(ident=2)), HttpReply)
    store.failing = False

    await forwarded(enforcement, recall(ident=2))
    first = store.marks
    await forwarded(enforcement, recall(ident=3))

    assert (first, store.marks) == (1, 0)


@pytest.mark.parametrize(("claimants", "code"), [(2, b"two_protocols"), (1, b"guard_error")])
async def test_two_claimants_or_one_that_raises_are_a_refusal(
    enforcement, store, monkeypatch, claimants, code
):
    """A request that two protocols claim has two readings; a bug must not become a way out."""
    protocol = next(p for p in enforcement.requests._protocols._protocols if p.name == "mcp")
    if claimants == 1:
        monkeypatch.setattr(protocol, "parse", None)
    monkeypatch.setattr(enforcement.requests._protocols, "_protocols", [protocol] * claimants)
    outcome = await enforcement.requests.on_request(recall())

    assert code in outcome.body
    assert store.completed == []


@pytest.mark.parametrize("host", ["mail:443", "llm.evil.test:443", "evil.test:443"])
async def test_a_model_path_on_an_undeclared_host_is_a_plain_request(enforcement, host):
    """Many services have a path for messages; only declared hosts hold conversations."""
    said = {"model": "m", "messages": [{"role": "user", "content": "figures"}]}
    asked = http_request(said, target="/v1/messages", host=host, scheme="https")
    assert (await enforcement.requests.on_request(asked)).status == 403
