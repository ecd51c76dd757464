"""MCP over HTTP, revisions 2024-11-05 (HTTP+SSE) to 2026-07-28.  Pure: no I/O.

Requests, batches, notifications and responses in a POST; answers as JSON or as server-sent
events.  Decisions are made on the body, never on ``Mcp-*`` headers.  A refusal of a tool call is
a tool result with ``isError`` (spec, "Tools: error handling"), so that the agent can read it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.protocols.a2a import speaks_a2a
from guard.protocols.base import ProtocolModule
from guard.protocols.framing.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    REFUSED,
    correlation,
    read_messages,
    reject_lookalike_keys,
)
from guard.protocols.http.message import HttpReply, json_body, rewritten
from guard.protocols.mcp.declarations import declarations_in, endpoint_path, without
from guard.protocols.mcp.headers import CODE as HEADER_MISMATCH
from guard.protocols.mcp.headers import check_headers, meta_session, mirrored, query_session
from guard.protocols.messages import Message, ParsedCall, ParsedResult
from guard.protocols.refusals import observation, sentence, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from guard.core.declarations import Declaration
    from guard.core.model import Json
    from guard.protocols.framing.jsonrpc import RpcMessage
    from guard.protocols.http.message import HttpRequest
    from guard.protocols.refusals import Refusal

TOOL_CALL: Final = "tools/call"
CALL_METHODS: Final = frozenset(
    {"resources/read", "resources/subscribe", "prompts/get", "completion/complete"}
)
"""Methods that carry arguments to the server or content back: judged as calls of that name."""
PLAIN_METHODS: Final = frozenset(
    {
        "initialize",
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/unsubscribe",
        "prompts/list",
        "logging/setLevel",
        "tasks/get",
        "tasks/list",
        "tasks/cancel",
        "tasks/result",
        "tasks/update",
        "server/discover",
        "subscriptions/listen",
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/message",
        "notifications/roots/list_changed",
        "notifications/tasks/status",
        "notifications/elicitation/complete",
    }
)
"""Methods that pass: they name no destination and carry no payload of the agent's choosing."""

ELICITATION: Final = "mcp.elicitation"
SAMPLING: Final = "mcp.sampling"
ROOTS: Final = "mcp.roots"
ANSWER: Final = "mcp.answer"
"""Any other answer that has something in it, errors included."""
TOOLS: Final = (ELICITATION, SAMPLING, ROOTS, ANSWER)
RESPONSES: Final = "inputResponses"


def answers_in(messages: Sequence[RpcMessage]) -> Iterator[ParsedCall]:
    """Yield the client's answers to requests of the server: data on its way out.

    A server may ask for a completion (sampling), for something only the user knows (elicitation)
    or for the client's roots.  Up to 2025-11-25 the answer is a JSON-RPC response of the client;
    since 2026-07-28 it is a member of the request that goes on.  Each answer that says anything is
    a call of one of the names above, judged wherever the policy maps the name.

    Raises:
        MessageError: answers of a form that servers may read in different ways.
    """
    for message in messages:
        if message.method is None:
            yield from _client_answer(message.error if message.result is None else message.result)
            continue
        responses = message.params.get(RESPONSES)
        if responses is None:
            continue
        if not isinstance(responses, dict | list):
            raise MessageError("bad_call", f"`{RESPONSES}` must be an object")
        for response in responses.values() if isinstance(responses, dict) else responses:
            yield from _client_answer(_unwrapped(response))


def _unwrapped(response: Json) -> Json:
    """Return the result where a response is written as a JSON-RPC one."""
    if isinstance(response, dict) and set(response) <= {"id", "jsonrpc", "method", "result"}:
        return response.get("result", response)
    return response


def _client_answer(answer: Json) -> Iterator[ParsedCall]:
    if answer in (None, {}, []) or answer in ({"action": "decline"}, {"action": "cancel"}):
        return
    members = answer if isinstance(answer, dict) else {}
    name = ANSWER
    if "action" in members:
        name = ELICITATION
    elif "roots" in members:
        name = ROOTS
    elif "role" in members and "content" in members:
        name = SAMPLING
    yield ParsedCall(name, {"answer": answer})


