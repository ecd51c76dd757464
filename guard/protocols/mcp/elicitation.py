"""Questions of the guard to the person at an MCP client.  Pure: no I/O.

Up to 2025-11-25 a server sends ``elicitation/create`` in an open stream and is answered in a POST;
since 2026-07-28 it answers a request with ``input_required``, and the request comes again with
``inputResponses`` and the ``requestState`` that it was given (SEP-2322).  A form has its answer in
it (from 2025-06-18 on).  A URL is opened by the person (from 2025-11-25 on): *accept* says that it
was, and nothing more; a server that cannot ask in a stream refuses with code -32042.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from guard.protocols.framing.json_messages import RpcMessage, read_messages
from guard.protocols.http.message import HttpReply, HttpRequest, json_body, rewritten
from guard.protocols.mcp.mcp import RESPONSES, STATE, VERSION_KEY

if TYPE_CHECKING:
    from guard.core.model import Json
    from guard.protocols.messages import Message

FORM: Final = "form"
URL: Final = "url"
ACCEPT: Final = "accept"
DECLINE: Final = "decline"
URL_REQUIRED: Final = -32042
OWN: Final = "guard-approval"
"""The guard's own member of ``inputRequests`` and ``inputResponses``."""
MARK: Final = "guard-state-1."
"""Prefix of a ``requestState`` of the guard's own."""
OWN_ID: Final = b"guard-elicit-"
OWN_STATE: Final = MARK.encode()
"""Text in the body of every message that is for the guard, and in hardly any other."""
_ID: Final = re.compile(r"guard-elicit-[0-9a-f]{32}")
_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
_COMES_AGAIN: Final = "2026-07-28"
_ASKABLE: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests that a server may answer with ``input_required``."""


@dataclass(frozen=True, slots=True)
class ElicitationRequest:
    """Question for a person, and the address of its page."""

    mode: str
    text: str
    decision: str
    page: str = ""

    @property
    def params(self) -> dict[str, Json]:
        """The parameters of ``elicitation/create``."""
        if self.mode == URL:
            return {
                "mode": URL,
                "elicitationId": self.decision,
                "url": self.page,
                "message": self.text,
            }
        field = {"type": "boolean", "title": "Let this call go out", "default": False}
        schema = {"type": "object", "properties": {"approve": field}, "required": ["approve"]}
        return {"message": self.text, "requestedSchema": schema}


def modes(message: Message) -> frozenset[str] | None:
    """Return how a client says that its person can be asked; None where it says nothing of it.

    It says so once, in ``initialize``, and since 2026-07-28 in every request.
    """
    for rpc in message.parsed[1] if message.parsed else ():
        meta = rpc.params.get("_meta")
        capabilities = meta.get(_CAPABILITIES) if isinstance(meta, dict) else None
        if rpc.method == "initialize":
            capabilities = rpc.params.get("capabilities")
        if isinstance(capabilities, dict):
            able = capabilities.get("elicitation")
            if not isinstance(able, dict):
                return frozenset()
            # Without a mode it is the one that was there first.
            return frozenset({FORM, URL} & able.keys()) or frozenset({FORM})
    return None


def may_be_retried(message: Message) -> bool:
    """Return whether a message is one request that may be answered with ``input_required``."""
    is_batch, rpcs = message.parsed
    if is_batch or rpcs[0].method not in _ASKABLE:
        return False
    meta = rpcs[0].params.get("_meta")
    revision = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    return isinstance(revision, str) and revision >= _COMES_AGAIN


def input_required(message: Message, question: ElicitationRequest, state: str) -> HttpReply:
    """Return the answer that has the client ask its person and send the request again."""
    requests = {OWN: {"method": "elicitation/create", "params": question.params}}
    result = {"resultType": "input_required", "inputRequests": requests, STATE: state}
    return _reply({"jsonrpc": "2.0", "id": message.parsed[1][0].id, "result": result})


def url_required(message: Message, question: ElicitationRequest) -> HttpReply | None:
    """Return the error that has the client open a page and come again; None for a batch."""
    is_batch, rpcs = message.parsed
    if is_batch or rpcs[0].id is None:
        return None
    data = {"elicitations": [question.params]}
    error = {"code": URL_REQUIRED, "message": question.text, "data": data}
    return _reply({"jsonrpc": "2.0", "id": rpcs[0].id, "error": error})


def create(identifier: str, question: ElicitationRequest) -> bytes:
    """Return the request by which a person is asked in an open stream."""
    request = {"id": identifier, "method": "elicitation/create", "params": question.params}
    return json.dumps({"jsonrpc": "2.0", **request}).encode()


def settled(identifier: str, question: ElicitationRequest) -> bytes:
    """Return the notification that a question needs no answer any more.

    What a page was opened for is complete; a form is cancelled, which nobody minds who has sent it.
    """
    method, params = "notifications/cancelled", {"requestId": identifier}
    if question.mode == URL:
        method, params = "notifications/elicitation/complete", {"elicitationId": question.decision}
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def answer_in(request: HttpRequest) -> RpcMessage | None:
    """Return a client's answer to a question of the guard's own, None for any other message.

    Raises:
        MessageError: the message cannot be read one way only.
    """
    [*messages] = read_messages(request.json())
    found = [rpc for rpc in messages if rpc.method is None and is_own(rpc.id)]
    if found and len(messages) > 1:
        raise MessageError("bad_call", "an answer to the guard stands alone")
    return found[0] if found else None


def is_own(identifier: Json) -> bool:
    """Return whether an id is one that the guard gives its questions."""
    return isinstance(identifier, str) and _ID.fullmatch(identifier) is not None


@dataclass(frozen=True, slots=True)
class RetriedRequest:
    """A request that its client retries after the guard had its person asked."""

    request: HttpRequest
    """Request as it arrived, the guard's own state and answer in it."""
    state: str
    answer: Json
    """Answer of the client's person, as the client states it; None where it states none."""

    def restored(self, state: Json, responses: Json) -> HttpRequest:
        """Return the request as it was asked about.

        Args:
            state: the ``requestState`` that it had then, None for none.
            responses: likewise its ``inputResponses``.

        Raises:
            MessageError: it has a number that would come out as another.
        """
        message = self.request.json()
        params = {n: v for n, v in message["params"].items() if n not in {RESPONSES, STATE}}
        if responses is not None:
            params[RESPONSES] = responses
        if state is not None:
            params[STATE] = state
        body = json_body(self.request, {**message, "params": params})
        kept = (pair for pair in self.request.headers if pair[0] != "content-encoding")
        return rewritten(self.request, body=body, headers=tuple(kept))


