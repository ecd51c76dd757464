"""A2A: messages of one agent to another, JSON-RPC over HTTP, revisions 0.2 to 1.0.  Pure: no I/O.

A message is a send to the host it goes to; what the other agent answers is a result, whole or
update by update.  Agent cards are fetched by plain requests, and are results of those.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.declarations import Declaration
from guard.core.errors import MessageError
from guard.protocols.base import ProtocolModule
from guard.protocols.framing.json_messages import (
    RpcMessage,
    asked_for,
    correlation,
    is_in_band,
    read_messages,
    reject_lookalike_keys,
)
from guard.protocols.http.message import HttpReply, HttpRequest, check_charset
from guard.protocols.messages import Message, ParsedCall, ParsedResult
from guard.protocols.refusals import Refusal, observation, sentence, unreadable, unreadable_sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json

MESSAGE: Final = "a2a.message"
"""A message to another agent, with everything in it."""
PUSH: Final = "a2a.push"
"""Address to which the other agent is to send its results."""
TASK: Final = "a2a.task"
"""Anything else about a task, or an agent's extended card."""
METHODS: Final = {
    "message/send": MESSAGE,
    "message/stream": MESSAGE,
    "tasks/send": MESSAGE,
    "tasks/sendSubscribe": MESSAGE,
    "SendMessage": MESSAGE,
    "SendStreamingMessage": MESSAGE,
    "tasks/pushNotificationConfig/set": PUSH,
    "tasks/pushNotification/set": PUSH,
    "CreateTaskPushNotificationConfig": PUSH,
    "SetTaskPushNotificationConfig": PUSH,
    "tasks/resubscribe": TASK,
    "tasks/pushNotificationConfig/get": TASK,
    "tasks/pushNotificationConfig/list": TASK,
    "tasks/pushNotificationConfig/delete": TASK,
    "tasks/pushNotification/get": TASK,
    "agent/getAuthenticatedExtendedCard": TASK,
    "GetTask": TASK,
    "ListTasks": TASK,
    "CancelTask": TASK,
    "SubscribeToTask": TASK,
    "GetTaskPushNotificationConfig": TASK,
    "ListTaskPushNotificationConfigs": TASK,
    "DeleteTaskPushNotificationConfig": TASK,
    "GetExtendedAgentCard": TASK,
}
"""The name of the call that a request of each method is."""
_SHARED: Final = frozenset({"tasks/get", "tasks/cancel"})
"""Methods that MCP has as well; there a task is named by ``taskId``."""
_REFUSED: Final = -32000
"""A server error that A2A itself does not use."""
_MEMBERS: Final = ("message", "id", "metadata", "configuration")


def speaks_a2a(value: Json) -> bool:
    """Return whether a parsed body is one request of A2A."""
    if not isinstance(value, dict):
        return False
    method, params = value.get("method"), value.get("params")
    if not isinstance(method, str):
        return False
    if method in _SHARED:
        return isinstance(params, dict) and "id" in params and "taskId" not in params
    return method in METHODS


class A2aProtocol(ProtocolModule):
    """A2A over JSON-RPC."""

    name: ClassVar[str] = "a2a"
    names_hosts: ClassVar[bool] = True
    event_names: ClassVar[frozenset[str]] = frozenset({"message"})

    def matches(self, request: HttpRequest) -> bool:
        """Return whether the body is a request of A2A."""
        if request.method != "POST" or not request.body:
            return False
        try:
            return speaks_a2a(request.json())
        except MessageError:
            return False

    def parse(self, request: HttpRequest) -> Message:
        """Return the request as one call: where it goes, and all that it says.

        Raises:
            MessageError: it can be read in two ways, or is a notification.
        """
        if request.media_type != "application/json":
            raise MessageError(
                "bad_content_type",
                "an a2a message must have content type application/json",
                status=415,
            )
        check_charset(request.header("content-type") or "")
        (rpc,) = read_messages(request.json())
        if rpc.id is None or rpc.method is None:
            raise MessageError("call_without_id", "an a2a message must be a request, with an id")
        reject_lookalike_keys(rpc.params, _MEMBERS)
        arguments = {
            "url": request.url,
            "host": request.host,
            "method": rpc.method,
            "params": dict(rpc.params),
        }
        call = ParsedCall(METHODS.get(rpc.method, TASK), arguments, rpc.correlation)
        return Message((call,), parsed=rpc)

    def refuse(self, message: Message, refusals: Sequence[Refusal | None]) -> HttpReply:
        """Return a JSON-RPC error that the calling agent can read."""
        refusal = next(r for r in refusals if r is not None)
        return self.refuse_whole(message, refusal)

    def refuse_whole(self, message: Message, refusal: Refusal) -> HttpReply:
        """Return the same, where it is refused for its side content."""
        rpc: RpcMessage = message.parsed
        fields = observation(refusal)
        return _error(200, rpc.id, sentence(fields), fields)

    def unreadable(
        self, error: MessageError, decision_id: str, request: HttpRequest | None = None
    ) -> HttpReply:
        """Return a JSON-RPC error, with the id of the request where it has one."""
        words = unreadable_sentence(error, decision_id)
        fields = unreadable(error, decision_id)
        named = (
            asked_for(request.lenient_json()) if request is not None and is_in_band(error) else []
        )
        if len(named) == 1:
            return _error(200, named[0][0], words, fields)
        return _error(error.status, None, words, fields)

    def results(self, content: Json) -> Sequence[ParsedResult]:
        """Return the answer in a body, or the first one in a stream, by its id."""
        found = _response(content)
        if found is None:
            return ()
        failed = "error" in found
        answer = found.get("error" if failed else "result")
        return (ParsedResult(correlation(found["id"]), answer, failed),)

    def declarations(self, content: Json) -> Sequence[Declaration]:
        """Return the answer as text that is read: a stream has many answers of one id."""
        found = _response(content)
        answer = found.get("result") if found is not None else None
        return () if answer is None else (Declaration(MESSAGE, answer),)

    def withhold(self, content: Json, refusals: Mapping[str | None, Refusal]) -> Json:
        """Return an error in the place of an answer that is withheld."""
        refusal = next(iter(refusals.values()))
        found, fields = _response(content) or {}, observation(refusal)
        return _document(found.get("id"), sentence(fields), fields)


def _response(content: Json) -> dict[str, Json] | None:
    """Return a JSON-RPC response, None where a document is none."""
    if not isinstance(content, dict) or "method" in content:
        return None
    identifier = content.get("id")
    known = isinstance(identifier, str | int) and not isinstance(identifier, bool)
    return content if known else None


def _document(identifier: Json, message: str, fields: Json) -> Json:
    error = {"code": _REFUSED, "message": message, "data": {"guard": fields}}
    return {"jsonrpc": "2.0", "id": identifier, "error": error}


def _error(status: int, identifier: Json, message: str, fields: Json) -> HttpReply:
    body = json.dumps(_document(identifier, message, fields)).encode()
    return HttpReply(status, "application/json", body)