TASK_METHODS: Final = frozenset({"tasks/result", "tasks/get"})
"""Methods whose answers hold the result of a call that was made as a task."""


def tasks_in(messages: Sequence[RpcMessage]) -> tuple[tuple[str | None, str], ...]:
    """Return which task each request asks about."""
    found: list[tuple[str | None, str]] = []
    for rpc in messages:
        if rpc.method in TASK_METHODS and rpc.id is not None:
            reject_lookalike_keys(rpc.params, ("taskId",))
            task = rpc.params.get("taskId", "")
            if not isinstance(task, str):
                raise MessageError("bad_call", f"`taskId` of `{rpc.method}` must be a text")
            found.append((rpc.correlation, task))
    return tuple(found)


def announced_task(content: Json) -> str | None:
    """Return the id of a task that has no result yet (2025-11-25, and its later extension)."""
    if not isinstance(content, dict) or "result" in content or "content" in content:
        return None
    inner = content.get("task")
    task = inner if isinstance(inner, dict) else content
    found = task.get("taskId")
    return found if isinstance(found, str) and "status" in task else None


def with_arguments(
    request: HttpRequest,
    arguments: Sequence[Mapping[str, Json]],
    is_call: Callable[[RpcMessage], bool],
) -> HttpRequest:
    """Return a message that has been read, with these arguments in its calls and headers.

    Raises:
        MessageError: a header repeats what has become two different values, or a number of the
            body would come out as another.
    """
    value = request.json()
    items = value if isinstance(value, list) else [value]
    pending = iter(arguments)
    written: list[Json] = []
    instead: list[tuple[Json, Json]] = []
    for item, rpc in zip(items, read_messages(value), strict=True):
        if not is_call(rpc):
            written.append(item)
            continue
        wanted = dict(next(pending))
        changed = {"arguments": wanted} if rpc.method == "tools/call" else wanted
        params = {**rpc.params, **changed}
        instead.append((rpc.params.get("arguments"), params.get("arguments")))
        written.append({**item, "params": params})
    return rewritten(
        request,
        body=json_body(request, written if isinstance(value, list) else written[0]),
        headers=mirrored(request.headers, instead),
    )


LISTEN: Final = "subscriptions/listen"
_ROUND_TRIP: Final = frozenset({"_meta", "inputResponses", "requestState"})
"""Members by which a request goes on after the server asked for something (2026-07-28)."""
_CALL_MEMBERS: Final = frozenset({"name", "arguments", "task"}) | _ROUND_TRIP
_HEADERS: Final = ("mcp-session-id", "mcp-protocol-version", "mcp-method")
_CODES: Final = {"bad_json": PARSE_ERROR, "duplicate_key": PARSE_ERROR, HEADER_MISMATCH: -32020}
"""JSON-RPC error codes of what cannot be read."""
_BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})