def retried_request(request: HttpRequest) -> RetriedRequest | None:
    """Return a retried request, known by the guard's own state in it; None for any other.

    Raises:
        MessageError: the state stands in a batch, or with answers that the guard did not ask for.
    """
    value = request.json()
    if isinstance(value, list):
        if any(_own_state(item) for item in value):
            raise MessageError("bad_request_state", "a request that comes again stands alone")
        return None
    state = _own_state(value)
    if not state:
        return None
    responses = value["params"].get(RESPONSES)
    if responses is not None and (not isinstance(responses, dict) or set(responses) - {OWN}):
        raise MessageError("bad_request_state", "it answers what was not asked")
    return RetriedRequest(request, state, (responses or {}).get(OWN))


def waiting_on(message: Message) -> tuple[Json, Json]:
    """Return ``requestState`` and ``inputResponses`` of a request, None for what it has not."""
    params = message.parsed[1][0].params
    return params.get(STATE), params.get(RESPONSES)


def _own_state(item: Json) -> str:
    params = item.get("params") if isinstance(item, dict) else None
    state = params.get(STATE) if isinstance(params, dict) else None
    return state if isinstance(state, str) and state.startswith(MARK) else ""


def _reply(document: Json) -> HttpReply:
    return HttpReply(200, "application/json", json.dumps(document).encode())
