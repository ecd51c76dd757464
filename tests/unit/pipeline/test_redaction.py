"""What is found in a call is left out of its message exactly, or the message stays here."""

import json
from dataclasses import replace

import pytest

from guard.core.model import Finding
from guard.detectors import DetectorResources
from guard.detectors.secrets import Secrets
from guard.pipeline.exchange import Exchange
from guard.pipeline.handler_parts import Options
from tests.model_wires import Call, stream
from tests.roads import Road, http_request, rpc, tool_call
from tests.unit.pipeline.test_model_answers import ask as ask_model

POLICY = """
version: 1
name: redacts
tools:
  - {match: [send], role: send, destinations: ["$.to"], body: ["$.body"]}
  - {match: [http.request, http.envelope, websocket.message], role: other}
rules:
  - {id: secrets, type: content, finds: [secret_found], effect: redact}
  - {id: allow, type: tool, effect: allow}
"""
TOKEN = "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"
TEXT = f"the key is {TOKEN}, bye"


@pytest.fixture
def road(store, policy_from):
    """Return the handlers of a guard that redacts secrets."""
    detectors = (Secrets.create(DetectorResources()),)
    options = Options(model_apis=("llm",))
    return Road(store, policy_from(POLICY), detectors=detectors, options=options)


def mail(ident=1, to="a@b.test", body=TEXT):
    """Return a call."""
    return tool_call("send", {"to": to, "body": body}, ident)


async def _sent(road, *headers, document, **more):
    """Send a request; return the bytes that go out, None where it stays."""
    outcome = await road.ask(document, *headers, **more)
    if not isinstance(outcome, Exchange):
        return None
    return http_request(document).body if outcome.rewritten is None else outcome.rewritten.body


async def _model(road):
    """Have a model ask for the call; return what its client gets of it."""
    reader = road.responses.event_reader(await road.requests.on_request(ask_model("openai_chat")))
    called = Call("c", "send", {"to": "a@b.test", "body": TEXT})
    out = [*await reader.feed(stream("openai_chat", "hi", [called], 90)), *await reader.end()]
    return b"".join(out) if b"a@b.test" in b"".join(out) else None


async def _socket(road):
    opened = road.enforcement.sockets.opened(await road.forwarded(rpc("ping")), "ws://t/", "t")
    return b"" if await road.enforcement.sockets.from_client(opened, TEXT.encode()) else None


def _plain(body):
    return {"document": body, "target": "/x", "host": "web.test:80"}


ENTRIES = {
    "a call": (lambda road: _sent(road, document=mail()), True),
    "a batch": (lambda road: _sent(road, document=[mail(1, body="b"), mail(2)]), True),
    "a plain request": (lambda road: _sent(road, **_plain(json.dumps(TEXT).encode())), True),
    "bytes": (lambda road: _sent(road, ("content-type", "x/y"), **_plain(b"\xff " + TEXT.encode())),
              False),
    "a receiver": (lambda road: _sent(road, document=mail(to=f"https://b.test/{TOKEN}")), False),
    "a header": (lambda road: _sent(road, ("x-note", TOKEN), document=rpc("ping")), False),
    "a model's answer": (_model, False),
    "a WebSocket": (_socket, False),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "exact"), ENTRIES.values(), ids=ENTRIES)
async def test_a_secret_is_left_out_exactly_or_nothing_goes_out(road, entry, exact):
    """Where the message cannot be written anew, where it names whom it reaches, or beside it."""
    sent = await entry(road)
    assert (sent is not None) is exact
    assert TOKEN.encode() not in (sent or b"")


def _same(self, request, arguments):
    """Write the message as it was."""
    return request


class Odd(Secrets):
    """Finds secrets; the second look fails, or the first one does not say where."""

    def __init__(self, how):
        self.how, self.inner, self.looks = how, Secrets.create(DetectorResources()), 0

    def inspect(self, call, snapshot):
        """Return a finding, in its way."""
        self.looks += 1
        if self.looks == 1 and self.how != "nowhere":
            return self.inner.inspect(call, snapshot)
        if self.how == "raises":
            raise RuntimeError
        return (Finding("secrets", "secret_found"),)


@pytest.mark.parametrize("how", ["raises", "again", "nowhere", "as it was", "off"])
async def test_a_redaction_that_is_not_certain_is_a_refusal(road, monkeypatch, how):
    """The second look fails or finds it again, no place is told, or the message says it still."""
    if how == "as it was":
        [mcp] = [p for p in road.requests._protocols._protocols if p.name == "mcp"]
        monkeypatch.setattr(type(mcp), "rewrite", _same)
    elif how != "off":
        road.guard._detection._detectors = (Odd(how),)
    else:
        rules = tuple(rule for rule in road.policy.rules if rule.id != "secrets")
        road.guard.swap_policy(replace(road.policy, rules=rules))
    sent = await _sent(road, document=mail())
    assert (sent is None) is (how != "off")