class McpProtocol(ProtocolModule):
    """MCP over Streamable HTTP."""

    name: ClassVar[str] = "mcp"
    event_names: ClassVar[frozenset[str]] = frozenset({"message"})

    def matches(self, request: HttpRequest) -> bool:
        """Return whether it is MCP, however broken: by header, by body, by what it looks like."""
        if any(request.has_header(name) for name in _HEADERS):
            return True
        if request.method == "GET" and _opens_stream(request):
            return True
        if request.method not in _BODY_METHODS or not request.body:
            return False
        try:
            value = request.json()
        except MessageError:
            return b"jsonrpc" in request.body
        items = value if isinstance(value, list) else [value]
        return any(isinstance(i, dict) and _is_rpc(i) for i in items) and not speaks_a2a(value)

    def parse(self, request: HttpRequest) -> Message:
        """Read a POST body; GET (the server's stream) and DELETE (end of session) carry no call."""
        if request.method in {"GET", "DELETE"}:
            if request.body:
                raise MessageError("unexpected_body", f"{request.method} must not have a body")
            return Message()
        if request.method != "POST":
            message = f"method `{request.method[:20]}` is not part of mcp"
            raise MessageError("bad_http_method", message, status=405)
        if request.media_type != "application/json":
            message = "an mcp message must have content type application/json"
            raise MessageError("bad_content_type", message, status=415)
        _check_charset(request)
        value = request.json()
        messages = read_messages(value)
        check_headers(request, messages)
        calls = tuple(call for message in messages for call in _calls(message))
        session = meta_session(messages) or query_session(request.target)
        return Message(
            calls,
            side_content=tuple(answers_in(messages)),
            tasks=tasks_in(messages),
            session_id=session,
            parsed=(isinstance(value, list), messages),
        )

    def rewrite(self, request: HttpRequest, arguments: Sequence[Mapping[str, Json]]) -> HttpRequest:
        """Put other arguments into the calls, and into the headers that repeat them.

        Raises:
            MessageError: a header repeats what has become two different values.
        """
        return with_arguments(request, arguments, _is_call)

    def refuse(self, message: Message, refusals: Sequence[Refusal | None]) -> HttpReply:
        """Answer every request of the message; none of it was forwarded."""
        is_batch, rpc_messages = message.parsed
        pending = iter(refusals)
        answers: list[Json] = []
        for rpc in rpc_messages:
            refusal = next(pending) if _is_call(rpc) else None
            if rpc.method is not None and rpc.id is not None:
                answers.append(_refused(rpc, refusal))
        return _reply(200, answers if is_batch else answers[0])

    def refuse_whole(self, message: Message, refusal: Refusal) -> HttpReply:
        """Answer every request with an error; where there is none, the message itself."""
        is_batch, rpc_messages = message.parsed or (False, ())
        error = {"code": REFUSED, "message": sentence(refusal)}
        error["data"] = {"guard": observation(refusal)}
        identifiers = [
            rpc.id for rpc in rpc_messages if rpc.method is not None and rpc.id is not None
        ]
        answers: list[Json] = [
            {"jsonrpc": "2.0", "id": identifier, "error": error}
            for identifier in identifiers or [None]
        ]
        return _reply(200 if identifiers else 403, answers if is_batch else answers[0])

    def unreadable(self, error: MessageError, decision_id: str) -> HttpReply:
        """Return a JSON-RPC error without an id: which request it was could not be read."""
        code = _CODES.get(error.code, INVALID_REQUEST)
        fields = unreadable(error, decision_id)
        return _reply(
            error.status,
            {
                "jsonrpc": "2.0",
                "id": None,
                "error": {"code": code, "message": str(error), "data": {"guard": fields}},
            },
        )

    def results(self, content: Json) -> Sequence[ParsedResult]:
        """Return the JSON-RPC responses in a body or an event; requests of the server are none."""
        items = content if isinstance(content, list) else [content]
        found: list[ParsedResult] = []
        for item in items:
            if not isinstance(item, dict) or "method" in item or "id" not in item:
                continue
            identifier = item["id"]
            if isinstance(identifier, bool) or not isinstance(identifier, (str, int)):
                continue
            key = correlation(identifier)
            failed = "error" in item
            found.append(ParsedResult(key, item.get("error" if failed else "result"), failed))
        return found

    def upstream(self, request: HttpRequest) -> str:
        """Return host and path: one host may have many servers."""
        return request.host.lower() + endpoint_path(request.target)

    def upstream_of_event(self, name: str, data: str) -> str | None:
        """Return the path in the URL that an HTTP+SSE server tells its client to post to."""
        return endpoint_path(data) if name == "endpoint" else None

    def declarations(self, content: Json) -> Sequence[Declaration]:
        """Return listings, instructions, and what the server wants a model or a user to read."""
        return declarations_in(content)

    def without_declarations(self, content: Json, withholds: Callable[[str, Json], bool]) -> Json:
        """Return the messages without the entries of listings that are withheld."""
        return without(content, withholds)

    def session_of_event(self, name: str, data: str) -> str | None:
        """Return the session in the URL that an HTTP+SSE server tells its client to post to."""
        return query_session(data) if name == "endpoint" else None

    def task_of(self, content: Json) -> str | None:
        """Return the id of a task that has no result yet."""
        return announced_task(content)

    def withhold(self, content: Json, refusals: Mapping[str | None, Refusal]) -> Json:
        """Replace the results that are withheld by error results the agent can read."""
        items = content if isinstance(content, list) else [content]
        replaced = [_withheld(item, refusals) for item in items]
        return replaced if isinstance(content, list) else replaced[0]


