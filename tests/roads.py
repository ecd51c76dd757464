"""The way of a message through one guard without a proxy: requests, answers, streams and people."""

import json
from dataclasses import replace
from functools import partial
from operator import attrgetter

from guard.operations.labels import LabelOperator
from guard.pipeline.declarations import DeclarationHandler
from guard.pipeline.elicitation import Elicitor
from guard.pipeline.exchange import Exchange
from guard.pipeline.handler_parts import People
from guard.protocols.http.message import HttpReply, HttpRequest
from guard.provenance.seal import Seal
from guard.store.approval_requests import RedisAnswers
from guard.telemetry.metrics import PrometheusMetrics
from tests.guards import KEY, Audit, Clock, enforcement_of, guard_on

JSON = ("content-type", "application/json")
SSE = ("accept", "text/event-stream")
PAGE = "https://console.test"


def http_request(document=None, *headers, method="POST", target="/mcp", host="tools:80", **more):
    """Return a request; its body is the JSON of a document, bytes, or nothing.

    Args:
        document: of the body.
        headers: pairs, beside the type of a body.
        method: of HTTP.
        target: path and query.
        host: where it goes.
        more: further fields of it.
    """
    body = document if isinstance(document, bytes) else b""
    if document is not None and not body:
        body = json.dumps(document).encode()
    lines = (*([JSON] if body else []), *headers)
    given = {"scheme": "http", "server": "l", "connection": "c", **more}
    return HttpRequest(method=method, host=host, target=target, headers=lines, body=body, **given)


def rpc(method, params=None, ident=1):
    """Return a request of JSON-RPC."""
    named = {} if params is None else {"params": params}
    return {"jsonrpc": "2.0", "id": ident, "method": method, **named}


def tool_call(name, arguments, ident=1, **more):
    """Return a call of a tool."""
    return rpc("tools/call", {"name": name, "arguments": arguments, **more}, ident)


def answer_of(result, ident=1, member="result"):
    """Return an answer of JSON-RPC."""
    return {"jsonrpc": "2.0", "id": ident, member: result}


def text_result(text):
    """Return a tool's result that is one text."""
    return {"content": [{"type": "text", "text": text}]}


def in_session(session):
    """Return the header that names a session."""
    return "x-guard-session", session


def without_memo(request, **changes):
    """Return a request with other fields, read anew."""
    return replace(request, **changes, _memo={})


class Road:
    """The handlers of one guard, with the parts that note what servers declare.

    Args:
        store: of its state.
        policy: in force.
        audit: log of its decisions.
        metrics: of the guard.
        gated: namespace of staged writes.
        detectors: of the guard.
        people: true if somebody can be asked.
        parts: of the handlers besides.
    """

    def __init__(
        self, store, policy, *, audit=None, metrics=None, gated=None, detectors=(), people=False,
        **parts,
    ):  # fmt: skip
        self.store, self.policy, self.seal = store, policy, Seal(KEY)
        self.audit, self.metrics = audit or Audit(), metrics or PrometheusMetrics(policy)
        self.guard = guard_on(
            store, policy, metrics=self.metrics, audit=self.audit, gated=gated, detectors=detectors
        )
        operator = partial(LabelOperator, store, self.seal, policy.limits)
        self.operator = operator()
        if people:
            elicitor = Elicitor(
                approvals=operator,
                seal=self.seal,
                policy=partial(attrgetter("policy"), self.guard),
                clock=Clock(),
                audit=self.audit,
                metrics=self.metrics,
                page=PAGE,
            )
            parts["people"] = People(RedisAnswers(store), elicitor)
        declarations = DeclarationHandler(self.guard, store, self.seal, self.metrics, Clock())
        parts = {"declarations": declarations, **parts}
        self.enforcement = enforcement_of(self.guard, self.metrics, self.audit, **parts)
        self.requests, self.responses = self.enforcement.requests, self.enforcement.responses

    async def ask(self, document, *headers, **more):
        """Send a request; return the exchange, or the guard's answer."""
        return await self.requests.on_request(http_request(document, *headers, **more))

    async def forwarded(self, document, *headers, **more):
        """Send a request that must go out; return its exchange."""
        outcome = await self.ask(document, *headers, **more)
        assert isinstance(outcome, Exchange), outcome
        return outcome

    async def refused(self, document, *headers, **more):
        """Return whether a request stays here."""
        return isinstance(await self.ask(document, *headers, **more), HttpReply)

    async def answer(self, exchange, document, status=200):
        """Answer a request; return the body that is released instead, if any."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return await self.responses.on_answer(exchange, body, status)


def code_of(reply):
    """Return the code of a refusal, in whatever shape its client gets it."""
    document = json.loads(reply.body)
    result = document.get("result") or document.get("error") or document
    fields = result.get("_meta", result).get("guard") or result.get("data", {}).get("guard")
    return str(fields["code"])