def _withheld(item: Json, refusals: Mapping[str | None, Refusal]) -> Json:
    if not isinstance(item, dict) or "method" in item or "id" not in item:
        return item
    refusal = refusals.get(correlation(item["id"]))
    if refusal is None:
        return item
    content = [{"type": "text", "text": sentence(refusal)}]
    fields = {"guard": observation(refusal)}
    result = {"content": content, "structuredContent": fields, "isError": True}
    return {"jsonrpc": "2.0", "id": item["id"], "result": result}


def _opens_stream(request: HttpRequest) -> bool:
    """Return whether a GET opens the one stream of HTTP+SSE (2024-11-05)."""
    accepted = request.header("accept") or ""
    path = request.target.split("?", 1)[0]
    return "text/event-stream" in accepted and path.endswith("/sse")


def _is_rpc(item: dict[str, Json]) -> bool:
    folded = {key.casefold() for key in item}
    return "jsonrpc" in folded or {"method", "params"} <= folded


def _check_charset(request: HttpRequest) -> None:
    for parameter in (request.header("content-type") or "").split(";")[1:]:
        name, _, value = parameter.strip().lower().partition("=")
        if name == "charset" and value.strip('"') not in {"utf-8", "utf8"}:
            raise MessageError("bad_content_type", "json must be utf-8", status=415)


def _is_call(rpc: RpcMessage) -> bool:
    if rpc.method == LISTEN:
        return bool(_subscribed(rpc))
    return rpc.method == TOOL_CALL or rpc.method in CALL_METHODS


def _subscribed(rpc: RpcMessage) -> Json:
    """Return the resources that a ``subscriptions/listen`` names."""
    wanted = rpc.params.get("notifications")
    if wanted is None:
        return None
    if not isinstance(wanted, dict):
        raise MessageError("bad_call", "`notifications` must be an object")
    reject_lookalike_keys(wanted, ("resourceSubscriptions",))
    return wanted.get("resourceSubscriptions")


def _calls(rpc: RpcMessage) -> list[ParsedCall]:
    if rpc.method is None or (rpc.method in PLAIN_METHODS and not _is_call(rpc)):
        return []
    if not _is_call(rpc):
        raise MessageError("unknown_method", f"method `{rpc.method[:60]}` is not known")
    if rpc.id is None:
        raise MessageError("call_without_id", f"`{rpc.method}` must be a request, with an id")
    if rpc.method != TOOL_CALL:
        reject_lookalike_keys(rpc.params, _ROUND_TRIP)
        arguments = {k: value for k, value in rpc.params.items() if k not in _ROUND_TRIP}
        return [ParsedCall(rpc.method, arguments, rpc.correlation)]
    reject_lookalike_keys(rpc.params, _CALL_MEMBERS)
    if unknown := rpc.params.keys() - _CALL_MEMBERS:
        raise MessageError("bad_call", f"unknown member `{min(unknown)[:40]}` in a tool call")
    name, arguments = rpc.params.get("name"), rpc.params.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise MessageError("call_without_name", "`tools/call` must have a name")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise MessageError("bad_call", "the arguments of a tool call must be an object")
    reject_lookalike_keys(arguments, ())
    return [ParsedCall(name, arguments, rpc.correlation)]


def _refused(rpc: RpcMessage, refusal: Refusal | None) -> Json:
    if refusal is None:
        error = {
            "code": REFUSED,
            "message": "not forwarded: another message of the same batch was refused",
            "data": {"guard": {"code": "batch_refused", "retry": True}},
        }
        return {"jsonrpc": "2.0", "id": rpc.id, "error": error}
    fields = {"guard": observation(refusal)}
    if rpc.method == TOOL_CALL:
        content = [{"type": "text", "text": sentence(refusal)}]
        result = {"content": content, "structuredContent": fields, "isError": True}
        return {"jsonrpc": "2.0", "id": rpc.id, "result": result}
    error = {"code": REFUSED, "message": sentence(refusal), "data": fields}
    return {"jsonrpc": "2.0", "id": rpc.id, "error": error}


def _reply(status: int, document: Json) -> HttpReply:
    return HttpReply(status, "application/json", json.dumps(document).encode())
